//! What the calling thread has had of the processors.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// For how long it has run, in nanoseconds.
pub fn cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// For how long it could have run while others had the processors, in nanoseconds; 0 on a kernel that does not count it.
pub fn queued() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}
