//! Grace periods: the protocol, and its engine.
//!
//! # The protocol
//!
//! **Readers.** A reader's record holds one word: how many sections the reader has left, and how deeply it is nested in
//! the present one. Entering adds one to the nesting. Leaving the outermost section adds one to the sections. Both are
//! release stores by the only writer of that word. So a reader and a number name a *section*.
//!
//! **A grace period** has a number. It *starts* under the gate. Its number is announced in `started`, callbacks that
//! have arrived become its batch, a barrier is passed, and then every record is *sampled*. A reader found inside
//! section `s` blocks this grace period until its word shows something else than `s`. The record remembers, in words of
//! the gate's, the last section it was sampled in and the *first* grace period that sampled it there. So a section
//! blocks all grace periods from that first one to the latest. One scan of the records gives the number below which
//! everything is complete, and the thread that scans stores that number in `completed`. No thread owns a grace period:
//! each waiter scans for itself, and all scans agree.
//!
//! **Why completed means safe.** Let an updater unpublish `p` and then ask for a grace period, which completes as
//! number `n`. A reader that loads `p` does so inside a section. Either `n` sampled that section (or an earlier grace
//! period did, and then the section blocks `n` too), or `n`'s scan did not see it. The barriers decide the second case:
//!
//! - *[light]*: a reader enters with `section.store(inside)`, **[light]**, then loads pointers.
//! - *[heavy]*: a starting grace period does `started.store(n)`, **[heavy]**, then loads each `section`.
//!
//! This is store buffering. If the scan did not see the store, then **[heavy]** came before **[light]**, and the
//! reader's loads come after the unpublishing: the reader cannot find `p`. On a fenced domain both are `fence(SeqCst)`.
//! On an asymmetric one [light] is a compiler barrier, and [heavy] makes every CPU that runs a reader pass a full
//! barrier. Before that barrier, the reader's store is visible to the scan. After it, the reader's loads see what was
//! published before. `docs/srcu.md` argues that this is the same thing, with its sources. If no reader is registered at
//! all, a fence is enough for [heavy] (see `registry`).
//!
//! A section that is over when it is scanned was left with a release store that the scan acquires. So what the section
//! read happened before `completed` was stored (release), and before a thread that acquires `completed` frees `p`.
//!
//! **Snapshot.** A party that wants a grace period does **[request]** `fence(SeqCst)`, then loads `started` and adds
//! one: the *cookie*. The grace period of that number announces itself in `started` before its [heavy]. Either the load
//! sees the announcement, and the cookie names the next grace period. Or [request] comes before [heavy], and all that
//! the party had published is visible to every reader that this grace period does not sample.
//!
//! **Why a party does not join a grace period that has sampled.** A party that arrives when grace period `n` has
//! sampled may have unpublished `p` *after* a reader entered, was not sampled (it was outside at that moment), and
//! loaded `p`. Grace period `n` does not know that reader and may complete while it reads. Freeing `p` on `n`'s
//! completion would be a use after free. So the cookie is `n + 1`, and the party starts that grace period itself, at
//! once, under the gate. Other parties may queue for the gate meanwhile. When they get it, they find that `started` has
//! reached their cookie: the grace period was sampled after they arrived, and they join it. Sampling never sleeps, so
//! no party waits for another one's delay.
//!
//! **Urgency.** There is no state to raise. A deferred callback is lazy because no thread scans for it. As soon as a
//! thread waits, it starts a grace period of its own. That one is later than all others, so it completes all earlier
//! ones, and everything that was deferred before it is ready with it.
//!
//! **Sleeping.** A waiter that sleeps does this: load `progress`; set `awaited` in each record that blocks it,
//! **[heavy]**; scan again; sleep while `progress` is unchanged. A leaving reader does this: store `section`,
//! **[light]**, load `awaited`; if it is set, clear it, add one to `progress` and wake. This is store buffering again.
//! Either the scan sees that the reader left, or the reader sees `awaited`; then `progress` differs from what was
//! loaded, and the sleep ends or does not begin. A mark that is set already needs no [heavy]. The waiter that set it
//! passed one before it released the gate. If the reader's [light] had come before that barrier, the scan would not
//! find the reader inside.
//!
//! On a fenced domain this would cost each reader a second fence, for a waiter that hardly ever comes. So a leaving
//! reader passes none there, and may miss a mark that was set at the moment when it left. Its store is visible a moment
//! later all the same. So a waiter there sleeps for a bounded time, looks again, and doubles that time
//! ([`FIRST_LOOK`](waiting::FIRST_LOOK) to [`LAST_LOOK`](waiting::LAST_LOOK)). A missed wake-up delays the waiter by
//! that much and no more.
//!
//! **Asking for haste.** A party that defers and wants its callback run as soon as readers leave does this: store
//! `expedited`, **[haste]** `fence(SeqCst)`, set `awaited` where it is not set, scan. A reader that leaves and finds
//! `awaited` does this after its store of `section`: **[haste]**, load `expedited`; if it is set, kick the worker. If
//! the mark was set before, no thread passes a [heavy], and this store buffering remains: either the scan sees that the
//! reader left, or the reader sees `expedited`. On a fenced domain the worker looks again, as a waiter does.
//!
//! **Callbacks** are pushed with release. A starting grace period collects them with acquire before its [heavy]. So
//! what the deferring thread had published before is visible to every reader that the grace period does not sample, and
//! deferring needs no cookie and no fence. `deferral` says which threads run them.
//!
//! **Panics.** From the announcement of a grace period to the end of its scan nothing unwinds, and nothing unwinds out
//! of a wait. What could panic there are the platform's methods, and those end the program instead (see `world`). The
//! one exception is a debug build that finds a thread that waits for itself. Such a thread leaks what it owned there.

