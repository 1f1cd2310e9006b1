//! What there is of memory, and how the kernel gives it.

use std::fs;

/// Bytes of memory, if the kernel says: `MemTotal` of `/proc/meminfo` (`proc_meminfo(5)`).
pub(super) fn total() -> Option<u64> {
    field("MemTotal:")
}

/// Bytes that a process can have without swapping, if the kernel says: `MemAvailable`.
pub(crate) fn available() -> Option<u64> {
    field("MemAvailable:")
}

fn field(name: &str) -> Option<u64> {
    kib(&fs::read_to_string("/proc/meminfo").ok()?, name)
}

/// A field of `/proc/meminfo` or `/proc/PID/status`, in bytes: both have it in KiB.
pub(crate) fn kib(text: &str, field: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(field))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The choice in force, which stands in brackets.
pub(super) fn selected(choices: &str) -> Option<&str> {
    choices.split_once('[')?.1.split_once(']').map(|(choice, _)| choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_in_kib_and_a_choice_stands_in_brackets() {
        let meminfo = "MemFree: 1 kB\nMemTotal:       24 kB\nMemAvailable: many kB\n";
        assert_eq!(kib(meminfo, "MemTotal:"), Some(24 << 10));
        // What the kernel does not say is not guessed.
        assert_eq!((kib(meminfo, "MemAvailable:"), kib(meminfo, "SwapFree:")), (None, None));
        assert_eq!(selected("always [madvise] never"), Some("madvise"));
        assert_eq!(selected("always"), None);
    }
}
