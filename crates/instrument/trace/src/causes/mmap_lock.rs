//! A call that changes the process's mappings waits for the lock of the address space (`mmap_lock`), while another thread
//! of the process unmaps or populates memory.
//!
//! `munmap` keeps the lock until the pages are freed: first for writing, then for reading (`do_vmi_align_munmap` of
//! `mm/vma.c`). So to unmap on another thread does not help a thread that maps.

use mayfly_record::units::{bytes, duration};

use super::evidence::Stretch;
use super::likely::likely;
use crate::record::{Call, Cause, Trace};

const CHANGES: [&str; 3] = ["mmap", "munmap", "madvise"];
/// A lock of the kernel that sleeps; a process's `mmap_lock` is one.
const WAITS_IN: [&str; 1] = ["rwsem_down_*"];

pub(super) fn find(trace: &Trace, call: &Call) -> Option<Cause> {
    let other = held_up_by(trace, call)?;
    let meanwhile = overlap(call, other);
    let evidence = vec![
        format!(
            "{} of {} on thread {} ran for {} of this call",
            other.name,
            bytes(other.argument("length")),
            other.tid,
            duration(meanwhile)
        ),
        format!("it was seen in {}", Stretch::of(trace, call).seen_in(&WAITS_IN)?),
    ];
    let remedy = "unmap or populate in parts of a few MiB, so that the lock is free in between, or do it later";
    let what = "another thread changes the mappings of the process";
    Some(likely("mmap-lock", what, remedy, evidence))
}

/// Whether a call made another thread of its process wait for the lock.
pub(super) fn holds_up(trace: &Trace, call: &Call) -> bool {
    trace.calls.iter().any(|other| {
        overlap(call, other) >= trace.least()
            && held_up_by(trace, other).is_some_and(|by| std::ptr::eq(by, call))
    })
}

/// The call of another thread that ran longest while `call` waited for the lock.
fn held_up_by<'a>(trace: &'a Trace, call: &Call) -> Option<&'a Call> {
    if !CHANGES.contains(&call.name.as_str()) || call.on.is_some() {
        return None;
    }
    Stretch::of(trace, call).seen_in(&WAITS_IN)?;
    let others = trace.calls.iter().filter(|other| {
        other.pid == call.pid && other.tid != call.tid && CHANGES.contains(&other.name.as_str())
    });
    let longest = others.max_by_key(|other| overlap(call, other))?;
    (overlap(call, longest) >= call.took? / 2).then_some(longest)
}

/// How long two calls ran at the same time, in nanoseconds.
fn overlap(one: &Call, other: &Call) -> u64 {
    one.end().min(other.end()).saturating_sub(one.at.max(other.at))
}
