//! Who runs what is deferred and nobody waits for: one worker for any number of domains.
//!
//! A domain that defers its first callback puts itself on the worker's list (a stack that needs no lock and no memory:
//! the domain carries the link). The worker looks at each listed domain now and then, runs what somebody's grace period
//! has made ready, starts one itself for the rest, and drops the domain from the list when nothing is deferred. It
//! never waits for a reader.
//!
//! Whoever wants the worker (a domain was pushed, or its work is due) changes `calls`, passes **[call]**
//! `fence(SeqCst)`, and wakes the worker if it is announced to sleep past the moment it is wanted. The worker loads
//! `calls`, turns, announces until when it will sleep, passes **[sleep]** `fence(SeqCst)`, and sleeps while `calls` is
//! what it loaded. One of them sees the other. `attached` is swapped by both sides, so a domain is on the list once,
//! and one that deferred while it was being dropped is seen by one of them.

use alloc::sync::Arc;
use core::ptr::NonNull;

use mayfly_platform::Platform;
use mayfly_platform::lock::{Lock, LockGuard};
use mayfly_platform::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use mayfly_platform::time::Instant;

use crate::Srcu;
use crate::config::LAZY;

/// Turns that nobody called for, and that found nothing, after which the worker sleeps until it is called. Before that
/// it looks by itself, which saves whoever defers next the wake-up.
const IDLE_TURNS: u32 = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 1 } else { 100 };

/// So many domains are looked through for one that is to be let go of; further down it stays for the worker's next
/// turn.
const LOOKED_THROUGH: u32 = 16;

/// Runs the deferred work of the domains built with it ([`Config::worker`](crate::Config)).
///
/// An embedder calls [`Worker::turn`] from its own tick, or gives it a thread with [`Worker::run`]; with the `std`
/// feature, `WorkerThread` is such a thread.
pub struct Worker {
    platform: Arc<dyn Platform>,
    /// Domains that were attached since the last turn.
    inbox: AtomicPtr<()>,
    /// Domains that the last turn left attached.
    listed: Lock<List>,
    /// Changes when the worker is wanted.
    calls: AtomicU32,
    /// Until when the worker sleeps, in nanoseconds; 0 while it is awake.
    asleep_until: AtomicU64,
    stopped: AtomicBool,
}

/// Domains linked by `next_attached`, each an ownership given up as a pointer.
struct List(*mut ());

// SAFETY: the pointers are ownerships of domains, which are `Send`.
unsafe impl Send for List {}

impl List {
    fn push(&mut self, domain: Srcu) {
        domain.inner().next_attached.store(self.0, Ordering::Relaxed);
        self.0 = domain.into_raw().as_ptr();
    }

    fn pop(&mut self) -> Option<Srcu> {
        let first = NonNull::new(self.0)?;
        // SAFETY: the list owns what it links, and gives this one up.
        let domain = unsafe { Srcu::from_raw(first) };
        self.0 = domain.inner().next_attached.load(Ordering::Relaxed);
        Some(domain)
    }
}

impl Drop for List {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// What a turn has still to look at. Where a callback panics, the next turn does.
struct Todo<'a> {
    worker: &'a Worker,
    domains: List,
}

impl Drop for Todo<'_> {
    fn drop(&mut self) {
        while let Some(domain) = self.domains.pop() {
            self.worker.put_in_inbox(domain);
        }
    }
}

