//! Grace periods: the protocol, and its engine.
//!
//! # The protocol
//!
//! **Readers.** A reader's record holds one word: how many sections it has left, and how deeply it is nested in the
//! present one. Entering adds one to the nesting, leaving the outermost section adds one to the sections; both are
//! plain stores by the only writer of that word. A *section* is thus named by its reader and number.
//!
//! **A grace period** has a number. It *starts* under the gate: its number is announced in `started`, callbacks that
//! have arrived become its batch, a barrier is passed, and then every record is *sampled*. A reader found inside
//! section `s` blocks this grace period until its word shows something else than `s`. The record remembers, in words of
//! the gate's, the last section it was sampled in and the *first* grace period that sampled it there; so the grace
//! periods that a section blocks are all those from that first one to the latest, and one scan of the records gives the
//! number below which everything is complete. Whoever scans stores that in `completed`. No grace period belongs to
//! anybody: each waiter scans for itself, and all scans agree.
//!
//! **Why completed means safe.** Let an updater unpublish `p` and then ask for a grace period, which completes as
//! number `n`. A reader that loads `p` does so inside a section; that section either was sampled by `n` (or by an
//! earlier one, and then blocks `n` too), or it was not seen by `n`'s scan. The barriers decide the latter:
//!
//! - *[light]*: a reader enters with `section.store(inside)`, **[light]**, then loads pointers.
//! - *[heavy]*: a starting grace period does `started.store(n)`, **[heavy]**, then loads each `section`.
//!
//! This is store buffering. If the scan did not see the store, then **[heavy]** came before **[light]**, and the
//! reader's loads come after the unpublishing: it cannot find `p`. On a fenced domain both are `fence(SeqCst)`. On an
//! asymmetric one [light] is a compiler barrier and [heavy] makes every CPU that runs a reader pass a full barrier:
//! before it, the reader's store is visible to the scan; after it, the reader's loads see what was published before.
//! The argument that this is the same thing is in `docs/srcu.md`, with its sources. Where no reader is registered at
//! all, a fence does for [heavy] (see `Registry::lease`).
//!
//! A section that is over when scanned was left with a release store that the scan acquires, so what it read happened
//! before `completed` was stored (release) and before whoever acquires that frees `p`.
//!
//! **Snapshot.** A party that wants a grace period does **[request]** `fence(SeqCst)`, then loads `started` and adds
//! one: the *cookie*. The grace period of that number announces itself in `started` before its [heavy]. Either the load
//! sees the announcement, and the cookie names the next one; or [request] comes before [heavy], and all that the party
//! had published is visible to every reader that this grace period does not sample.
//!
//! **Why nobody joins later.** A party that arrives when grace period `n` has sampled may have unpublished `p` *after*
//! a reader entered, was not sampled (it was outside at that moment), and loaded `p`. Grace period `n` does not know
//! that reader and may complete while it reads: freeing `p` on `n`'s completion would be a use after free. So the
//! cookie is `n + 1`, and the party starts that one itself, at once, under the gate. Parties that queue for the gate
//! meanwhile find, when they get it, that `started` has reached their cookie: the grace period was sampled after they
//! arrived, and they join it. Sampling never sleeps, so nobody's delay is waited for.
//!
//! **Urgency.** There is no state to raise. A deferred callback is lazy because nobody scans for it; as soon as anybody
//! waits, they start a grace period of their own; being later, it completes all earlier ones, and everything deferred
//! before it is ready with it.
//!
//! **Sleeping.** A waiter that sleeps does: load `progress`; set `awaited` in each record that blocks it, **[heavy]**;
//! scan again; sleep while `progress` is unchanged. A leaving reader does: store `section`, **[light]**, load
//! `awaited`; if set, it clears it, adds one to `progress` and wakes. Store buffering again: either the scan sees that
//! the reader left, or the reader sees `awaited`; then `progress` differs from what was loaded, and the sleep ends or
//! does not begin. A mark that is there already needs no [heavy]: whoever set it passed one before giving up the gate,
//! and if the reader's [light] had come before that, the scan would not find the reader inside.
//!
//! **Asking for haste.** A party that defers and wants it done as soon as readers leave does: store `expedited`,
//! **[haste]** `fence(SeqCst)`, set `awaited` where it is not set, scan. A reader that leaves and finds `awaited` does,
//! after its store of `section`: **[haste]**, load `expedited`; if set, it kicks the worker. Where the mark was there
//! before, nobody passes a [heavy], and this store buffering is what is left: either the scan sees that the reader
//! left, or the reader sees `expedited`.
//!
//! **Callbacks** are pushed with release and collected with acquire by a starting grace period before its [heavy], so
//! whatever its deferrer had published before is visible to every reader that the grace period does not sample; no
//! cookie and no fence is needed to defer. One thread at a time runs callbacks (`runner`), so a barrier that has that
//! lock after its grace period knows that all before it have run.

