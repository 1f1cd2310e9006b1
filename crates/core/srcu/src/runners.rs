//! Which threads run callbacks: so that a barrier can wait for threads that have taken some up, and so that a callback
//! runs no other.
//!
//! Any number of threads run callbacks at a time. Each takes some out of the batches under the gate. There it is
//! listed, and counted in the present *phase*, until it has run them. A barrier takes out and runs what is ready. The
//! rest is in the hands of the threads that are counted. So the barrier turns to the other phase, under the same gate,
//! and waits until no thread is counted in the phase before. A thread that comes later does not hold it up. One barrier
//! at a time does so. It turns only when the phase that it turns to is empty, which it is because the barrier before
//! has waited for it.
//!
//! *In a callback.* A thread that is listed is inside a callback, or between two of the same piece. If such a thread
//! asks for callbacks to be run, and ran them there, a callback that defers itself and asks would be called by itself,
//! and again, until the stack ends. So it only *asks*: it leaves the number of the grace period with its entry of the
//! list. The thread finds the number when it has run its piece, under the gate, as it takes itself off the list. Then
//! it runs what was asked for, if its share is not used up. So a request is left with an entry that is on the list, or
//! the thread is not inside a callback and runs the callbacks itself.
//!
//! The platform says which thread this is ([`Platform::context`]). One that does not say has no callback run while
//! another thread might be this one: a request is left with each thread that is listed without a name.
//!
//! [`Platform::context`]: mayfly_platform::Platform::context

use core::cell::Cell;
use core::ptr::null;

use mayfly_platform::Context;

/// Under the gate.
pub(crate) struct Runners {
    /// Threads that have taken callbacks out and not yet run all of them, by phase.
    running: [usize; 2],
    phase: usize,
    /// A thread sleeps until no thread is counted in the phase before.
    awaited: bool,
    /// The same threads.
    first: *const Runner,
}

// SAFETY: what the list leads to is valid on all threads while it is listed, and used under the gate.
unsafe impl Send for Runners {}

/// A thread that runs callbacks, on its stack.
pub(crate) struct Runner {
    context: Option<Context>,
    /// The phase that it is counted in.
    phase: Cell<usize>,
    /// The latest grace period whose callbacks it is asked to run behind these; 0 where there is none.
    asked: Cell<u64>,
    next: Cell<*const Runner>,
}

impl Runner {
    /// The thread that is `context`, where that is known.
    pub(crate) fn new(context: Option<Context>) -> Self {
        Self { context, phase: Cell::new(0), asked: Cell::new(0), next: Cell::new(null()) }
    }
}

/// What a thread finds that has run its piece.
pub(crate) struct Ended {
    /// Whether a thread sleeps until this.
    pub(crate) is_awaited: bool,
    /// The latest grace period whose callbacks the thread was asked to run, from inside the piece.
    pub(crate) asked: u64,
}

impl Runners {
    pub(crate) fn new() -> Self {
        Self { running: [0; 2], phase: 0, awaited: false, first: null() }
    }

    /// # Safety
    ///
    /// `runner` is valid, where it is, until it has ended.
    pub(crate) unsafe fn begin(&mut self, runner: &Runner) {
        self.running[self.phase] += 1;
        runner.phase.set(self.phase);
        runner.next.set(self.first);
        self.first = runner;
    }

    pub(crate) fn end(&mut self, runner: &Runner) -> Ended {
        if self.first == core::ptr::from_ref(runner) {
            self.first = runner.next.get();
        } else {
            let this = core::ptr::from_ref(runner);
            if let Some(before) = self.iter().find(|other| other.next.get() == this) {
                before.next.set(runner.next.get());
            }
        }
        self.running[runner.phase.get()] -= 1;
        let is_awaited = self.running[1 - self.phase] == 0 && core::mem::take(&mut self.awaited);
        Ended { is_awaited, asked: runner.asked.get() }
    }

    /// Whether a thread runs callbacks now.
    pub(crate) fn is_any(&self) -> bool {
        !self.first.is_null()
    }

    /// Whether a thread that is known to be `here` is inside a callback.
    pub(crate) fn has(&self, here: Context) -> bool {
        self.iter().any(|runner| runner.context == Some(here))
    }

    /// Has the thread that is `here`, if it is inside a callback, run what grace period `period` has made ready, behind
    /// that. Where what is here is not known, has each thread that might be this one do so. Returns whether there is
    /// one.
    pub(crate) fn ask(&self, here: Option<Context>, period: u64) -> bool {
        let mut is_any = false;
        for runner in self.iter().filter(|runner| runner.context == here) {
            runner.asked.set(runner.asked.get().max(period));
            is_any = true;
        }
        is_any
    }

    fn iter(&self) -> impl Iterator<Item = &Runner> {
        let mut at = self.first;
        core::iter::from_fn(move || {
            // SAFETY: null, or listed, so valid.
            let runner = unsafe { at.as_ref() }?;
            at = runner.next.get();
            Some(runner)
        })
    }
    /// From now on, counts threads that come in the other phase.
    pub(crate) fn turn(&mut self) {
        debug_assert_eq!(self.running[1 - self.phase], 0, "a barrier waits until it is empty");
        self.phase = 1 - self.phase;
    }

    /// Whether no thread is counted in the phase before. If a thread is, the last of them says so ([`Runners::end`]).
    pub(crate) fn are_through(&mut self) -> bool {
        let are_through = self.running[1 - self.phase] == 0;
        self.awaited = !are_through;
        are_through
    }
}
