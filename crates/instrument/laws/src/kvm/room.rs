//! How many of each there may be: by the process's limits, by KVM's, and by half of the host's memory.

use std::fs;
use std::ops::RangeInclusive;

use mayfly_kvm::Kvm;
use mayfly_record::{Limits, units};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::kernel::Failed;
use crate::pair::Dimension;

/// Files that are kept for everything else.
const OTHER_FILES: u64 = 64;

/// Devices of a bus: `NR_IOBUS_DEVS` (`include/linux/kvm_host.h`), and some that KVM has itself.
const IOEVENTFDS: u64 = 900;

/// What a process may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes of memory that may be used.
    memory: u64,
    /// Files that may be opened.
    files: u64,
    /// Mappings that may be made.
    mappings: u64,
    vcpus: u64,
    slots: u64,
}

/// Bytes of kernel memory that one of them takes: no less than what was seen, on any host. And how many files.
const fn cost(dimension: Dimension) -> (u64, u64) {
    match dimension {
        Dimension::Mappings => (512, 0),
        Dimension::Vms => (512 << 10, 2),
        Dimension::Vcpus => (256 << 10, 2),
        // Of its one page, the same for all, nothing is counted.
        Dimension::Slots => (1 << 10, 0),
        // What KVM keeps of each page, and two bits of a dirty log.
        Dimension::SlotPages => (32, 0),
        Dimension::Ioeventfds | Dimension::Irqfds => (2 << 10, 1),
        Dimension::Age => (0, 0),
    }
}

impl Room {
    /// Of this process, which may have as many files as it may at most from now on.
    pub(super) fn make(kvm: &Kvm) -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        let files = if raised.is_ok() { maximum } else { current };
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let mapped = fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count());
        let most = number("/proc/sys/vm/max_map_count").unwrap_or(65_530);
        Self {
            memory: Limits::gather().available().map_or(u64::MAX, |available| available / 2),
            files: files.unwrap_or(u64::MAX).saturating_sub(OTHER_FILES),
            mappings: (most / 2).saturating_sub(mapped as u64),
            vcpus: kvm.most_vcpus(),
            slots: kvm.most_slots(),
        }
    }

    /// From how many on, and up to how many, there can be.
    pub(super) fn range(self, dimension: Dimension) -> Result<RangeInclusive<u64>, Failed> {
        let (first, most) = match dimension {
            Dimension::Mappings => (1, self.mappings.min(30_000)),
            Dimension::Vms => (1, 200),
            // One more is created.
            Dimension::Vcpus => (1, self.vcpus.saturating_sub(1).min(128)),
            Dimension::Slots => (1, self.slots.saturating_sub(2).min(4096)),
            Dimension::SlotPages => (16, 1 << 18),
            Dimension::Ioeventfds => (1, IOEVENTFDS),
            Dimension::Irqfds => (1, 900),
            Dimension::Age => (100, 50_000),
        };
        let (bytes, files) = cost(dimension);
        let by_memory = self.memory.checked_div(bytes).unwrap_or(u64::MAX);
        let by_files = self.files.checked_div(files).unwrap_or(u64::MAX);
        if by_files < most.min(first * 100) {
            return Err(Failed(format!(
                "this process may open {} more files (RLIMIT_NOFILE), and {} need {}",
                self.files,
                units::things(first * 100, dimension.one()),
                first * 100 * files
            )));
        }
        if by_memory < most.min(first * 100) {
            return Err(Failed(format!(
                "half of the memory that is available is {}, and {} need {}",
                units::bytes(self.memory),
                units::things(first * 100, dimension.one()),
                units::bytes(first * 100 * bytes)
            )));
        }
        Ok(first..=most.min(by_memory).min(by_files).max(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: Room =
        Room { memory: 1 << 40, files: 1 << 20, mappings: 1 << 20, vcpus: 1024, slots: 32_764 };

    fn range(room: Room, dimension: Dimension) -> RangeInclusive<u64> {
        room.range(dimension).unwrap()
    }

    #[test]
    fn the_narrowest_limit_is_the_end_of_a_range() {
        assert_eq!(range(PLENTY, Dimension::Mappings), 1..=30_000);
        assert_eq!(range(Room { mappings: 7000, ..PLENTY }, Dimension::Mappings), 1..=7000);
        assert_eq!(range(Room { vcpus: 110, ..PLENTY }, Dimension::Vcpus), 1..=109);
        assert_eq!(range(Room { files: 300, ..PLENTY }, Dimension::Irqfds), 1..=300);
        let small = Room { memory: 60 << 20, ..PLENTY };
        assert_eq!(range(small, Dimension::Vms), 1..=120);
        assert_eq!(range(small, Dimension::Age), 100..=50_000);
    }

    #[test]
    fn less_than_two_decades_are_refused_with_the_limit() {
        let why = |room: Room, dimension| room.range(dimension).unwrap_err().0;
        assert_eq!(
            why(Room { files: 150, ..PLENTY }, Dimension::Vms),
            "this process may open 150 more files (RLIMIT_NOFILE), and 100 VMs need 200"
        );
        assert_eq!(
            why(Room { memory: 10 << 20, ..PLENTY }, Dimension::Vcpus),
            "half of the memory that is available is 10 MiB, and 100 vCPUs need 25 MiB"
        );
    }
}