use alloc::sync::Arc;

use mayfly_platform::lock::Lock;
use mayfly_platform::sync::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, CacheLine, Ordering, fence, spin_loop,
};
use mayfly_platform::time::Instant;
use mayfly_platform::{Op, Platform, ReaderBarrier};

use crate::anonymous::{Anonymous, Draining};
use crate::backlog::{Admission, Backlog, Batches};
use crate::callback::{Callback, Finally, run_each};
use crate::config::{Config, Pace};
use crate::linux::LinuxPace;
use crate::reader::Registry;
use crate::stats::Stats;
use crate::{Srcu, Worker};

/// How often an expedited waiter looks again before it sleeps. Sections are mostly shorter than a sleep and a wake-up.
const EXPEDITED_LOOKS: u32 = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 0 } else { 100 };

/// So many callbacks a waiter runs itself, where there is a worker to leave more to. Freeing a few here is cheaper for
/// all than having another processor free them, and then fetching what the allocator wrote back from its cache.
const RUN_BY_WAITER: usize = 64;

/// How patient a waiter is. Either way it drives its own grace period, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Sleeps as soon as a reader is found inside.
    Lazy,
    /// Looks again for a while first.
    Expedited,
}

pub(crate) struct Domain {
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) fenced: bool,
    pub(crate) registry: Registry,
    pub(crate) anonymous: Anonymous,
    periods: CacheLine<Periods>,
    gate: Lock<Gate>,
    pub(crate) backlog: Backlog,
    /// Held by whoever runs callbacks.
    runner: Lock<()>,
    /// Somebody made callbacks ready while the runner was at work.
    rerun: AtomicBool,
    pub(crate) linux: Option<LinuxPace>,
    pub(crate) worker: Option<Arc<Worker>>,
    /// Whether the worker has this domain on its list.
    pub(crate) attached: AtomicBool,
    /// The next domain on the worker's list.
    pub(crate) next_attached: AtomicPtr<()>,
    /// The latest grace period whose callbacks are to run as soon as its readers have left; 0 where there is none.
    expedited: AtomicU64,
    pub(crate) counters: Counters,
}

struct Periods {
    /// The number of the latest grace period that has started. Written under the gate.
    started: AtomicU64,
    /// Every grace period up to this one is complete. Written under the gate.
    completed: AtomicU64,
    /// Changes when a reader that somebody sleeps for has left.
    progress: AtomicU32,
}

struct Gate {
    draining: Draining,
    batches: Batches,
}

#[derive(Default)]
pub(crate) struct Counters {
    heavy_barriers: AtomicU64,
    sleeps: AtomicU64,
    callbacks: AtomicU64,
    refused: AtomicU64,
}

