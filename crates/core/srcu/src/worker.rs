//! How deferred work runs that no caller waits for: one worker for any number of domains.
//!
//! A domain that defers its first callback puts itself into the worker's inbox. The inbox is a stack that needs no lock
//! and no memory, because the domain carries the link. From there a turn puts the domain on the roster. A turn takes
//! each listed domain into its hands, one after the other. It runs the callbacks that any grace period has made ready,
//! and starts a grace period itself for the rest. Then it puts the domain back with the time at which the domain wants
//! its next turn, or lets go of it if nothing is deferred. A turn never waits for a reader. It holds the roster's lock
//! for a moment only, and not while callbacks run. So any number of threads may turn one worker: a domain is in one
//! pair of hands at a time, and a callback that blocks keeps one thread.
//!
//! The roster owns no domain. The thread that gives up the last handle of a domain takes it off the roster first
//! (`handle`).
//!
//! *Calling the worker.* A thread that wants the worker (a domain was pushed, or its work is due) changes `wants` and
//! then `calls`, passes **[call]** `fence(SeqCst)`, and wakes all sleepers if the first of them is announced to sleep
//! past the moment that is wanted. A worker's thread loads `calls` and then `wants`, turns, announces until when it
//! will sleep, passes **[sleep]** `fence(SeqCst)`, and sleeps while `calls` is what it loaded. One of the two sees the
//! other. Both sides swap `attached`, so a domain is on the list once. If a domain deferred while it was being let go
//! of, one of the two sees it.
//!
//! *Watching the roster.* One thread that is not at work always watches the roster. A thread sleeps until the earliest
//! time that a listed domain wants. It looks that time up under the lock under which it announces itself. A domain may
//! keep the thread that takes it into its hands. So this thread looks, under that lock, at what it leaves listed. If no
//! thread is announced to be awake in time for that, it changes `calls` and wakes them. They look at the roster, and
//! work only if something is due or was wanted. If being woken were a reason to work, two threads would take the domain
//! from each other and wake each other by that for ever. A thread that puts a domain back wakes no other: a worker's
//! thread is about to take the next domain, or to sleep, and looks then; any other thread wakes the worker's threads
//! when its turn is over.
//!
//! `worker.rs`, `roster.rs`, `handle.rs`, `domain.rs` and `config.rs` import each other: a worker lists its domains,
//! and a domain, by its configuration, names its worker.

mod turn;

use alloc::sync::Arc;
use core::ptr::{NonNull, null_mut};
use core::time::Duration;

use mayfly_platform::Platform;
use mayfly_platform::lock::{Lock, LockGuard};
use mayfly_platform::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use mayfly_platform::time::Instant;

use crate::contexts::Contexts;
use crate::handle::{Counted, Handle};
use crate::roster::{Roster, Sleeper, Sleepers};
use crate::world::World;

/// How long a worker leaves a deferred callback alone, hoping that a thread's grace period completes it for free.
const LAZY: Duration = Duration::from_millis(10);

/// Turns that no thread called for, and that found nothing, after which the worker sleeps until it is called. Before
/// that it looks by itself, which saves the thread that defers next the wake-up.
const IDLE_TURNS: u32 = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 1 } else { 100 };

/// Runs the deferred work of the domains built with it ([`Config::worker`](crate::Config)).
///
/// An embedder calls [`Worker::turn`] from its own tick, or gives it threads with [`Worker::run`]; with the `std`
/// feature, `WorkerThread` is such threads. A worker that no thread turns keeps no domain alive.
///
/// A callback that blocks holds up the thread that runs it. With `n` threads, `n - 1` domains whose callbacks block
/// delay no other. With one thread a callback that blocks delays them all, which cannot be otherwise;
/// [`Worker::late_turns`] counts it.
pub struct Worker {
    world: World,
    /// Domains that were attached since the last turn.
    inbox: AtomicPtr<Counted>,
    desk: Lock<Desk>,
    /// What is slept on. Changes when the worker is wanted, and when the sleepers are to look at the roster again.
    calls: AtomicU32,
    /// Changes when the worker is wanted, before `calls` does.
    wants: AtomicU32,
    /// Until when the first of the sleepers sleeps, in nanoseconds; 0 where no thread sleeps. Written under the lock.
    asleep_until: AtomicU64,
    stopped: AtomicBool,
    late_turns: AtomicU64,
    /// What runs callbacks of any of the domains now.
    pub(crate) callbacks_here: Contexts,
}

struct Desk {
    roster: Roster,
    sleepers: Sleepers,
}

