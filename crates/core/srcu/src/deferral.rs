//! Which threads run what is deferred, and when.
//!
//! Callbacks are ready when the grace period of their batch is complete. A thread that runs some takes them out of the
//! batches under the gate, a piece at a time, and runs them with no lock held. Several threads do so at once, each with
//! its own piece (`runners`). So no thread runs the callbacks of all because it came first, and only a barrier waits
//! for callbacks that another thread runs.
//!
//! - *A waiter* runs what its grace period covers, up to [`Config::run_inline`](crate::Config). It leaves the rest to
//!   the worker, or without a worker to the next thread that runs callbacks. What is deferred meanwhile is never the
//!   waiter's, so neither threads that go on deferring nor a callback that defers itself again can keep it.
//! - *A thread that defers* past the soft bound runs as many now and then, and looks at the readers if fewer are ready.
//! - *The worker*, and [`Srcu::tick`], run what is complete when they look at the readers, and what their own look
//!   completes.
//! - *A barrier* runs all that was deferred before it, and waits for the threads that have taken up the rest.
//! - *A callback* runs no other. What it asks for, the thread that runs it does behind it (`runners`): at most what is
//!   left of that thread's share, and [`Config::run_inline`](crate::Config) at most where its share is larger.
//!
//! What was taken out counts as deferred until the whole piece has run.

use core::cell::Cell;
use core::mem::ManuallyDrop;

use mayfly_platform::Op;
use mayfly_platform::sync::{Ordering, fence};
use mayfly_platform::time::Instant;

use crate::Srcu;
use crate::backlog::Admission;
use crate::batches::{Batches, Taken};
use crate::callback::{Callback, Finally, run_each};
use crate::domain::Domain;
use crate::domain::waiting::{FIRST_LOOK, LAST_LOOK, Urgency};
use crate::runners::Runner;

/// Callbacks taken out at a time, so that several can share what is ready.
const PIECE: usize = 64;

/// Callbacks that the worker runs of one domain before it looks at the next.
const WORKERS_SHARE: usize = 1024;

/// What [`Domain::run_ready`] did.
pub(crate) struct Ran {
    /// So many callbacks it ran.
    count: usize,
    /// Whether anything is left that is ready.
    is_left: bool,
}

impl Domain {
    /// Takes `callback` unless the bound is reached. Returns whether there is so much that what is ready should run.
    #[inline]
    pub(crate) fn defer(domain: &Srcu, callback: Callback) -> Result<bool, Callback> {
        let this = domain.inner();
        let (first, hurries) = match this.backlog.admit(callback.bytes()) {
            Admission::Admitted { first } => (first, false),
            Admission::Hurry { first } => (first, true),
            Admission::Refused => {
                this.counters.refused.fetch_add(1, Ordering::Relaxed);
                return Err(callback);
            }
        };
        this.backlog.push(callback);
        if first {
            domain.want_worker();
        }
        Ok(hurries)
    }

    /// At the bound: `callback` runs here, after a grace period that the caller sees through.
    pub(crate) fn run_after_grace_period(&self, callback: Callback) {
        // Its readers may have it until the wait is over: a panic on the way leaks it.
        let callback = ManuallyDrop::new(callback);
        self.forbid_callbacks();
        let cookie = self.snapshot();
        self.wait_for(cookie, Urgency::Expedited);
        let runner = Runner::new(self.world().context());
        // SAFETY: it has ended when it goes.
        unsafe { self.gate().runners.begin(&runner) };
        // Before those of others, one of which may panic.
        let run = || ManuallyDrop::into_inner(callback).run();
        let asked = self.run_as(&runner, 1, run, || ());
        self.settle(cookie.max(asked));
    }

    /// What a waiter does with what grace period `cookie`, which is complete, has made ready.
    pub(crate) fn settle(&self, cookie: u64) {
        if self.backlog.count() == 0 {
            return;
        }
        self.run_and_hand_over(|| self.run_ready(cookie, self.run_inline).is_left);
    }

    /// As [`Domain::settle`], of a thread that has not waited, and so may be inside a callback.
    pub(crate) fn settle_here(&self, cookie: u64) {
        if !self.ask_runner(cookie) {
            self.settle(cookie);
        }
    }

