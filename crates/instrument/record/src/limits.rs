//! How much memory is available: the host's, and what the cgroup and the process's limits leave of it.

mod cgroup;
mod rlimit;

use crate::host::memory;
use crate::units;

/// What a process can have. What is unknown is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory that the host has available.
    pub host: Option<u64>,
    /// Bytes of memory that the process's cgroups leave.
    pub cgroup: Option<u64>,
    /// Bytes of address space that the process may still map.
    pub space: Option<u64>,
}

impl Limits {
    /// Of this process, now.
    pub fn gather() -> Self {
        Self { host: memory::available(), cgroup: cgroup::left(), space: rlimit::left() }
    }

    /// Bytes of memory that can be had, if anybody says.
    pub fn available(self) -> Option<u64> {
        [self.host, self.cgroup].into_iter().flatten().min()
    }

    /// Why so much cannot be had, if it cannot: `memory` bytes that are used, and `space` bytes of address space, `what`
    /// for.
    pub fn why_not(self, memory: u64, space: u64, what: &str) -> Option<String> {
        let too_little = |wanted: u64, kind: &str, left: Option<u64>, said: &str| {
            let left = left.filter(|left| wanted > *left)?;
            let (wanted, left) = (units::bytes(wanted), units::bytes(left));
            Some(format!("{wanted} of {kind} for {what}, {left} {said}"))
        };
        too_little(space, "address space", self.space, "allowed (RLIMIT_AS, RLIMIT_DATA)")
            .or_else(|| too_little(memory, "memory", self.cgroup, "left by the cgroup's limit"))
            .or_else(|| too_little(memory, "memory", self.host, "available on the host"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_narrowest_limit_is_what_is_available() {
        let limits = Limits { host: Some(8 * GIB), cgroup: Some(2 * GIB), space: None };
        assert_eq!(limits.available(), Some(2 * GIB));
        assert_eq!(Limits { cgroup: None, ..limits }.available(), Some(8 * GIB));
        assert_eq!(Limits::default().available(), None);
    }

    #[test]
    fn what_cannot_be_had_is_said_with_what_was_wanted_and_what_is_allowed() {
        let limits =
            Limits { host: Some(8 * GIB), cgroup: Some(2 * GIB), space: Some(4_000_000_000) };
        let why = |memory, space| limits.why_not(memory, space, "a VM");
        assert_eq!(why(GIB, 3 * GIB), None);
        assert_eq!(
            why(GIB, 64 * GIB).unwrap(),
            "64 GiB of address space for a VM, 3.73 GiB allowed (RLIMIT_AS, RLIMIT_DATA)"
        );
        let why = why(3 * GIB, 0).unwrap();
        assert_eq!(why, "3 GiB of memory for a VM, 2 GiB left by the cgroup's limit");
        let why = Limits { host: Some(GIB), ..Limits::default() };
        let why = why.why_not(2 * GIB, 0, "a VM").unwrap();
        assert_eq!(why, "2 GiB of memory for a VM, 1 GiB available on the host");
        assert_eq!(Limits::default().why_not(u64::MAX, u64::MAX, "a VM"), None);
    }

    #[test]
    fn this_process_has_less_than_its_host() {
        let Limits { host, cgroup, space } = Limits::gather();
        println!("host {host:?}, cgroup {cgroup:?}, address space {space:?}");
        assert!(host.is_none_or(|host| host > 0));
    }
}