impl Worker {
    /// A worker with nothing to do.
    pub fn new(platform: Arc<dyn Platform>) -> Self {
        Self {
            world: World::new(platform),
            inbox: AtomicPtr::new(null_mut()),
            desk: Lock::new(Desk { roster: Roster::new(), sleepers: Sleepers::new() }),
            calls: AtomicU32::new(0),
            wants: AtomicU32::new(0),
            asleep_until: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            late_turns: AtomicU64::new(0),
            callbacks_here: Contexts::new(),
        }
    }

    /// Does what can be done now, without waiting for any reader, for each domain that has something deferred. Returns
    /// when it should be called again at the latest; [`Instant::NEVER`] where nothing is deferred in any domain.
    ///
    /// Not from a callback.
    ///
    /// # Panics
    ///
    /// In debug builds from a callback, where the platform says what runs.
    pub fn turn(&self) -> Instant {
        self.work_on_all();
        let mut desk = self.desk();
        self.have_watched(&mut desk);
        desk.roster.earliest()
    }

    /// Turns until [`Worker::stop`] is called, asleep in the platform between turns. Any number of threads may.
    pub fn run(&self) {
        let mut idle = 0;
        let mut answered = None;
        loop {
            // Loaded before `stopped`, and before `wants`: what is not seen here changes what is slept on.
            let calls = self.calls.load(Ordering::Acquire);
            let wants = Some(self.wants.load(Ordering::Acquire));
            if self.stopped.load(Ordering::Acquire) {
                break;
            }
            let is_wanted = answered != wants;
            if is_wanted {
                (answered, idle) = (wants, 0);
            }
            if is_wanted || self.is_due() {
                self.work_on_all();
            }
            self.sleep(calls, &mut idle);
        }
        self.release();
    }

    /// Whether a listed domain wants its turn.
    fn is_due(&self) -> bool {
        let earliest = self.desk().roster.earliest();
        earliest != Instant::NEVER && earliest <= self.world.now()
    }

