//! The program sleeps while it sets its VM up, or takes it down.

use mayfly_record::units::duration;

use super::evidence::runners;
use super::likely::likely;
use super::poll::ended_in;
use crate::record::{Call, Stall, Trace};

pub(super) fn find(trace: &Trace) -> Vec<Stall> {
    let (Some(vmm), entry) = (trace.vmm(), trace.first_entry()) else { return Vec::new() };
    let exit = trace.last_exit();
    // The thread that sets the VM up is the one that everything waits for.
    let setter =
        trace.calls.iter().find(|call| call.is_kvm() && call.pid == vmm).map(|one| one.tid);
    // One in which a vCPU is entered has held up nothing.
    let before_entry = |call: &Call| entry.is_none_or(|entry| call.end() <= entry);
    let after_exit = |call: &Call| exit.is_some_and(|exit| call.at >= exit);
    // Beside a vCPU's thread that is there and has not ended, it may be that which is waited for.
    let is_alone = |call: &Call| {
        let mut others = runners(trace, call.pid).filter(|thread| thread.tid != call.tid);
        others.all(|thread| {
            thread.at >= call.end() || thread.ending.is_some_and(|ending| ending <= call.at)
        })
    };
    let is_meant = |call: &&Call| {
        call.name == "sleep"
            && Some(call.tid) == setter
            && call.took >= Some(trace.least())
            && (before_entry(call) || after_exit(call))
            && is_alone(call)
            && ended_in(trace, call).is_none()
    };
    let stall = |call: &Call| {
        let when = if before_entry(call) {
            "before a vCPU was entered"
        } else {
            "after the last vCPU was left"
        };
        let evidence = vec![
            format!("it asked to sleep for {}", duration(call.argument("time"))),
            format!("by the thread that creates the VM, {when}"),
        ];
        let cause = likely(
            "own-sleep",
            "the program itself asks to sleep",
            "wait for the event itself, by an eventfd or a futex, and not for a fixed time",
            evidence,
        );
        Stall { cause: Some(cause), ..trace.stall_of(call) }
    };
    trace.calls.iter().filter(is_meant).map(stall).collect()
}
