//! A large memslot is given to KVM, which makes and zeroes what it keeps of each of its pages.

use mayfly_record::units::bytes;

use super::evidence::{ran, told};
use super::likely::likely;
use crate::life::MEMORY;
use crate::record::{Call, Cause, Trace};

/// What KVM keeps of less is made in no time: at 8 bytes a page, two mebibytes for each gibibyte.
const LEAST: u64 = 1 << 30;

pub(super) fn find(trace: &Trace, call: &Call) -> Option<Cause> {
    let size = call.argument("size");
    if !MEMORY.contains(&call.name.as_str())
        || size < LEAST
        || call.result != Some(0)
        || !is_new(trace, call)
    {
        return None;
    }
    let ran = ran(call).filter(|ran| *ran >= 0.75)?;
    let evidence =
        vec![format!("slot {} is new, and has {}", call.argument("slot"), bytes(size)), told(ran)];
    let what = "KVM allocates and zeroes its metadata for each page of the slot";
    let remedy = "add memory when the VM asks for it, or set the slot on a thread of its own while others load images";
    Some(likely("large-memslot", what, remedy, evidence))
}

/// Whether there was no such slot before: else its flags are changed, which is work on what the guest has mapped.
fn is_new(trace: &Trace, call: &Call) -> bool {
    let earlier = trace.calls.iter().filter(|other| {
        other.at < call.at && other.on == call.on && MEMORY.contains(&other.name.as_str())
    });
    let mut was_there = false;
    for other in earlier {
        if other.arguments.is_empty() {
            // It was not recorded which slot it was about. Before the first run no guest has anything mapped.
            return trace.first_entry().is_none_or(|entry| entry > call.at);
        }
        if other.argument("slot") == call.argument("slot") && other.result == Some(0) {
            was_there = other.argument("size") > 0;
        }
    }
    !was_there
}
