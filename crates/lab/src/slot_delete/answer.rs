//! What the rows come to.

use mayfly_record::{BASELINE, ResultRow};

use crate::answer::Rows;
use crate::params::{Bound, Zap};

use super::metrics::{DELETE, GUEST_STALL, ROOT_LOAD_AHEAD, ROOT_LOAD_CPU};
use super::names::{READ_LOCKED, WRITE_LOCKED};

/// What waits, here and in Mayfly, and what to do.
pub(super) fn answer(rows: &[ResultRow]) -> Vec<String> {
    let rows = Rows::of(rows);
    let (kvm, on_kvm) = rows.kvm().most(Bound::VCPUS.name);
    let zapped = |zap: Zap| kvm.with(Zap::PARAM, zap.name());
    let (all, range) = (zapped(Zap::AllRoots), zapped(Zap::Range));
    let (_, vcpus) = rows.mayfly().most(Bound::VCPUS.name);
    let machine = rows.with(Bound::VCPUS.name, vcpus).with(Zap::PARAM, Zap::AllRoots.name());
    let [mayfly, exclusive, shared] =
        [BASELINE, WRITE_LOCKED, READ_LOCKED].map(|variant| machine.machine(variant));

    let here = || {
        let (delete, stall) = (all.time(DELETE)?, all.time(GUEST_STALL)?);
        Some(format!(
            "On this host's KVM deleting a memslot under {on_kvm} running vCPUs takes {delete}, and keeps a guest \
             from its memory for {stall}."
        ))
    };
    let narrow = || {
        let (delete, stall) = (range.time(DELETE)?, range.time(GUEST_STALL)?);
        Some(format!("Where KVM zaps the slot's range alone, that is {delete} and {stall}."))
    };
    let queue = || {
        let ahead = exclusive.p50(ROOT_LOAD_AHEAD)?;
        let cpu = exclusive.time(ROOT_LOAD_CPU)?;
        Some(format!(
            "What waits: up to v6.8 every vCPU takes a lock to load its new root. With {vcpus} vCPUs it finds \
             {ahead} before it, in two queues together, and a load takes {cpu} of its processor."
        ))
    };
    let since = || {
        let cpu = shared.time(ROOT_LOAD_CPU)?;
        let mayfly = mayfly.time(ROOT_LOAD_CPU)?;
        Some(format!(
            "Since v6.9 they share it: {cpu}. Mayfly takes no lock: {mayfly}, and the old tables are freed in the \
             background."
        ))
    };
    let advice = || {
        all.p50(DELETE)?;
        Some(
            "What to do: where slots come and go, run v6.9 or later, and from v6.12 on turn \
        KVM_X86_QUIRK_SLOT_ZAP_ALL off, so that what other slots have mapped stays."
                .to_owned(),
        )
    };
    [here(), narrow(), queue(), since(), advice()].into_iter().flatten().collect()
}
