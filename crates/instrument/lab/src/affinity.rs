//! On which processor a thread runs.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The processor that the calling thread is on.
pub(crate) fn here() -> usize {
    sched_getcpu()
}

/// Keeps the calling thread on one processor, until dropped. Threads that it starts meanwhile stay there for good.
///
/// Where the host does not let a thread choose, nothing is pinned.
pub(crate) struct Pinned {
    before: Option<CpuSet>,
}

impl Pinned {
    /// Pins the calling thread to this processor.
    pub(crate) fn to(processor: usize) -> Self {
        let before = sched_getaffinity(None).ok();
        let mut there = CpuSet::new();
        there.set(processor);
        let pinned = sched_setaffinity(None, &there).is_ok();
        Self { before: before.filter(|_| pinned) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // It was allowed before; if that has changed, the thread stays where it is.
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_on_one_processor_and_free_again_afterwards() {
        let before = sched_getaffinity(None).unwrap();
        let processor = here();
        {
            let _pinned = Pinned::to(processor);
            assert_eq!(here(), processor);
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        }
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