impl Worker {
    /// A worker with nothing to do.
    pub fn new(platform: Arc<dyn Platform>) -> Self {
        Self {
            platform,
            inbox: AtomicPtr::new(core::ptr::null_mut()),
            listed: Lock::new(List(core::ptr::null_mut())),
            calls: AtomicU32::new(0),
            asleep_until: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// Does what can be done now, without waiting for any reader. Returns when it should be called again at the latest;
    /// [`Instant::NEVER`] where nothing is deferred in any domain.
    pub fn turn(&self) -> Instant {
        let mut listed = self.listed.lock(&*self.platform);
        let present = List(core::mem::replace(&mut listed.0, core::ptr::null_mut()));
        let mut todo = Todo { worker: self, domains: present };
        let mut arrived = List(self.inbox.swap(core::ptr::null_mut(), Ordering::Acquire));
        while let Some(domain) = arrived.pop() {
            todo.domains.push(domain);
        }
        let mut next = Instant::NEVER;
        let lazy = self.platform.now() + LAZY;
        while let Some(domain) = todo.domains.pop() {
            // Listed already while its callbacks run, should one of them panic.
            listed.push(domain.clone());
            let wanted = domain.inner().work(lazy);
            // Off before it is detached: whoever attaches it from then on links it elsewhere.
            drop(listed.pop());
            if wanted != Instant::NEVER || !Self::detach(&domain) {
                next = next.min(if wanted == Instant::NEVER { lazy } else { wanted });
                listed.push(domain);
            }
        }
        self.give_up(listed);
        next
    }

    /// Turns until [`Worker::stop`] is called, asleep in the platform between turns.
    pub fn run(&self) {
        let mut idle = 0;
        let mut answered = self.calls.load(Ordering::Relaxed);
        loop {
            // Loaded before `stopped`: a stop that is not seen here changes what is slept on.
            let calls = self.calls.load(Ordering::Acquire);
            if calls != answered {
                answered = calls;
                idle = 0;
            }
            if self.stopped.load(Ordering::Acquire) {
                break;
            }
            let mut next = self.turn();
            if next == Instant::NEVER {
                idle += 1;
                if idle < IDLE_TURNS {
                    next = self.platform.now() + LAZY;
                }
            }
            self.asleep_until.store(next.as_nanos(), Ordering::Relaxed);
            // [sleep]
            fence(Ordering::SeqCst);
            self.platform.wait_until(&self.calls, calls, next);
            self.asleep_until.store(0, Ordering::Relaxed);
        }
        self.release();
    }

    /// Lets go of every domain, and makes [`Worker::run`] return. What is deferred from then on runs when somebody asks
    /// for it ([`Srcu::barrier`], [`Srcu::tick`]) or when its domain is dropped. A domain paced as Linux has its grace
    /// periods from its worker alone: whoever waits for one from then on waits for good.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.kick();
        self.release();
    }

    /// Has the worker turn now.
    pub(crate) fn kick(&self) {
        self.calls.fetch_add(1, Ordering::Release);
        self.platform.wake(&self.calls);
    }

    /// Lists `domain`, whose `attached` the caller has set.
    pub(crate) fn attach(&self, domain: Srcu) {
        let wanted = domain.inner().wanted(|| self.platform.now() + LAZY);
        self.put_in_inbox(domain);
        self.want_at(wanted);
        if self.stopped.load(Ordering::Relaxed) {
            self.release();
        }
    }

    fn put_in_inbox(&self, domain: Srcu) {
        let raw = domain.as_raw().as_ptr();
        let mut first = self.inbox.load(Ordering::Relaxed);
        loop {
            domain.inner().next_attached.store(first, Ordering::Relaxed);
            // Release, pairing with the acquire in `turn`: the link.
            match self.inbox.compare_exchange(first, raw, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
        // The list owns it now.
        core::mem::forget(domain);
    }

    /// Has the worker turn at `wanted` at the latest.
    pub(crate) fn want_at(&self, wanted: Instant) {
        self.calls.fetch_add(1, Ordering::Release);
        // [call]
        fence(Ordering::SeqCst);
        if self.asleep_until.load(Ordering::Relaxed) > wanted.as_nanos() {
            self.platform.wake(&self.calls);
        }
    }

    /// Lets go of every domain, once `stopped` is set; unless the list is being worked on, in which case whoever does
    /// so lets go of them.
    ///
    /// Whoever finds the list taken has set `stopped`, or pushed to the inbox, and passed a fence before; who has it
    /// gives it up, passes a fence, and looks at both again. One of the two sees the other.
    fn release(&self) {
        // A domain that is attached from here on finds `stopped`: its attacher's [call] comes after this fence, or the
        // inbox shows it.
        fence(Ordering::SeqCst);
        while let Some(mut listed) = self.listed.try_lock(&*self.platform) {
            let mut arrived = List(self.inbox.swap(core::ptr::null_mut(), Ordering::Acquire));
            for domain in core::iter::from_fn(|| arrived.pop().or_else(|| listed.pop())) {
                domain.inner().attached.store(false, Ordering::Release);
            }
            drop(listed);
            fence(Ordering::SeqCst);
            if self.inbox.load(Ordering::Relaxed).is_null() {
                break;
            }
        }
    }

    /// Takes `domain` off the list if nothing is deferred in it; unless the list is being worked on, or is long.
    pub(crate) fn let_go(&self, domain: &Srcu) {
        let Some(mut listed) = self.listed.try_lock(&*self.platform) else { return };
        let mut arrived = List(self.inbox.swap(core::ptr::null_mut(), Ordering::Acquire));
        while let Some(other) = arrived.pop() {
            listed.push(other);
        }
        let mut passed = List(core::ptr::null_mut());
        for _ in 0..LOOKED_THROUGH {
            let Some(other) = listed.pop() else { break };
            if other.is(domain) && Self::detach(domain) {
                break;
            }
            passed.push(other);
        }
        while let Some(other) = passed.pop() {
            listed.push(other);
        }
        self.give_up(listed);
    }

    /// Ends work on the list. A worker that was stopped meanwhile lets go of what is left on it: see `release`.
    fn give_up(&self, listed: LockGuard<'_, List>) {
        drop(listed);
        fence(Ordering::SeqCst);
        if self.stopped.load(Ordering::Relaxed) {
            self.release();
        }
    }

    /// Takes `domain` off the list, unless it has deferred something meanwhile.
    fn detach(domain: &Srcu) -> bool {
        let attached = &domain.inner().attached;
        attached.swap(false, Ordering::AcqRel);
        !domain.inner().has_work() || attached.swap(true, Ordering::AcqRel)
    }
}

impl core::fmt::Debug for Worker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}
