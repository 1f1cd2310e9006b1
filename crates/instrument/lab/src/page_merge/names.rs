//! What the experiment, its variants and its metrics are called, and what a row says it ran with.

use mayfly_record::{Backend, ResultRow};

use super::shape::Shape;
use crate::params::{Bound, Size};

pub(super) const NAME: &str = "page-merge";
pub(super) const INVALIDATE: &str = "invalidate";
pub(super) const CHANGE_PTE: &str = "change-pte";
pub(super) const BATCHED: &str = "batched";

/// The parameter that says in whose format the tables are, in records.
pub(super) const FORMAT: &str = "format";

/// Why KVM's row is skipped if the user did not ask for the merger.
pub(super) const LEFT_ALONE: &str = "the host's page merger is left alone; --ksm has it run";

pub(super) const MERGE: &str = "merge";
pub(super) const BREAK: &str = "break";
pub(super) const WRITE_FAULT: &str = "write_fault";
pub(super) const VM_CPU: &str = "vm_cpu";
pub(super) const FAULT_CPU: &str = "fault_cpu";
pub(super) const NOTIFIER_CPU: &str = "notifier_cpu";
pub(super) const GUEST_FAULTS: &str = "guest_faults";
pub(super) const WINDOW_FAULTS: &str = "window_faults";
pub(super) const ENTRIES_WRITTEN: &str = "entries_written";
pub(super) const TLB_INVALIDATIONS: &str = "tlb_invalidations";
pub(super) const TABLES_FREED: &str = "tables_freed";
pub(super) const TABLES_KEPT: &str = "tables_kept";
pub(super) const FROZEN_WAITS: &str = "frozen_waits";
pub(super) const FAULTS_REFUSED: &str = "faults_refused";
pub(super) const TLB_ADDRESSES: &str = "tlb_addresses";
pub(super) const TLB_REFILLS: &str = "tlb_refills";
pub(super) const FULL_SCAN: &str = "full_scan";
pub(super) const FULL_SCANS: &str = "full_scans_per_second";
pub(super) const MERGED_WRITE: &str = "merged_page_write";
pub(super) const OWN_WRITE: &str = "own_page_write";

/// A row that says what it ran with.
pub(super) fn row(backend: Backend, variant: &str, shape: Shape) -> ResultRow {
    let Shape { vms, vcpus, rounds, memory, pages_a_change } = shape;
    let row = ResultRow::new(NAME, backend, variant)
        .param(Bound::VMS.name, vms)
        .param(Bound::VCPUS.name, vcpus)
        .param(Bound::ROUNDS.name, rounds)
        .param(Size::PARAM, memory.bytes());
    match backend {
        Backend::Machine => row.param(Bound::PAGES_A_CHANGE.name, pages_a_change),
        // The kernel's merger takes each page by itself, whatever is set.
        Backend::Kvm | Backend::Metal => row,
    }
}
