//! The thread could have run, and there was no processor: whatever it called has nothing to do with it.

use mayfly_record::units::{duration, percent};

use super::likely::likely;
use crate::record::{Call, Cause, Trace};

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
    Some(runnable((used.queued, call.took?), "the call"))
}

/// The cause of what a thread was runnable for, of the time `took`, between two moments.
pub(super) fn runnable((queued, took): (u64, u64), of: &str) -> Cause {
    let evidence = format!(
        "it was runnable and waited {} for a processor, {} of {of}",
        duration(queued),
        percent(queued as f64 / took.max(1) as f64)
    );
    let remedy =
        "stop other work on this host, or give the VMM processors of its own, and trace again";
    likely("busy-processor", "other threads had the processor", remedy, vec![evidence])
}
