//! Dirty logging of a memslot starts or stops, and KVM goes through all that the guest has mapped by it.
//!
//! `kvm_mmu_slot_apply_flags` (`arch/x86/kvm/x86.c`) takes away the right to write, and takes huge pages apart, when a log
//! starts. When it stops, huge pages are put together again, or zapped. On arm64 `kvm_arch_commit_memory_region` does so.

use mayfly_record::units::bytes;

use super::evidence::{Stretch, ran, told};
use super::likely::likely;
use crate::life::MEMORY;
use crate::record::{Call, Cause, Trace};

/// `KVM_MEM_LOG_DIRTY_PAGES` (linux/kvm.h).
const LOGS: u64 = 1;
const GOES_THROUGH: [&str; 8] = [
    "kvm_mmu_slot_*",
    "kvm_arch_commit_memory_region",
    "kvm_mmu_try_split_huge_pages",
    "kvm_mmu_recover_huge_pages",
    "kvm_mmu_zap_collapsible_*",
    "kvm_tdp_mmu_*",
    "kvm_mmu_wp_memory_region",
    "kvm_mmu_split_memory_region",
];

pub(super) fn find(trace: &Trace, call: &Call) -> Option<Cause> {
    let starts = changes(trace, call)?;
    let stretch = Stretch::of(trace, call);
    let seen = stretch.seen_in(&GOES_THROUGH);
    let ran = ran(call).unwrap_or(0.0);
    // To wait for a grace period, as every change of a slot may, is something else.
    if ran < 0.5 && 2 * stretch.looks_at(&GOES_THROUGH) <= stretch.looks() {
        return None;
    }
    let (slot, size) = (call.argument("slot"), bytes(call.argument("size")));
    let word = if starts { "starts" } else { "stops" };
    let mut evidence = vec![format!("the log of slot {slot}, of {size}, {word}"), told(ran)];
    evidence.extend(seen.map(|function| format!("it was seen in {function}")));
    let (what, remedy) = if starts {
        (
            "KVM takes the guest's right to write, and takes its huge pages apart",
            "use KVM_DIRTY_LOG_INITIALLY_SET with manual protection, and clear in parts, or log in rings",
        )
    } else {
        (
            "KVM puts huge pages together again, or zaps what the guest has mapped",
            "leave the log on if the VM ends anyway, or stop it slot by slot",
        )
    };
    Some(likely("dirty-log", what, remedy, evidence))
}

/// Whether a call starts the log of a slot that was there before, or stops it; `None` if it does neither.
fn changes(trace: &Trace, call: &Call) -> Option<bool> {
    let is_meant = |one: &Call| {
        MEMORY.contains(&one.name.as_str())
            && one.on == call.on
            && one.succeeded()
            && one.arguments.contains_key("flags")
            && one.argument("slot") == call.argument("slot")
    };
    let earlier = trace.calls.iter().rev().find(|one| one.at < call.at && is_meant(one))?;
    let is_same = earlier.argument("size") == call.argument("size")
        && earlier.argument("guest") == call.argument("guest");
    let logs = |one: &Call| one.argument("flags") & LOGS != 0;
    let (was, is) = (logs(earlier), logs(call));
    (is_meant(call) && call.argument("size") > 0 && is_same && was != is).then_some(is)
}
