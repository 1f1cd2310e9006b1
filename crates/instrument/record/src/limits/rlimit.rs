//! The process's address space.

use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::host::memory::kib;

/// Bytes that this process may still map, if that is limited: `RLIMIT_AS`, and `RLIMIT_DATA`, which counts private
/// writable mappings as well since Linux v4.7 (`getrlimit(2)`).
pub(super) fn left() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    [(Resource::As, "VmSize:"), (Resource::Data, "VmData:")]
        .into_iter()
        .filter_map(|(resource, field)| {
            Some(getrlimit(resource).current?.saturating_sub(kib(&status, field).unwrap_or(0)))
        })
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_is_read_in_kib() {
        let status = "VmPeak:\t    9 kB\nVmSize:\t  120 kB\nVmData:\t many\n";
        assert_eq!(kib(status, "VmSize:"), Some(120 << 10));
        assert_eq!(kib(status, "VmData:"), None);
        assert_eq!(kib(status, "VmStk:"), None);
    }
}