pub(crate) mod waiting;

use core::ptr::NonNull;

use alloc::sync::Arc;

use mayfly_platform::lock::{Lock, LockGuard};
use mayfly_platform::sync::{AtomicBool, AtomicU32, AtomicU64, CacheLine, Ordering, fence};
use mayfly_platform::{Op, write_fields};

use crate::Worker;
use crate::anonymous::{Anonymous, Draining};
use crate::backlog::Backlog;
use crate::batches::Batches;
use crate::bell::BellPull;
use crate::config::{Config, Pace, RUN_INLINE};
use crate::linux::state::LinuxPace;
use crate::record::{Record, Records, Sampled};
use crate::registry::Registry;
use crate::runners::Runners;
use crate::stats::{Counters, Stats};
use crate::world::World;

pub(crate) struct Domain {
    world: World,
    pub(crate) fenced: bool,
    registry: Registry,
    pub(crate) anonymous: Anonymous,
    periods: CacheLine<Periods>,
    gate: Lock<Gate>,
    pub(crate) backlog: Backlog,
    /// A thread that waits, or defers much, runs so many callbacks itself at most.
    pub(crate) run_inline: usize,
    /// Taken by one barrier at a time.
    pub(crate) barriers: Lock<()>,
    /// Rung when a reader that a thread waits for has left.
    pub(crate) bell: BellPull,
    pub(crate) linux: Option<LinuxPace>,
    pub(crate) worker: Option<Arc<Worker>>,
    /// Whether the worker has this domain on its list, or in its hands.
    pub(crate) attached: AtomicBool,
    /// The latest grace period whose callbacks are to run as soon as its readers have left; 0 where there is none.
    pub(crate) expedited: AtomicU64,
    /// How often the worker has looked in vain since a thread asked for haste.
    pub(crate) hasty_looks: AtomicU32,
    pub(crate) counters: Counters,
}

struct Periods {
    /// The number of the latest grace period that has started. Written under the gate.
    started: AtomicU64,
    /// Every grace period up to this one is complete. Written under the gate.
    completed: AtomicU64,
    /// Changes when a reader that a thread sleeps for has left.
    progress: AtomicU32,
}

pub(crate) struct Gate {
    records: Records,
    draining: Draining,
    pub(crate) batches: Batches,
    pub(crate) runners: Runners,
}

impl Domain {
    /// Puts a domain together at `place`.
    ///
    /// # Safety
    ///
    /// `place` is valid for writes of a domain, aligned for it, and no other party's.
    pub(crate) unsafe fn write_new(place: NonNull<Self>, world: World, config: Config) {
        let linux = match config.pace {
            Pace::Urgent => None,
            Pace::Linux { hz } => Some(LinuxPace::new(hz, world.now())),
        };
        let share = match config.run_inline {
            0 => RUN_INLINE,
            run_inline => run_inline.min(RUN_INLINE),
        };
        // SAFETY: as the caller promises.
        unsafe {
            write_fields!(place => Self {
                fenced: world.is_fenced(),
                world,
                registry: Registry::new(),
                anonymous => |at| Anonymous::write_new(at),
                periods: CacheLine(Periods {
                    started: AtomicU64::new(0),
                    completed: AtomicU64::new(0),
                    progress: AtomicU32::new(0),
                }),
                gate: Lock::new(Gate {
                    records: Records::new(),
                    draining: Draining::default(),
                    batches: Batches::new(),
                    runners: Runners::new(),
                }),
                backlog: Backlog::new(config.limits, share),
                run_inline: config.run_inline,
                barriers: Lock::new(()),
                bell: BellPull::new(),
                linux,
                worker: config.worker,
                attached: AtomicBool::new(false),
                expedited: AtomicU64::new(0),
                hasty_looks: AtomicU32::new(0),
                counters: Counters::default(),
            });
        }
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    pub(crate) fn gate(&self) -> LockGuard<'_, Gate> {
        self.gate.lock(self.world.platform())
    }

