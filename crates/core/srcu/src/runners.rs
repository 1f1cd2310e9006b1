//! Which threads run callbacks, so that a barrier can wait for threads that have taken some up.
//!
//! Any number of threads run callbacks at a time. Each takes some out of the batches under the gate. It is counted
//! there, in the present *phase*, until it has run them. A barrier takes out and runs what is ready. The rest is in the
//! hands of the threads that are counted. So the barrier turns to the other phase, under the same gate, and waits until
//! no thread is counted in the phase before. A thread that comes later does not hold it up. One barrier at a time does
//! so. It turns only when the phase that it turns to is empty, which it is because the barrier before has waited for
//! it.

/// Under the gate.
#[derive(Default)]
pub(crate) struct Runners {
    /// Threads that have taken callbacks out and not yet run all of them, by phase.
    running: [usize; 2],
    phase: usize,
    /// A thread sleeps until no thread is counted in the phase before.
    awaited: bool,
}

/// A thread that runs callbacks, in the phase that it is counted in.
#[must_use]
pub(crate) struct Running(usize);

impl Runners {
    pub(crate) fn begin(&mut self) -> Running {
        self.running[self.phase] += 1;
        Running(self.phase)
    }

    /// Returns whether a thread sleeps until this.
    pub(crate) fn end(&mut self, running: &Running) -> bool {
        self.running[running.0] -= 1;
        self.running[1 - self.phase] == 0 && core::mem::take(&mut self.awaited)
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