    /// Whether this thread may be inside a callback. Then what grace periods up to `period`, which is complete, have
    /// made ready is run behind that.
    fn ask_runner(&self, period: u64) -> bool {
        let gate = self.gate();
        if !gate.runners.is_any() {
            return false;
        }
        let is_asked = gate.runners.ask(self.world().context(), period);
        drop(gate);
        if is_asked {
            // That thread may have run its share.
            self.leave_to_worker();
        }
        is_asked
    }

    /// What a thread does that defers past the soft bound: it runs what is ready. Only where that is less than its
    /// share it looks at the readers, so that one grace period does for as much as one makes ready.
    pub(crate) fn hurry(&self) {
        if self.ask_runner(self.completed()) {
            self.drive();
            return;
        }
        self.run_and_hand_over(|| {
            let Ran { count, is_left } = self.run_ready(self.completed(), self.run_inline);
            if count > 0 && count == self.run_inline {
                self.gate().batches.gather(&self.backlog);
                return is_left;
            }
            self.drive();
            self.run_ready(self.completed(), self.run_inline - count).is_left
        });
    }

    /// Calls the worker unless `run` says that nothing that is ready is left.
    fn run_and_hand_over(&self, run: impl FnOnce() -> bool) {
        let is_left = Cell::new(true);
        // Also where a callback panics.
        let _hand_over = Finally(|| {
            if is_left.get() {
                self.leave_to_worker();
            }
        });
        is_left.set(run());
    }

    /// What a thread does about what is ready if it must not run it, or has run enough: it calls the worker, if there
    /// is one.
    pub(crate) fn leave_to_worker(&self) {
        if let Some(worker) = &self.worker {
            worker.kick();
        }
    }

    /// Runs what grace periods up to `until` have made ready, `most` callbacks at most. Then what the callbacks have
    /// asked for, within the same bound and that of a waiter.
    pub(crate) fn run_ready(&self, mut until: u64, mut most: usize) -> Ran {
        let (mut count, mut asked) = (0, 0);
        loop {
            let mut gate = self.gate();
            let completed = self.completed();
            let piece = PIECE.min(most - count);
            let Some(taken) = gate.batches.take_ready(completed.min(until), piece) else {
                if asked > until {
                    (until, most) = (asked, most.min(count.saturating_add(self.run_inline)));
                    continue;
                }
                return Ran { count, is_left: gate.batches.has_ready(completed) };
            };
            let runner = Runner::new(self.world().context());
            // SAFETY: it has ended when it goes.
            unsafe { gate.runners.begin(&runner) };
            drop(gate);
            count += taken.count;
            asked = asked.max(self.run_piece(taken, &runner));
        }
    }

    /// Runs callbacks that were taken out by the thread that is listed as `runner`, and no longer is. Returns up to
    /// which grace period they have asked it to run others.
    pub(crate) fn run_piece(&self, taken: Taken, runner: &Runner) -> u64 {
        let Taken { callbacks, count, bytes } = taken;
        self.run_as(runner, count, || run_each(callbacks), || self.backlog.remove(count, bytes))
    }

    /// Has `run` run so many callbacks, and then `uncount` uncount them, also where one panics; by the thread that is
    /// listed as `runner`, and no longer is. Returns what they have asked for.
    fn run_as(
        &self,
        runner: &Runner,
        count: usize,
        run: impl FnOnce(),
        mut uncount: impl FnMut(),
    ) -> u64 {
        let workers = self.worker.as_ref().map(|worker| worker.callbacks_here.enter(self.world()));
        let mut asked = 0;
        let through = Finally(|| {
            if let (Some(worker), Some(entry)) = (&self.worker, &workers) {
                worker.callbacks_here.leave(entry);
            }
            self.counters.callbacks.fetch_add(count as u64, Ordering::Relaxed);
            self.world().charge(Op::Callbacks(count as u64));
            uncount();
            let ended = self.gate().runners.end(runner);
            asked = ended.asked;
            if ended.is_awaited {
                self.notify();
            }
        });
        run();
        drop(through);
        asked
    }

    /// Waits until the threads that run callbacks now have run what they had taken up.
    pub(crate) fn wait_for_runners(&self) {
        let _one = self.barriers.lock(self.world().platform());
        self.gate().runners.turn();
        self.sleep_until(|| self.gate().runners.are_through());
    }