impl Domain {
    pub(crate) fn new(platform: Arc<dyn Platform>, config: Config) -> Self {
        let linux = match config.pace {
            Pace::Urgent => None,
            Pace::Linux { hz } => Some(LinuxPace::new(hz, platform.now())),
        };
        Self {
            fenced: platform.reader_barrier() == ReaderBarrier::Fenced,
            platform,
            registry: Registry::new(),
            anonymous: Anonymous::new(),
            periods: CacheLine(Periods {
                started: AtomicU64::new(0),
                completed: AtomicU64::new(0),
                progress: AtomicU32::new(0),
            }),
            gate: Lock::new(Gate { draining: Draining::default(), batches: Batches::new() }),
            backlog: Backlog::new(config.limits),
            runner: Lock::new(()),
            rerun: AtomicBool::new(false),
            linux,
            worker: config.worker,
            attached: AtomicBool::new(false),
            next_attached: AtomicPtr::new(core::ptr::null_mut()),
            expedited: AtomicU64::new(0),
            counters: Counters::default(),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let (peak_deferred, peak_deferred_bytes) = self.backlog.peak();
        Stats {
            grace_periods: self.periods.started.load(Ordering::Relaxed),
            heavy_barriers: self.counters.heavy_barriers.load(Ordering::Relaxed),
            sleeps: self.counters.sleeps.load(Ordering::Relaxed),
            callbacks: self.counters.callbacks.load(Ordering::Relaxed),
            calls_at_bound: self.counters.refused.load(Ordering::Relaxed),
            deferred: self.backlog.count(),
            deferred_bytes: self.backlog.bytes(),
            peak_deferred,
            peak_deferred_bytes,
        }
    }

    /// The cookie of the first grace period that covers everything the caller has done so far.
    pub(crate) fn snapshot(&self) -> u64 {
        // [request]
        fence(Ordering::SeqCst);
        self.periods.started.load(Ordering::Relaxed) + 1
    }

    /// Starts grace period `cookie` if nobody has, looks at its readers, and says whether it is complete. Never sleeps
    /// but for the gate, whose holders do not.
    pub(crate) fn advance(&self, cookie: u64) -> bool {
        if self.is_complete(cookie) {
            return true;
        }
        let mut gate = self.gate.lock(&*self.platform);
        if self.periods.started.load(Ordering::Relaxed) < cookie {
            self.start(&mut gate);
        } else {
            self.scan(&mut gate, None);
        }
        drop(gate);
        self.is_complete(cookie)
    }

    /// Whether no reader is registered and no anonymous section is open: a grace period that is over as it begins.
    /// Whoever comes after this fence finds what the caller has published before it (see `Registry::lease`,
    /// `Anonymous::enter`).
    pub(crate) fn is_without_readers(&self) -> bool {
        fence(Ordering::SeqCst);
        self.registry.is_empty() && self.anonymous.is_empty()
    }

    pub(crate) fn is_complete(&self, cookie: u64) -> bool {
        // Acquire, pairing with the release in `scan`: the readers' sections happened before.
        self.periods.completed.load(Ordering::Acquire) >= cookie
    }

    /// Sees grace period `cookie` through.
    pub(crate) fn wait_for(&self, cookie: u64, urgency: Urgency) {
        let mut looks = match urgency {
            Urgency::Lazy => 0,
            Urgency::Expedited => EXPEDITED_LOOKS,
        };
        while !self.advance(cookie) {
            if looks > 0 {
                looks -= 1;
                spin_loop();
                continue;
            }
            // Loaded before the readers are looked at again: what changes after that look changes this.
            let progress = self.periods.progress.load(Ordering::Acquire);
            if self.arm(cookie) {
                return;
            }
            self.counters.sleeps.fetch_add(1, Ordering::Relaxed);
            self.platform.charge(Op::Sleep);
            self.platform.wait(&self.periods.progress, progress);
        }
    }

    /// Asks every reader that blocks `cookie` to say when it leaves. Returns whether `cookie` is complete.
    fn arm(&self, cookie: u64) -> bool {
        let mut gate = self.gate.lock(&*self.platform);
        let mut marked = self.anonymous.mark(&gate.draining);
        for record in self.registry.iter() {
            if let Some(section) = record.inside()
                && record.sampled.section.load(Ordering::Relaxed) == section
                && !record.reader.awaited.load(Ordering::Relaxed)
            {
                record.reader.awaited.store(true, Ordering::Relaxed);
                marked = true;
            }
        }
        if marked {
            self.heavy_barrier();
        }
        self.scan(&mut gate, None);
        drop(gate);
        self.is_complete(cookie)
    }

    /// Starts the next grace period.
    fn start(&self, gate: &mut Gate) {
        let period = self.periods.started.load(Ordering::Relaxed) + 1;
        self.periods.started.store(period, Ordering::Relaxed);
        gate.batches.collect(&self.backlog, period);
        self.platform.charge(Op::GracePeriod);
        self.heavy_barrier();
        self.scan(gate, Some(period));
    }

    /// Looks at every reader, on behalf of grace period `sampling` if that one is starting, and completes what no
    /// reader blocks any more.
    fn scan(&self, gate: &mut Gate, sampling: Option<u64>) {
        let started = self.periods.started.load(Ordering::Relaxed);
        let mut completed = started;
        for record in self.registry.iter() {
            let Some(section) = record.inside() else { continue };
            let sampled = &record.sampled;
            let known = sampled.section.load(Ordering::Relaxed) == section;
            let first = match sampling {
                _ if known => sampled.period.load(Ordering::Relaxed),
                Some(period) => {
                    sampled.section.store(section, Ordering::Relaxed);
                    sampled.period.store(period, Ordering::Relaxed);
                    period
                }
                // It entered after the latest grace period had sampled, and blocks none.
                None => continue,
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
            self.platform.charge(Op::HeavyBarrier);
            self.platform.heavy_barrier();
        }
    }

    /// A reader that somebody sleeps for has left.
    #[cold]
    pub(crate) fn reader_left(&self) {
        self.notify();
        // [haste]
        fence(Ordering::SeqCst);
        if self.expedited.load(Ordering::Relaxed) != 0
            && let Some(worker) = &self.worker
        {
            worker.kick();
        }
    }

    /// Wakes whoever sleeps until something changes in this domain.
    pub(crate) fn notify(&self) {
        self.periods.progress.fetch_add(1, Ordering::Release);
        self.platform.wake(&self.periods.progress);
    }

    /// Sleeps until `done`, which is said to have changed through [`Domain::notify`].
    pub(crate) fn sleep_until(&self, done: impl Fn() -> bool) {
        loop {
            let progress = self.periods.progress.load(Ordering::Acquire);
            if done() {
                return;
            }
            self.counters.sleeps.fetch_add(1, Ordering::Relaxed);
            self.platform.charge(Op::Sleep);
            self.platform.wait(&self.periods.progress, progress);
        }
    }

    /// What a waiter does with what its grace period has made ready: runs it, unless it is much and there is a worker.
    pub(crate) fn settle(&self) {
        match &self.worker {
            Some(worker) if self.backlog.count() > RUN_BY_WAITER => worker.kick(),
            _ => self.run_ready(),
        }
    }

    /// What somebody does about what is ready who must not run it: calls the worker, if there is one.
    pub(crate) fn leave_to_worker(&self) {
        if let Some(worker) = &self.worker {
            worker.kick();
        }
    }

    /// Runs what is ready; where somebody is at it already, they do.
    ///
    /// Whoever finds the runner at work has set `rerun` before; the runner looks at that after giving up the lock. With
    /// a fence between on either side, one of the two sees the other.
    pub(crate) fn run_ready(&self) {
        if self.backlog.count() == 0 {
            return;
        }
        loop {
            self.rerun.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let Some(runner) = self.runner.try_lock(&*self.platform) else { return };
            self.rerun.store(false, Ordering::Relaxed);
            while self.run_ready_batch() {}
            drop(runner);
            fence(Ordering::SeqCst);
            if !self.rerun.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Does `work` as the one who runs callbacks, after whoever is.
    pub(crate) fn with_runner(&self, work: impl FnOnce()) {
        let _runner = self.runner.lock(&*self.platform);
        work();
    }

    /// Runs everything deferred before grace period `cookie`, which is complete; waits for whoever is at it already.
    pub(crate) fn run_all_ready(&self) {
        self.with_runner(|| while self.run_ready_batch() {});
    }

    fn run_ready_batch(&self) -> bool {
        let completed = self.periods.completed.load(Ordering::Acquire);
        let Some(batch) = self.gate.lock(&*self.platform).batches.take_ready(completed) else {
            return false;
        };
        run_each(batch, |callback| self.run(callback));
        true
    }

    /// Runs a callback that was counted in the backlog.
    pub(crate) fn run(&self, callback: Callback) {
        let bytes = callback.bytes();
        let _count = Finally(|| {
            self.counters.callbacks.fetch_add(1, Ordering::Relaxed);
            self.platform.charge(Op::Callback);
            self.backlog.remove(1, bytes);
        });
        callback.run();
    }

    /// Takes `callback` unless the bound is reached. Returns whether there is so much that what is ready should run.
    pub(crate) fn defer(domain: &Srcu, callback: Callback) -> Result<bool, Callback> {
        let this = domain.inner();
        let admission = this.backlog.admit(callback.bytes());
        if admission == Admission::Refused {
            this.counters.refused.fetch_add(1, Ordering::Relaxed);
            return Err(callback);
        }
        this.backlog.push(callback);
        match admission {
            Admission::Admitted { first: true } => Self::attach(domain),
            Admission::Hurry => this.drive(),
            Admission::Admitted { first: false } | Admission::Refused => {}
        }
        Ok(admission == Admission::Hurry)
    }

    /// At the bound: `callback` runs here, after a grace period that the caller sees through.
    pub(crate) fn run_after_grace_period(&self, callback: Callback) {
        self.wait_for(self.snapshot(), Urgency::Expedited);
        self.run_ready();
        callback.run();
        self.counters.callbacks.fetch_add(1, Ordering::Relaxed);
        self.platform.charge(Op::Callback);
    }

    /// Sees to it that what is deferred runs as soon as its readers have left, without waiting for that here.
    pub(crate) fn expedite(&self) {
        let cookie = self.snapshot();
        // Release: who takes this away in `tick` sees what was deferred.
        self.expedited.fetch_max(cookie, Ordering::Release);
        // [haste]
        fence(Ordering::SeqCst);
        if self.advance(cookie) || self.arm(cookie) {
            match &self.worker {
                Some(worker) => worker.kick(),
                None => self.run_ready(),
            }
        }
    }

    /// Starts a grace period for what has arrived, or looks at the one under way; unless somebody else is at it.
    fn drive(&self) {
        if let Some(mut gate) = self.gate.try_lock(&*self.platform) {
            if self.backlog.has_arrivals() {
                self.start(&mut gate);
            } else if gate.batches.latest().is_some() {
                self.scan(&mut gate, None);
            }
        }
    }

    /// Does what can be done for what is deferred without waiting. Returns whether something still is.
    pub(crate) fn tick(&self) -> bool {
        let expedited = self.expedited.load(Ordering::Relaxed);
        self.run_ready();
        if self.backlog.count() == 0 {
            self.end_expedited(expedited);
            if self.backlog.count() == 0 {
                return false;
            }
            // Somebody may just have asked for the same grace period, and have been taken for those before.
            self.expedited.fetch_max(expedited, Ordering::Release);
            // [haste]
            fence(Ordering::SeqCst);
        }
        self.drive();
        // Readers that were asked to say when they leave have said so, while others hold the grace period up still:
        // those are asked now.
        let complete = self.is_complete(expedited) || self.arm(expedited);
        self.run_ready();
        if complete {
            self.end_expedited(expedited);
        }
        self.backlog.count() != 0
    }

    /// The callbacks of grace period `expedited` have run, or somebody is running them.
    fn end_expedited(&self, expedited: u64) {
        let _ = self.expedited.compare_exchange(expedited, 0, Ordering::Acquire, Ordering::Relaxed);
    }

    /// A turn of the worker's. Returns when the next one is wanted; `lazy` where only what nobody waits for is left.
    pub(crate) fn work(&self, lazy: Instant) -> Instant {
        match &self.linux {
            Some(linux) => linux.work(self),
            None if self.tick() => lazy,
            None => Instant::NEVER,
        }
    }

    /// When the first turn of the worker's is wanted; `lazy` where only what nobody waits for is to be done.
    pub(crate) fn wanted(&self, lazy: impl FnOnce() -> Instant) -> Instant {
        match &self.linux {
            Some(linux) => linux.next(self),
            None => lazy(),
        }
    }

    /// Whether there is something for the worker to do.
    pub(crate) fn has_work(&self) -> bool {
        self.backlog.count() > 0 || self.linux.as_ref().is_some_and(|linux| linux.is_busy(self))
    }

    /// Puts the domain on its worker's list, once.
    fn attach(domain: &Srcu) {
        let this = domain.inner();
        if let Some(worker) = &this.worker
            && !this.attached.swap(true, Ordering::AcqRel)
        {
            worker.attach(domain.clone());
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // Nobody is left to read (a reader keeps its domain), so everything deferred can run at once.
        let paced = self.linux.as_mut().map(LinuxPace::take_all);
        let batches = &mut self.gate.get_mut().batches;
        let batches = core::iter::from_fn(|| batches.take_ready(u64::MAX));
        let arrived = self.backlog.take_arrivals().reversed();
        run_each(paced.into_iter().chain(batches).chain([arrived]).flatten(), Callback::run);
    }
}
