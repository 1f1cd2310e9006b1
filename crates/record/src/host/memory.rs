//! What there is of memory, and how the kernel gives it.

use std::fs;

/// Bytes of memory, if the kernel says: `MemTotal` of `/proc/meminfo`.
pub(super) fn total() -> Option<u64> {
    parse(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
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
        assert_eq!(parse("MemFree: 1 kB\nMemTotal:       24 kB\n"), Some(24 << 10));
        assert_eq!(parse("MemTotal: much\n"), None);
        assert_eq!(selected("always [madvise] never"), Some("madvise"));
        assert_eq!(selected("always"), None);
    }
}
