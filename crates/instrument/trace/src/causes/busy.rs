//! The thread could have run, and there was no processor: whatever it called has nothing to do with it.

use mayfly_record::units::{duration, percent};

use super::likely::likely;
use crate::record::{Call, Cause, Trace};

/// It is seen a bit later that the group was held back, in nanoseconds.
const SEEN_LATE: u64 = 2_000_000;

/// The share of a call that was waited for a processor, from which on that is its cause.
const MOST_OF_IT: f64 = 0.5;

pub(super) fn find(trace: &Trace, call: &Call) -> Option<Cause> {
    if ["KVM_RUN", "sleep", "accept"].contains(&call.name.as_str()) {
        return None;
    }
    let used = call.used?;
    let queued = used.queued as f64 / call.took.filter(|took| *took > 0)? as f64;
    // Where less is left than is worth a line, a third of it is enough.
    let left = call.took?.saturating_sub(used.queued);
    let enough = if left < trace.least() { MOST_OF_IT / 1.5 } else { MOST_OF_IT };
    if queued < enough {
        return None;
    }
    let took = (used.queued, call.took?);
    Some(runnable(trace, took, (call.at, call.end()), "the call"))
}

/// The cause of what a thread was runnable for, of the time `took`, between two moments.
pub(super) fn runnable(
    trace: &Trace,
    (queued, took): (u64, u64),
    (from, to): (u64, u64),
    of: &str,
) -> Cause {
    let held_back = trace.held_back(from, to);
    if held_back > 0 && 2 * held_back >= queued {
        return limited(queued, held_back, of);
    }
    let evidence = format!(
        "it was runnable and waited {} for a processor, {} of {of}",
        duration(queued),
        percent(queued as f64 / took.max(1) as f64)
    );
    let remedy =
        "stop other work on this host, or give the VMM processors of its own, and trace again";
    likely("busy-processor", "other threads had the processor", remedy, vec![evidence])
}

/// What evidence of another cause says of the time that a thread was runnable, if that was most of what it `took`.
pub(super) fn also_queued(queued: u64, took: u64) -> Option<String> {
    (2 * queued >= took).then(|| format!("it also waited {} for a processor", duration(queued)))
}

/// No other thread had the processor: the program had used up what its control group may have of it.
fn limited(queued: u64, held_back: u64, of: &str) -> Cause {
    let evidence = vec![
        format!("it was runnable for {} of {of}", duration(queued)),
        format!("its control group was held back for {} meanwhile", duration(held_back)),
    ];
    let what = "the control group has used up its processor time, and is held back";
    let remedy = "raise the group's cpu.max (cgroup v1: cpu.cfs_quota_us), or give it bursts (cpu.max.burst)";
    likely("cpu-limit", what, remedy, evidence)
}

impl Trace {
    /// For how long the program's control group was held back between two moments, as far as that was seen.
    fn held_back(&self, from: u64, to: u64) -> u64 {
        let by = |time: u64| {
            let seen = self.throttled.iter().rev().find(|(at, _)| *at <= time);
            seen.map_or(0, |(_, total)| *total)
        };
        by(to.saturating_add(SEEN_LATE)).saturating_sub(by(from))
    }
}
