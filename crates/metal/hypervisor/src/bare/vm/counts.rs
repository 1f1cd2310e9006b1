//! How often a VM left its guest, and for what reason.

use core::sync::atomic::{AtomicU64, Ordering};

use super::arch::Reason;

/// The counts of a VM since it was created.
#[derive(Default)]
pub(crate) struct Counts {
    exits: [AtomicU64; Reason::ALL.len()],
}

impl Counts {
    /// Counts an exit.
    pub(crate) fn count(&self, reason: Reason) {
        self.exits[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The exits, by the name of the reason.
    pub(crate) fn exits(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let read = |&(reason, name): &(Reason, &'static str)| {
            (name, self.exits[reason as usize].load(Ordering::Relaxed))
        };
        Reason::ALL.iter().map(read)
    }
}
