//! The answer of `page-merge`: what guests fault for while the host merges pages, and what to do.

use mayfly_record::{ResultRow, units};

use crate::answers::Answer;
use crate::rows::Rows;

use super::names::{
    BATCHED, CHANGE_PTE, FORMAT, GUEST_FAULTS, INVALIDATE, LEFT_ALONE, MERGED_WRITE, OWN_WRITE,
    TLB_INVALIDATIONS, VM_CPU, WINDOW_FAULTS,
};

/// What guests fault for, here and in Mayfly, and what to do.
pub(super) fn answer(rows: &[ResultRow]) -> Answer {
    let rows = Rows::of(rows);
    let (invalidate, proposed) = (rows.machine(INVALIDATE), rows.machine(CHANGE_PTE));
    let mayfly = rows.mayfly();
    let counted = |name: &'static str| {
        let counts = [invalidate.p50(name)?, proposed.p50(name)?, mayfly.p50(name)?];
        Some(counts.map(units::grouped))
    };

    let here = || {
        let (merged, own) = (rows.kvm().time(MERGED_WRITE)?, rows.kvm().time(OWN_WRITE)?);
        Some(format!(
            "On this host's KVM, a guest's write takes {merged} if its page was merged, and {own} if it was not."
        ))
    };
    let not_here = || {
        if let Some(why) = rows.kvm_skipped().filter(|why| *why != LEFT_ALONE) {
            return Some(format!("This host's KVM was not measured: {why}."));
        }
        Some("This host's KVM was not measured, because the run leaves the host's page merger alone. With --ksm, as root, \
        the run starts the merger, and measures what a write to a merged page costs.".to_owned())
    };
    let waits = || {
        let [linux, ..] = counted(GUEST_FAULTS)?;
        let [window, ..] = counted(WINDOW_FAULTS)?;
        Some(format!(
            "What waits: guests. Linux removes a page from the guest's tables for each change. In a round, guests take \
             {linux} faults, {window} of them while the page is being changed."
        ))
    };
    let instead = || {
        let ([_, _, faults], [_, _, window]) = (counted(GUEST_FAULTS)?, counted(WINDOW_FAULTS)?);
        Some(format!(
            "Mayfly leaves mapped what guests may still read, and replaces entries in place: {faults} faults, {window} of \
             them while the page is being changed."
        ))
    };
    let price = || {
        let [linux, _, mayfly] = counted(TLB_INVALIDATIONS)?;
        Some(format!(
            "TLB invalidations in a round: {linux} with Linux's design, {mayfly} with Mayfly's."
        ))
    };
    let cpu = || {
        let [linux, ours] = [&invalidate, &mayfly].map(|rows| rows.time(VM_CPU));
        let (linux, ours) = (linux?, ours?);
        let together = rows.machine(BATCHED).time(VM_CPU);
        let together =
            together.map(|cpu| format!(", and {cpu} where one change covers up to 64 pages"));
        Some(format!(
            "CPU time of all changes and faults in a round: {linux} with Linux's design, {ours} with Mayfly's{}.",
            together.unwrap_or_default()
        ))
    };
    let advice = || {
        Some("What to do: keep guests that need low latency out of the merger (no MADV_MERGEABLE). Let it scan when \
        guests are idle.".to_owned())
    };
    let designs = [waits(), instead(), price(), cpu()];
    let answer = Answer::of(here().or_else(not_here), designs, advice());
    match mayfly.param(FORMAT) {
        Some(format) => answer.by(FORMAT, format.clone()),
        None => answer,
    }
}
