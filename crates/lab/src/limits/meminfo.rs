//! The host's memory.

use std::fs;

/// Bytes that a process can have without swapping, if the host says: `MemAvailable` of `/proc/meminfo`
/// (`proc_meminfo(5)`).
pub(super) fn available() -> Option<u64> {
    parse(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_among_others_and_counted_in_kib() {
        let meminfo = "MemTotal:       24 kB\nMemFree:        3 kB\nMemAvailable:      12345 kB\n";
        assert_eq!(parse(meminfo), Some(12345 * 1024));
    }

    #[test]
    fn what_the_kernel_does_not_say_is_not_guessed() {
        assert_eq!(parse("MemTotal: 24 kB\n"), None);
        assert_eq!(parse("MemAvailable: many kB\n"), None);
    }
}
