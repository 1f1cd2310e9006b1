//! A vCPU is kicked, does not leave its guest, and is kicked again when a time is over: the first kick came before the
//! vCPU was entered, and was lost.

use mayfly_record::units::duration;

use super::likely::likely;
use crate::life::runs_vcpu;
use crate::record::{Stall, Thread, Trace};

/// The vCPU leaves so soon after the kick that it heard, in nanoseconds.
const SOON: u64 = 20_000_000;

pub(super) fn find(trace: &Trace) -> Vec<Stall> {
    trace.threads.iter().filter_map(|thread| lost(trace, thread)).collect()
}

fn lost(trace: &Trace, thread: &Thread) -> Option<Stall> {
    let left = trace.left(thread)?;
    // A run that a signal ends is over before that is delivered. Of a later run than the first it is not known whether
    // one before it, which is not kept, was ended by the kick before.
    let mut runs =
        trace.calls.iter().filter(|call| call.tid == thread.tid && call.name == "KVM_RUN");
    let was_interrupted = runs
        .next()
        .is_some_and(|first| first.end() == left && first.result.is_some_and(is_interrupted));
    let mut signals = thread.signals.iter();
    let delivered = signals.find(|(at, _)| *at >= left).filter(|_| was_interrupted);
    let before = || thread.signals.iter().rev().find(|(at, _)| *at <= left);
    let heard = delivered.or_else(before)?;
    if left.abs_diff(heard.0) > SOON {
        return None;
    }
    let earlier =
        thread.signals.iter().rev().find(|(at, signal)| *at < heard.0 && *signal == heard.1)?;
    let took = heard.0 - earlier.0;
    if took < trace.least() {
        return None;
    }
    // In between it was in its guest.
    let entered = trace.calls.iter().any(|call| {
        call.tid == thread.tid
            && call.name == "KVM_RUN"
            && call.at >= earlier.0
            && call.at < heard.0
    });
    let seen: u64 = trace
        .samples
        .iter()
        .filter(|one| one.tid == thread.tid && runs_vcpu(one) && one.at < heard.0)
        .map(|one| one.took)
        .sum();
    if !entered && seen < took / 2 {
        return None;
    }
    if was_heard(trace, thread, earlier.0) || starts_all(trace, thread, *earlier) {
        return None;
    }
    let evidence = vec![
        format!(
            "its thread got signal {} {} before the signal that made it leave its guest",
            heard.1,
            duration(took)
        ),
        "and it entered the guest after the first".to_owned(),
    ];
    let cause = likely(
        "lost-kick",
        "a kick came before the vCPU was entered and was lost, and only the next one ended the run",
        "set kvm_run's immediate_exit in the signal's handler, or block the signal except in KVM_RUN (KVM_SET_SIGNAL_MASK)",
        evidence,
    );
    Some(Stall {
        what: "a vCPU that does not leave its guest".to_owned(),
        tid: thread.tid,
        at: earlier.0,
        took,
        cause: Some(cause),
        ..Stall::default()
    })
}

/// What a call returns that a signal has ended: `EINTR`, or one of the numbers that say how the kernel begins it again
/// (`ERESTARTSYS` to `ERESTART_RESTARTBLOCK` of `include/linux/errno.h`).
fn is_interrupted(result: i64) -> bool {
    result == -i64::from(libc::EINTR) || (-516..=-512).contains(&result)
}

/// Whether a signal has ended a run of its thread's: it is the first that the thread got since.
fn was_heard(trace: &Trace, thread: &Thread, at: u64) -> bool {
    let mut runs =
        trace.calls.iter().filter(|call| call.tid == thread.tid && call.name == "KVM_RUN");
    runs.any(|run| {
        let is_right_before = run.end() <= at && at - run.end() <= SOON;
        let is_first = !thread.signals.iter().any(|(when, _)| (run.end()..at).contains(when));
        is_right_before && is_first && run.result.is_some_and(is_interrupted)
    })
}

/// Whether a thread got a signal with another vCPU's thread, and both were entered only then: it lets all vCPUs go, as
/// Firecracker does with it. Of vCPUs that are to leave, one may miss its kick.
fn starts_all(trace: &Trace, thread: &Thread, (at, signal): (u64, i32)) -> bool {
    let gets_it = |other: &Thread| {
        let same = other
            .signals
            .iter()
            .find(|(when, which)| *which == signal && when.abs_diff(at) <= SOON);
        let mut runs =
            trace.calls.iter().filter(|call| call.tid == other.tid && call.name == "KVM_RUN");
        same.is_some_and(|(when, _)| {
            runs.next().is_some_and(|first| (*when..=when + SOON).contains(&first.at))
        })
    };
    let others = trace.threads.iter().filter(|one| one.pid == thread.pid && one.tid != thread.tid);
    others.filter(|one| trace.ran_vcpu(one)).any(gets_it)
}