    /// Lets go of every domain, and makes [`Worker::run`] return. What is deferred from then on runs when a thread asks
    /// for it ([`Srcu::barrier`](crate::Srcu::barrier), [`Srcu::tick`](crate::Srcu::tick)) or when its domain is
    /// dropped. A domain paced as Linux has its grace periods from its worker alone: the thread that waits for one from
    /// then on waits for good.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.kick();
        self.release();
    }

    /// How often a domain has had its turn more than 10 ms after it wanted it: its thread was busy with callbacks of
    /// another one, or did not get the CPU.
    pub fn late_turns(&self) -> u64 {
        self.late_turns.load(Ordering::Relaxed)
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Has the worker turn now.
    pub(crate) fn kick(&self) {
        self.want_at(Instant::from_nanos(0));
    }

    /// Has the worker look after `domain`, which has deferred something.
    pub(crate) fn want(&self, domain: &Handle) {
        if domain.attached.swap(true, Ordering::AcqRel) {
            // It is looked after. What is paced as Linux may want its turn earlier than before.
            if domain.linux.is_some() {
                self.want_at(domain.wanted(|| Instant::NEVER));
            }
            return;
        }
        let wanted = domain.wanted(|| self.world.now() + LAZY);
        self.put_in_inbox(domain, wanted);
        self.want_at(wanted);
        if self.stopped.load(Ordering::Relaxed) {
            self.release();
        }
    }

    /// Takes the domain at `domain`, whose last handle is being given up, off the roster.
    pub(crate) fn forget(&self, domain: NonNull<Counted>) {
        // SAFETY: it is freed after this, and is on no list but this one: see `handle`.
        unsafe { self.desk().roster.remove(domain) };
    }

    /// Has the worker turn at `wanted` at the latest.
    fn want_at(&self, wanted: Instant) {
        self.wants.fetch_add(1, Ordering::Release);
        self.calls.fetch_add(1, Ordering::Release);
        // [call]
        fence(Ordering::SeqCst);
        if self.asleep_until.load(Ordering::Relaxed) > wanted.as_nanos() {
            self.world.wake(&self.calls);
        }
    }

    /// The desk, with what was in the inbox on the roster.
    fn desk(&self) -> LockGuard<'_, Desk> {
        let mut desk = self.desk.lock(self.world.platform());
        let mut at = self.inbox.swap(null_mut(), Ordering::Acquire);
        while let Some(domain) = NonNull::new(at) {
            // SAFETY: put there by a thread that had a handle; the thread that gives up the last one takes this lock
            // first, and so finds the domain on the roster.
            let link = unsafe { &domain.as_ref().link };
            at = link.next.load(Ordering::Relaxed);
            let due = Instant::from_nanos(link.due.load(Ordering::Relaxed));
            // SAFETY: as above; it was on no list but the inbox.
            unsafe { desk.roster.push(domain, due) };
        }
        desk
    }

    fn put_in_inbox(&self, domain: &Handle, wanted: Instant) {
        // SAFETY: valid while there is a handle.
        let link = unsafe { &domain.at().as_ref().link };
        link.due.store(wanted.as_nanos(), Ordering::Relaxed);
        let mut first = self.inbox.load(Ordering::Relaxed);
        loop {
            link.next.store(first, Ordering::Relaxed);
            // Release, pairing with the acquire in `desk`: the link.
            let put = self.inbox.compare_exchange(
                first,
                domain.at().as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            match put {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Under the lock: wakes the sleepers if the first of them sleeps past what the first of those listed wants.
    fn have_watched(&self, desk: &mut Desk) {
        let Some(asleep_until) = desk.sleepers.earliest() else { return };
        if asleep_until > desk.roster.earliest() {
            self.calls.fetch_add(1, Ordering::Release);
            self.world.wake(&self.calls);
        }
    }

    /// Sleeps until the worker is called, if `calls` is what it was, or a domain wants its turn. Where none is listed, not
    /// for long, but for the `idle` times that it has done so.
    fn sleep(&self, calls: u32, idle: &mut u32) {
        let mut desk = self.desk();
        let mut until = desk.roster.earliest();
        let now = self.world.now();
        if until <= now {
            return;
        }
        if until == Instant::NEVER && *idle < IDLE_TURNS {
            *idle += 1;
            until = now + LAZY;
        }
        let sleeper = Sleeper::until(until);
        // SAFETY: removed below, and nothing unwinds on the way there.
        unsafe { desk.sleepers.add(&sleeper) };
        self.announce(&desk);
        drop(desk);
        // [sleep]
        fence(Ordering::SeqCst);
        self.world.wait_until(&self.calls, calls, until);
        let mut desk = self.desk();
        desk.sleepers.remove(&sleeper);
        self.announce(&desk);
    }

    fn announce(&self, desk: &Desk) {
        let earliest = desk.sleepers.earliest().map_or(0, Instant::as_nanos);
        self.asleep_until.store(earliest, Ordering::Relaxed);
    }

    /// Lets go of every domain, once `stopped` is set. Those that are in a thread's hands are let go of there.
    fn release(&self) {
        // A domain that is attached from here on finds `stopped`: its attacher's [call] comes after this fence, or the
        // inbox shows it.
        fence(Ordering::SeqCst);
        let mut desk = self.desk();
        while let Some((domain, _)) = desk.roster.pop() {
            // SAFETY: listed until now, under this lock; and until the store, the thread that gives up the last handle
            // wants the lock first.
            unsafe { domain.as_ref() }.detach();
        }
    }
}

impl core::fmt::Debug for Worker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

#[cfg(all(test, mayfly_loom))]
mod tests {
    use super::*;
    use crate::{Callback, Config, Srcu};
    use loom::model::Builder;
    use mayfly_platform::Model;

    /// In [haste] no thread passes a heavy barrier where the reader is asked already, and another thread has started
    /// the grace period.
    #[test]
    fn who_asks_for_haste_finds_that_the_reader_left_or_the_reader_finds_that_it_was_asked() {
        let mut builder = Builder::new();
        builder.max_branches = 100_000;
        builder.preemption_bound.get_or_insert(3);
        builder.check(|| {
            let worker = Arc::new(Worker::new(Arc::new(Model::new())));
            let config = Config { worker: Some(Arc::clone(&worker)), ..Config::default() };
            let domain = Srcu::try_new(Arc::new(Model::new()), config).unwrap();
            let section = domain.reader().unwrap().lock_owned();
            // Has the reader asked to say when it leaves; and then no thread is in a hurry any more.
            domain.expedite();
            assert!(!domain.tick());
            let reader = {
                let domain = domain.clone();
                loom::thread::spawn(move || {
                    let _ = domain.start_poll();
                    drop(section);
                })
            };
            domain.call_expedited(Callback::try_new(|| ()).unwrap());
            reader.join().unwrap();
            // Once for what was deferred, and again because it is ready.
            assert!(worker.calls.load(Ordering::Relaxed) >= 2, "nobody calls the worker");
        });
    }
}
