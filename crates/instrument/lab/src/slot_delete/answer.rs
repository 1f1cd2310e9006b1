//! The answer of `slot-delete`: what vCPUs wait for while a memslot is deleted, and what to do.

use mayfly_record::{BASELINE, Host, ResultRow, units};

use crate::answers::Answer;
use crate::params::{Bound, Size, Zap};
use crate::rows::Rows;

use super::metrics::{
    DELETE_CPU, LONGEST_PASS, ROOT_LOAD_AHEAD, ROOT_LOAD_CPU, SPARSE_DELETE, SPARSE_DELETE_CPU,
    UNTIL_FREED,
};
use super::names::{READ_LOCKED, WRITE_LOCKED};

/// What waits, here and in Mayfly, and what to do.
pub(super) fn answer(rows: &[ResultRow], host: &Host) -> Answer {
    let rows = Rows::of(rows);
    let (kvm, on_kvm) = rows.kvm().most(Bound::VCPUS.name);
    let zapped = |zap: Zap| kvm.with(Zap::PARAM, zap.name());
    let (all, range) = (zapped(Zap::AllRoots), zapped(Zap::Range));
    let (_, vcpus) = rows.mayfly().most(Bound::VCPUS.name);
    let machine = rows.with(Bound::VCPUS.name, vcpus).with(Zap::PARAM, Zap::AllRoots.name());
    let [mayfly, exclusive, shared] =
        [BASELINE, WRITE_LOCKED, READ_LOCKED].map(|variant| machine.machine(variant));

    let takes = |rows: &Rows<'_>| {
        let of_processor = || {
            let cpu = rows.time(SPARSE_DELETE_CPU)?;
            Some(format!("{cpu} of the caller's CPU time"))
        };
        rows.time(SPARSE_DELETE).or_else(of_processor)
    };
    let running = units::things(on_kvm, "running vCPU");
    let has_quirk = host.arch == "x86_64";
    let deletion = |rows: &Rows<'_>| {
        let (delete, pass) = (takes(rows)?, rows.time(LONGEST_PASS)?);
        Some(format!(
            "On this host's KVM, deleting a memslot of 2 MiB with {running} takes {delete}. A guest's longest pass \
             over 32 pages then takes {pass}."
        ))
    };
    let narrow = || {
        let (delete, pass) = (takes(&range)?, range.time(LONGEST_PASS)?);
        all.p50(LONGEST_PASS)?;
        Some(format!(
            "Where KVM zaps only the slot's range, the deletion takes {delete}, and the longest pass {pass}."
        ))
    };
    let alone = || {
        let deletion = deletion(&range).filter(|_| all.p50(LONGEST_PASS).is_none())?;
        Some(format!("{deletion} This KVM zaps only the slot's range."))
    };
    let elsewhere = || {
        range.p50(LONGEST_PASS).filter(|_| !has_quirk)?;
        Some("This host is not affected: its vCPUs load no new root. The other lines are about KVM on x86.".to_owned())
    };
    let call = || {
        let [first, then, ours] = [&exclusive, &shared, &mayfly].map(|rows| rows.time(DELETE_CPU));
        let (first, then, ours, freed) = (first?, then?, ours?, mayfly.time(UNTIL_FREED)?);
        let memory = mayfly.largest(Size::PARAM)?;
        let (deleted, stays) = (units::bytes(memory / 4), units::bytes(memory));
        Some(format!(
            "Deleting a slot of {deleted} beside {stays} of other memory takes {first} of the caller's CPU time under \
             that lock, {then} where vCPUs share it, and {ours} with Mayfly. Mayfly frees the tables in the background: \
             all are free after {freed}."
        ))
    };
    let queue = || {
        let ahead = exclusive.p50(ROOT_LOAD_AHEAD)?;
        let cpu = exclusive.time(ROOT_LOAD_CPU)?;
        let all = units::things(vcpus, "vCPU");
        Some(format!(
            "What waits: up to v6.8, each vCPU takes a lock for itself to load its new root. With {all}, a vCPU finds \
             {ahead} others ahead of it, in two queues together. One load takes {cpu} of its CPU time."
        ))
    };
    let since = || {
        let cpu = shared.time(ROOT_LOAD_CPU)?;
        let mayfly = mayfly.time(ROOT_LOAD_CPU)?;
        Some(format!(
            "Since v6.9, vCPUs share the lock, and one load takes {cpu}. Mayfly takes no lock: {mayfly}."
        ))
    };
    let advice = || {
        all.p50(SPARSE_DELETE_CPU).filter(|_| has_quirk)?;
        let quirk = "the mappings of other slots then stay";
        let turn = "turn KVM_X86_QUIRK_SLOT_ZAP_ALL off";
        Some(if release(&host.kernel).is_some_and(|release| release >= (6, 9)) {
            format!(
                "What to do: this kernel shares the lock. If a VM often adds and deletes slots, {turn} (v6.12 and \
                 later): {quirk}."
            )
        } else {
            format!(
                "What to do: if a VM often adds and deletes slots, run v6.9 or later. From v6.12 on, {turn}: {quirk}."
            )
        })
    };
    let here = deletion(&all).or_else(alone).or_else(|| rows.kvm_not_measured());
    let designs = [narrow(), queue(), since(), call()];
    let (vcpus, zap) = if machine.p50(DELETE_CPU).is_some() {
        (vcpus, Zap::AllRoots)
    } else {
        (on_kvm, if all.p50(LONGEST_PASS).is_some() { Zap::AllRoots } else { Zap::Range })
    };
    Answer::of(here, designs, advice().or_else(elsewhere))
        .by(Bound::VCPUS.name, vcpus)
        .by(Zap::PARAM, zap.name())
}

/// The first two numbers of a kernel's release, such as `6.18.44-fc`.
fn release(kernel: &str) -> Option<(u32, u32)> {
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
