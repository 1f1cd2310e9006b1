//! Two processors, one for each of the threads that measure.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Processors that this process may use; where there is but one, that one twice.
#[derive(Clone, Copy, Debug)]
pub struct Processors {
    here: usize,
    there: usize,
}

impl Processors {
    /// Asked before any thread keeps to one of them.
    ///
    /// # Panics
    ///
    /// If the host does not say.
    pub fn two() -> Self {
        let allowed = sched_getaffinity(None).expect("a thread may ask about itself");
        let mut processors = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let here = processors.next().expect("this thread runs somewhere");
        Self { here, there: processors.next().unwrap_or(here) }
    }

    /// The number of the second, where there are two.
    pub fn there(self) -> Option<usize> {
        (self.there != self.here).then_some(self.there)
    }

    /// Keeps this thread, the one that measures, to the first.
    pub fn keep_here(self) {
        keep_to(self.here);
    }

    /// Keeps this thread, the other one, to the second.
    pub fn keep_there(self) {
        keep_to(self.there);
    }
}

fn keep_to(processor: usize) {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only).expect("this thread may use the processor");
}
