//! What threads use, as `/proc` says.

use std::fs;

use crate::record::Used;

/// What a thread has had of the processors since it began.
pub(super) fn used(tid: i32) -> Option<Used> {
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    Some(Used { ran: numbers.next()?.ok()?, queued: numbers.next()?.ok()? })
}

/// What it had between two moments.
pub(super) fn between(before: Used, after: Used) -> Used {
    Used {
        ran: after.ran.saturating_sub(before.ran),
        queued: after.queued.saturating_sub(before.queued),
    }
}

/// Bytes that a thread has read since it began.
pub(super) fn read(tid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{tid}/task/{tid}/io")).ok();
    let text = text.or_else(|| fs::read_to_string(format!("/proc/{tid}/io")).ok())?;
    text.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok()
}

/// Bytes of memory that a process has.
pub(super) fn resident(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