    pub(crate) fn try_gate(&self) -> Option<LockGuard<'_, Gate>> {
        self.gate.try_lock(self.world.platform())
    }

    pub(crate) fn stats(&self) -> Stats {
        let (peak_deferred, peak_deferred_bytes) = self.backlog.peak();
        Stats {
            grace_periods: self.periods.started.load(Ordering::Relaxed),
            deferred: self.backlog.count(),
            deferred_bytes: self.backlog.bytes(),
            peak_deferred,
            peak_deferred_bytes,
            ..self.counters.read()
        }
    }

    /// The worker that has this domain on its list, if one has.
    pub(crate) fn attached_to(&self) -> Option<&Worker> {
        // Acquire, pairing with the release in `Counted::detach`: a worker that is stopped has done with the link. (A
        // thread that has attached it had a handle, and gave that up before this one.)
        self.worker.as_deref().filter(|_| self.attached.load(Ordering::Acquire))
    }

    /// # Safety
    ///
    /// `record` is new, and valid until it is unregistered.
    pub(crate) unsafe fn register(&self, record: NonNull<Record>) {
        // SAFETY: as the caller says.
        unsafe { self.gate().records.add(record) };
        self.registry.enter();
    }

    /// # Safety
    ///
    /// `record` was registered, and is unregistered once.
    pub(crate) unsafe fn unregister(&self, record: NonNull<Record>) {
        // SAFETY: as the caller says.
        unsafe { self.gate().records.remove(record) };
        self.registry.leave();
    }

    /// The cookie of the first grace period that covers everything the caller has done so far.
    pub(crate) fn snapshot(&self) -> u64 {
        // [request]
        fence(Ordering::SeqCst);
        self.periods.started.load(Ordering::Relaxed) + 1
    }

    /// Starts grace period `cookie` if no thread has, looks at its readers, and says whether it is complete. Never
    /// sleeps but for the gate, whose holders do not.
    pub(crate) fn advance(&self, cookie: u64) -> bool {
        if self.is_complete(cookie) {
            return true;
        }
        let mut gate = self.gate();
        if self.periods.started.load(Ordering::Relaxed) < cookie {
            self.start(&mut gate);
        } else {
            self.scan(&mut gate, None);
        }
        drop(gate);
        self.is_complete(cookie)
    }

    /// Whether no reader is registered and no anonymous section is open: a grace period that is over as it begins.
    /// A thread that comes after this fence finds what the caller has published before it (see `registry`,
    /// `Anonymous::enter`).
    pub(crate) fn is_without_readers(&self) -> bool {
        fence(Ordering::SeqCst);
        self.registry.is_empty() && self.anonymous.is_empty()
    }

    pub(crate) fn is_complete(&self, cookie: u64) -> bool {
        self.completed() >= cookie
    }

    /// Every grace period up to this one is complete.
    pub(crate) fn completed(&self) -> u64 {
        // Acquire, pairing with the release in `scan`: the readers' sections happened before.
        self.periods.completed.load(Ordering::Acquire)
    }

    /// Whether `cookie` can be one of this domain's: no later grace period was ever asked for.
    pub(crate) fn may_have_given(&self, cookie: u64) -> bool {
        cookie <= self.snapshot()
    }

    /// Starts the next grace period.
    pub(crate) fn start(&self, gate: &mut Gate) {
        let period = self.periods.started.load(Ordering::Relaxed) + 1;
        self.periods.started.store(period, Ordering::Relaxed);
        gate.batches.collect(&self.backlog, period);
        self.world.charge(Op::GracePeriod);
        self.heavy_barrier();
        self.scan(gate, Some(period));
    }

    /// Looks at every reader, on behalf of grace period `sampling` if that one is starting, and completes what no
    /// reader blocks any more.
    pub(crate) fn scan(&self, gate: &mut Gate, sampling: Option<u64>) {
        let started = self.periods.started.load(Ordering::Relaxed);
        let mut completed = started;
        for record in gate.records.iter() {
            let Some(section) = record.inside() else { continue };
            let first = match (record.sampled_in(section), sampling) {
                (Some(first), _) => first,
                (None, Some(period)) => {
                    record.sample(Sampled { section, period });
                    period
                }
                // It entered after the latest grace period had sampled, and blocks none.
                (None, None) => continue,
            };
            completed = completed.min(first - 1);
        }
        if let Some(first) = self.anonymous.scan(&mut gate.draining, sampling) {
            completed = completed.min(first - 1);
        }
        if completed > self.periods.completed.load(Ordering::Relaxed) {
            // Release, pairing with the acquire in `is_complete`.
            self.periods.completed.store(completed, Ordering::Release);
        }
    }

    /// [heavy]
    fn heavy_barrier(&self) {
        fence(Ordering::SeqCst);
        if !self.fenced && !self.registry.is_empty() {
            self.counters.heavy_barriers.fetch_add(1, Ordering::Relaxed);
            self.world.charge(Op::HeavyBarrier);
            self.world.heavy_barrier();
        }
    }
}
