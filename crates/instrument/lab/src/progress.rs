//! Progress of a long run.

use std::time::Duration;

use mayfly_record::{Goal, Widest};

/// A receiver of progress: a running experiment tells it how far it is.
///
/// Calls may draw on the caller's thread, so they belong between measurements. There is no thread that
/// redraws on its own: it would take time from what is being measured.
pub trait Progress {
    /// An experiment begins: which of how many, from 1 on, and about how long it takes.
    fn experiment(&mut self, _name: &str, _which: usize, _of: usize, _time: Duration) {}

    /// The experiment is gone through so many times more, before it is looked whether it is known well enough.
    fn again(&mut self, _times: u32, _widest: Option<&Widest>, _goal: Goal) {}

    /// A part of the experiment begins: what it is, and of how many steps.
    fn begin(&mut self, what: &str, steps: u64);

    /// One more step is done.
    fn step(&mut self);

    /// The part is over.
    fn finish(&mut self);
}

/// Shows nothing.
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _what: &str, _steps: u64) {}
    fn step(&mut self) {}
    fn finish(&mut self) {}
}