    /// Sees to it that what is deferred runs as soon as its readers have left, without waiting for that here.
    pub(crate) fn expedite(&self) {
        let cookie = self.snapshot();
        self.hasty_looks.store(0, Ordering::Relaxed);
        self.ask_for_haste(cookie);
        let is_complete = self.advance(cookie) || self.arm(cookie);
        match &self.worker {
            Some(worker) if is_complete || self.fenced => worker.kick(),
            None if is_complete => self.settle_here(cookie),
            _ => {}
        }
    }

    fn ask_for_haste(&self, period: u64) {
        // Release: the thread that takes this away in `tick` sees what was deferred.
        self.expedited.fetch_max(period, Ordering::Release);
        // [haste]
        fence(Ordering::SeqCst);
    }

    /// Starts a grace period for what has arrived, or looks at the one under way; unless another thread does so.
    pub(crate) fn drive(&self) {
        if let Some(mut gate) = self.try_gate() {
            if gate.batches.has_gathered() || self.backlog.has_arrivals() {
                self.start(&mut gate);
            } else if gate.batches.latest().is_some() {
                self.scan(&mut gate, None);
            }
        }
    }

    /// The embedder's tick, which may be inside a callback. Returns whether something still is deferred.
    pub(crate) fn tick_here(&self) -> bool {
        if !self.ask_runner(self.completed()) {
            return self.tick(usize::MAX);
        }
        self.drive();
        self.ask_runner(self.completed());
        self.backlog.count() != 0
    }

    /// Does what can be done for what is deferred without waiting, and runs what was ready by now and what has become
    /// so on the way: `most` callbacks of either. Returns whether something still is deferred.
    pub(crate) fn tick(&self, most: usize) -> bool {
        let expedited = self.expedited.load(Ordering::Relaxed);
        self.run_ready(self.completed(), most);
        if self.backlog.count() == 0 {
            self.end_expedited(expedited);
            if self.backlog.count() == 0 {
                return false;
            }
            // A thread may just have asked for the same grace period, and have been taken for those before.
            self.ask_for_haste(expedited);
        }
        self.drive();
        // Readers that were asked to say when they leave have said so, while others hold the grace period up still:
        // those are asked now.
        let complete = self.is_complete(expedited) || self.arm(expedited);
        self.run_ready(self.completed(), most);
        if complete {
            self.end_expedited(expedited);
        }
        self.backlog.count() != 0
    }

    /// The callbacks of grace period `expedited` have run, or a thread is running them, or is about to.
    fn end_expedited(&self, expedited: u64) {
        let _ = self.expedited.compare_exchange(expedited, 0, Ordering::Acquire, Ordering::Relaxed);
    }

    /// A turn of the worker's. Returns when the next one is wanted; `lazy` where only what no thread waits for is left.
    pub(crate) fn work(&self, lazy: Instant) -> Instant {
        if let Some(linux) = &self.linux {
            return linux.work(self);
        }
        if !self.tick(WORKERS_SHARE) {
            return Instant::NEVER;
        }
        let has_ready = self.gate().batches.has_ready(self.completed());
        if has_ready {
            return Instant::from_nanos(0);
        }
        if self.fenced && self.expedited.load(Ordering::Relaxed) != 0 {
            // A reader that leaves may not have seen that it is asked to say so: see *Sleeping* in the protocol.
            let looks = self.hasty_looks.fetch_add(1, Ordering::Relaxed).min(u32::BITS / 2);
            return self.world().now() + (FIRST_LOOK * (1 << looks)).min(LAST_LOOK);
        }
        lazy
    }

    /// When the first turn of the worker's is wanted; `lazy` where only what no thread waits for is to be done.
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

    /// Runs all that is deferred, when no reader and no other handle is left: the last handle is being given up.
    pub(crate) fn run_rest(&self) {
        let paced = self.linux.as_ref().map(|linux| linux.take_all(self));
        let mut gate = self.gate();
        let mut batches = core::mem::replace(&mut gate.batches, Batches::new());
        drop(gate);
        batches.collect(&self.backlog, u64::MAX);
        let batches = core::iter::from_fn(|| batches.take_ready(u64::MAX, usize::MAX));
        let batches = batches.map(|taken| taken.callbacks);
        run_each(paced.into_iter().chain(batches).flatten());
    }
}
