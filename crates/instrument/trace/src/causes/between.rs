//! Between two calls to KVM the thread that sets the VM up reads: an image, a file, a snapshot.

use mayfly_record::units::bytes;

use super::likely::likely;
use crate::record::{Call, Stall, Trace};

/// Less is no image, in bytes.
const LITTLE: u64 = 1 << 20;

pub(super) fn find(trace: &Trace) -> Vec<Stall> {
    let Some(vmm) = trace.vmm() else { return Vec::new() };
    let entry = trace.first_entry();
    let setter =
        trace.calls.iter().find(|call| call.is_kvm() && call.pid == vmm).map(|one| one.tid);
    let calls: Vec<&Call> = trace
        .calls
        .iter()
        .filter(|call| Some(call.tid) == setter && entry.is_none_or(|entry| call.at <= entry))
        .collect();
    calls.windows(2).filter_map(|two| gap(trace, two[0], two[1])).collect()
}

fn gap(trace: &Trace, before: &Call, after: &Call) -> Option<Stall> {
    let (from, to) = (before.end(), after.at);
    let took = to.checked_sub(from).filter(|took| *took >= trace.least())?;
    let read = after.read?.checked_sub(before.read?).filter(|read| *read >= LITTLE)?;
    let cause = likely(
        "image-loading",
        "the program reads the image of its guest",
        "map the file instead of reading it, or read it on a thread of its own while KVM is set up",
        vec![format!("it read {} meanwhile", bytes(read))],
    );
    Some(Stall {
        what: format!("between {} and {}", before.name, after.name),
        tid: before.tid,
        at: from,
        took,
        cause: Some(cause),
        ..Stall::default()
    })
}
