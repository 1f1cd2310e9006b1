//! A vCPU's thread has ended, and the program sleeps on before it looks again.

use mayfly_record::units::duration;

use super::evidence::runners;
use super::likely::likely;
use crate::record::{Call, Stall, Trace};

/// The end of a thread may be told before the sleep that began before it, in nanoseconds.
const SLACK: u64 = 2_000_000;

pub(super) fn find(trace: &Trace) -> Vec<Stall> {
    let sleeps = trace.calls.iter().filter(|call| call.name == "sleep");
    sleeps.filter_map(|sleep| missed(trace, sleep)).collect()
}

/// When, during a sleep or right before it, the last vCPU's thread of its process ended; `None` where the sleep has nothing to do with it.
pub(super) fn ended_in(trace: &Trace, sleep: &Call) -> Option<u64> {
    let others = runners(trace, sleep.pid).filter(|thread| thread.tid != sleep.tid);
    let ended = others.filter_map(|thread| thread.ending).max()?;
    (sleep.at < ended + SLACK && ended < sleep.end()).then(|| ended.max(sleep.at))
}

fn missed(trace: &Trace, sleep: &Call) -> Option<Stall> {
    // Who sets the VM up is the one that everything waits for: another that sleeps may have nothing to do with its vCPUs.
    trace.first_to_kvm(sleep.pid).filter(|first| first.tid == sleep.tid)?;
    // One that begins later may as well follow a join.
    let ended = ended_in(trace, sleep).filter(|ended| *ended > sleep.at)?;
    let took = sleep.end() - ended;
    if took < trace.least() {
        return None;
    }
    let mut evidence = vec![format!(
        "the sleep went on for {} after the last vCPU's thread had ended",
        duration(took)
    )];
    // What it asked for may not have been read.
    let each = Some(sleep.argument("time")).filter(|time| *time > 0);
    evidence.extend(each.map(|each| format!("each sleep of the program lasts {}", duration(each))));
    let cause = likely(
        "polled-join",
        "the program polls for the end of its vCPU threads",
        "join the threads, or have each signal an eventfd when it ends",
        evidence,
    );
    let what = "the rest of a sleep, after the last vCPU's thread had ended".to_owned();
    let (tid, at) = (sleep.tid, ended);
    Some(Stall { what, tid, at, took, cause: Some(cause), ..Stall::default() })
}
