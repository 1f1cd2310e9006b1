//! A memslot is deleted or moved, and all that the VM has mapped by it, or all together, is taken away first.

use mayfly_record::units::bytes;

use super::evidence::{Stretch, ran, told};
use super::likely::likely;
use crate::life::MEMORY;
use crate::record::{Call, Cause, Trace};

const ZAPS: [&str; 5] = [
    "kvm_mmu_zap_*",
    "kvm_zap_*",
    "kvm_arch_flush_shadow_memslot",
    "kvm_arch_flush_shadow_all",
    "kvm_mmu_commit_zap_page",
];

pub(super) fn find(trace: &Trace, call: &Call) -> Option<Cause> {
    if !MEMORY.contains(&call.name.as_str())
        || call.argument("size") != 0
        || call.arguments.is_empty()
    {
        return None;
    }
    let seen = Stretch::of(trace, call).seen_in(&ZAPS);
    let ran = ran(call).unwrap_or(0.0);
    if seen.is_none() && ran < 0.5 {
        return None;
    }
    let slot = call.argument("slot");
    let earlier = trace.calls.iter().rev().find(|other| {
        other.at < call.at
            && other.name == call.name
            && other.argument("slot") == slot
            && other.argument("size") > 0
    });
    let size = earlier.map_or(0, |earlier| earlier.argument("size"));
    let mut evidence = vec![format!("slot {slot}, of {}, is deleted", bytes(size)), told(ran)];
    evidence.extend(seen.map(|function| format!("it was seen in {function}")));
    let remedy = "delete slots before the guest has mapped much, or leave them and have the guest give the memory back";
    Some(likely("slot-delete", "KVM zaps what the guest has mapped", remedy, evidence))
}
