//! The program sleeps while it sets its VM up, or takes it down.

use mayfly_record::units::duration;

use super::evidence::runners;
use super::likely::likely;
use super::poll::ended_in;
use crate::path::Held;
use crate::record::{Call, Cause, Stall, Trace};

pub(super) fn find(trace: &Trace) -> Vec<Stall> {
    let is_long = |call: &&Call| call.name == "sleep" && call.took >= Some(trace.least());
    let stall = |call: &Call| {
        let when = when(trace, call.tid, (call.at, call.end()))?;
        ended_in(trace, call).is_none().then_some(())?;
        let asked = Some(call.argument("time")).filter(|time| *time > 0);
        let asked = asked.map(|time| format!("it asked to sleep for {}", duration(time)));
        Some(Stall { cause: Some(cause(asked, when)), ..trace.stall_of(call) })
    };
    trace.calls.iter().filter(is_long).filter_map(stall).collect()
}

/// The cause of many short sleeps, if the thread asked for most of them.
pub(super) fn of_many(trace: &Trace, held: &Held<'_>) -> Option<Cause> {
    if held.times < 2 {
        return None;
    }
    let is_its = |call: &&Call| {
        call.name == "sleep" && call.tid == held.tid && call.at < held.to && held.from < call.end()
    };
    let asked = || trace.calls.iter().filter(is_its);
    let took: u64 = asked().filter_map(|call| call.took).sum();
    if 2 * took < held.took || asked().any(|call| ended_in(trace, call).is_some()) {
        return None;
    }
    let when = when(trace, held.tid, (held.from, held.to))?;
    let asked = format!(
        "it asked {} times to sleep, which took {} in all",
        asked().count(),
        duration(took)
    );
    Some(cause(Some(asked), when))
}

fn cause(asked: Option<String>, when: &str) -> Cause {
    let by = format!("it is the thread that creates the VM, {when}");
    likely(
        "own-sleep",
        "the program itself asks to sleep",
        "wait for the event itself, by an eventfd or a futex, and not for a fixed time",
        asked.into_iter().chain([by]).collect(),
    )
}

/// When a sleep was that holds up nothing but the VM: before it is entered, or after it is left. `None` if something else may
/// be waited for, or nothing is.
fn when(trace: &Trace, tid: i32, (from, to): (u64, u64)) -> Option<&'static str> {
    let vmm = trace.vmm()?;
    // The thread that sets the VM up is the one that everything waits for.
    let first = trace.first_to_kvm(vmm)?;
    // Beside a vCPU's thread that is there and has not ended, it may be that which is waited for.
    let mut others = runners(trace, vmm).filter(|thread| thread.tid != tid);
    let is_alone =
        others.all(|thread| thread.at >= to || thread.ending.is_some_and(|ending| ending <= from));
    if first.tid != tid || !is_alone {
        return None;
    }
    // One in which a vCPU is entered has held up nothing.
    if trace.first_entry().is_none_or(|entry| to <= entry) {
        return Some("before a vCPU was entered");
    }
    let is_after = trace.last_exit().is_some_and(|exit| from >= exit);
    is_after.then_some("after the last vCPU was left")
}
