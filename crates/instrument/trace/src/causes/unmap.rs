//! Memory is given back page by page in the caller.

use mayfly_record::units::bytes;

use super::evidence::{Stretch, ran, told};
use super::likely::likely;
use super::mmap_lock;
use crate::life::overlap;
use crate::record::{Call, Cause, Trace};

const FREES: [&str; 6] = [
    "unmap_*",
    "zap_*",
    "tlb_*",
    "free_pages_and_swap_cache",
    "release_pages",
    "__mmu_notifier_invalidate_range_*",
];

pub(super) fn find(trace: &Trace, call: &Call) -> Option<Cause> {
    let range = (call.argument("address"), call.argument("length"));
    if call.name != "munmap" || range.1 == 0 || call.on.is_some() {
        return None;
    }
    let ran = ran(call)?;
    let seen = Stretch::of(trace, call).seen_in(&FREES);
    if ran < 0.5 && seen.is_none() {
        return None;
    }
    let whose = if trace.backing(call.at).iter().any(|slot| overlap(*slot, range)) {
        "of the guest's memory"
    } else if trace.knows_slots() {
        "of its own memory"
    } else {
        "of memory"
    };
    let mut evidence = vec![format!("{} {whose} are unmapped", bytes(range.1)), told(ran)];
    evidence.extend(seen.map(|function| format!("it was seen in {function}")));
    let remedy = if mmap_lock::holds_up(trace, call) {
        "use huge pages, or unmap in parts of a few MiB: another thread waited for the lock of the address space"
    } else {
        "use huge pages, or unmap on a thread that nothing waits for"
    };
    Some(likely("unmapped-memory", "memory is freed page by page in the caller", remedy, evidence))
}
