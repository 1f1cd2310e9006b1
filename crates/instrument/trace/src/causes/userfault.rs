//! A guest or its VMM touches memory that is not there, and waits until the userfaultfd handler provides it.

use super::likely::likely;
use crate::life::runs_vcpu;
use crate::record::{Call, Sample, Stall, Trace};

/// How long a thread did what it was seen at: until it was seen at something else, or its call ended.
fn lasted(trace: &Trace, seen: &Sample) -> u64 {
    let last = seen.at + seen.took;
    let next = trace.samples.iter().find(|one| one.tid == seen.tid && one.at > last);
    let next = next.map(|one| one.at);
    let ended = trace.calls.iter().filter(|call| call.tid == seen.tid && call.took.is_some());
    let ended = ended.map(Call::end).find(|end| *end >= last);
    let until = next.into_iter().chain(ended).min().unwrap_or(last);
    until.saturating_sub(seen.at)
}

/// Whether a thread was in its guest when it was seen: in `KVM_RUN`, by the sample or by the calls.
fn in_guest(trace: &Trace, seen: &Sample) -> bool {
    let runs = |call: &Call| {
        call.tid == seen.tid
            && call.name == "KVM_RUN"
            && call.at <= seen.at
            && call.took.is_none_or(|took| seen.at < call.at + took)
    };
    runs_vcpu(seen) || trace.calls.iter().any(runs)
}

/// The looks that found a thread of the VMM where it waited for one page for as long as a wait is.
pub(super) fn waits(trace: &Trace) -> impl Iterator<Item = &Sample> {
    let vmm = trace.vmm();
    trace.samples.iter().filter(move |one| {
        one.is_in(&["handle_userfault"])
            && trace.threads.iter().any(|thread| thread.tid == one.tid && Some(thread.pid) == vmm)
            // One that got a processor meanwhile has had several faults, of which each is shorter.
            && lasted(trace, one) / (one.turns + 1) >= trace.least()
    })
}

pub(super) fn find(trace: &Trace) -> Vec<Stall> {
    let stall = |one: &Sample| {
        let evidence = vec![format!("its thread was seen in handle_userfault {} times", one.seen)];
        let (whose, what, remedy) = if in_guest(trace, one) {
            (
                "a vCPU's fault",
                "a vCPU waits for a page from the userfaultfd handler",
                "load the pages that a guest touches first before it runs, or have more threads load pages",
            )
        } else {
            (
                "a fault of the program itself",
                "the program waits for a page from the userfaultfd handler, outside its guest",
                "load the pages that the program itself touches before it touches them, or have more threads load pages",
            )
        };
        let cause = likely("userfault", what, remedy, evidence);
        Stall {
            what: whose.to_owned(),
            tid: one.tid,
            at: one.at,
            took: lasted(trace, one),
            cause: Some(cause),
            ..Stall::default()
        }
    };
    waits(trace).map(stall).collect()
}
