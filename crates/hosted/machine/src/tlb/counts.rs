//! What TLBs did.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($(#[$doc:meta])* $counts:ident in $cells:ident { $($(#[$field_doc:meta])* $field:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $counts { $($(#[$field_doc])* pub $field: u64),* }

        impl AddAssign for $counts {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }

        #[derive(Debug, Default)]
        pub(super) struct $cells { $(pub(super) $field: AtomicU64),* }

        impl $cells {
            pub(super) fn read(&self) -> $counts {
                $counts { $($field: self.$field.load(Ordering::Relaxed)),* }
            }
        }
    };
}

counts! {
    /// What CPUs did.
    CpuCounts in CpuCells {
        /// Accesses whose translation was remembered.
        hits,
        /// Walks of a table: accesses whose translation was not remembered, or did not allow them.
        walks,
        /// Walks that found a translation, which was then remembered.
        fills,
        /// Those of them that would be remembered still, had the CPU not been made to forget them: what invalidations
        /// cost a guest, whatever its TLB has room for.
        refills,
        /// Accesses that faulted by what was remembered.
        faults,
        /// Entries to the guest.
        entries,
        /// Pages that the CPU forgot by itself, for its vCPU had faulted there.
        stale_forgotten,
        /// VMIDs that the CPU forgot by itself, for another vCPU had been there.
        flushed,
        /// Translations that were found while no guest was there.
        walks_outside,
        /// Ranges that were forgotten on request.
        ranges_forgotten,
        /// VMIDs that were forgotten on request.
        vmids_forgotten,
        /// How often everything was forgotten: on request, or because there were more requests than a mailbox holds.
        everything_forgotten,
    }
}

counts! {
    /// What was asked of TLBs.
    TlbCounts in TlbCells {
        /// Invalidations by range.
        ranges,
        /// Invalidations by address that the ranges take.
        addresses,
        /// Invalidations of a whole VMID.
        vmids,
        /// Invalidations of all VMIDs.
        everything,
        /// How often a CPU was to name no root.
        vacated,
        /// Roots that were freed while a CPU's base register named them, so that it might have gone on to walk there.
        named_when_gone,
        /// Requests that were put into a CPU's mailbox.
        posts,
        /// Calls that waited for invalidations to be complete.
        completions,
        /// CPUs that such a call had to wait for.
        waits,
        /// Those of them that it slept for.
        sleeps,
    }
}

/// Adds one, where one thread alone writes.
pub(super) fn count_own(cell: &AtomicU64) {
    cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

pub(super) fn count(cell: &AtomicU64, number: u64) {
    cell.fetch_add(number, Ordering::Relaxed);
}
