//! How many of each there may be: by the process's limits, by KVM's, and by half of the host's memory.

use std::fs;
use std::ops::RangeInclusive;

use mayfly_kvm::Kvm;
use mayfly_record::{Limits, units};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::kernel::Failed;
use crate::pair::Dimension;
use crate::points::DECADES;

/// Files that are kept for everything else.
const OTHER_FILES: u64 = 64;

/// Devices of a bus: `NR_IOBUS_DEVS` (`include/linux/kvm_host.h`), and some that KVM has itself.
const IOEVENTFDS: u64 = 900;

/// What a process may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes of memory that may be used.
    memory: u64,
    /// Bytes of address space that may be mapped.
    space: u64,
    /// Files that may be opened.
    files: u64,
    /// Mappings that may be made.
    mappings: u64,
    vcpus: u64,
    slots: u64,
}

/// What one of them takes: bytes of kernel memory, which are no less than what was seen on any host; bytes of address space;
/// and files.
const fn cost(dimension: Dimension) -> [u64; 3] {
    match dimension {
        Dimension::Mappings => [512, 4096, 0],
        Dimension::Vms => [512 << 10, 0, 2],
        Dimension::Vcpus => [256 << 10, 64 << 10, 2],
        // They share one page.
        Dimension::Slots => [1 << 10, 0, 0],
        // With a bitmap each.
        Dimension::LoggedSlots => [8 << 10, 0, 0],
        // What KVM keeps of each page, and two bits of a dirty log.
        Dimension::SlotPages => [32, 4096, 0],
        Dimension::Ioeventfds | Dimension::Irqfds => [2 << 10, 0, 1],
        // A VM each, with a vCPU perhaps, and a stack.
        Dimension::Threads => [1 << 20, 4 << 20, 6],
        Dimension::Gpa | Dimension::Age => [0, 0, 0],
    }
}

impl Room {
    /// Of this process, which may have as many files as it may at most from now on.
    pub(super) fn make(kvm: &Kvm) -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        let files = if raised.is_ok() { maximum } else { current };
        let open = fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let mapped = fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count());
        let most = number("/proc/sys/vm/max_map_count").unwrap_or(65_530);
        let limits = Limits::gather();
        Self {
            memory: limits.available().map_or(u64::MAX, |available| available / 2),
            space: limits.space.map_or(u64::MAX, |space| space / 2),
            files: files.unwrap_or(u64::MAX).saturating_sub(open + OTHER_FILES),
            mappings: (most / 2).saturating_sub(mapped as u64),
            vcpus: kvm.most_vcpus(),
            slots: kvm.most_slots(),
        }
    }

    /// From how many on, and up to how many, there can be.
    pub(super) fn range(self, dimension: Dimension) -> Result<RangeInclusive<u64>, Failed> {
        const NONE: (u64, &str) = (u64::MAX, "");
        let (first, wanted, limit) = match dimension {
            Dimension::Mappings => (1, 30_000, (self.mappings, "half of vm.max_map_count")),
            Dimension::Vms => (1, 200, NONE),
            // One more is created.
            Dimension::Vcpus => (1, 128, (self.vcpus.saturating_sub(1), "KVM_CAP_MAX_VCPUS")),
            Dimension::Slots | Dimension::LoggedSlots => {
                (1, 4096, (self.slots.saturating_sub(2), "KVM_CAP_NR_MEMSLOTS"))
            }
            Dimension::SlotPages => (16, 1 << 18, NONE),
            Dimension::Ioeventfds => (1, IOEVENTFDS, NONE),
            Dimension::Irqfds => (1, 900, NONE),
            Dimension::Threads => (1, 128, NONE),
            // 45 bits. Where KVM has fewer, the last points fail.
            Dimension::Gpa => (1, 1 << 15, NONE),
            Dimension::Age => (100, 50_000, NONE),
        };
        let [bytes, space, files] = cost(dimension);
        let of = |left: u64, each: u64| left.checked_div(each).unwrap_or(u64::MAX);
        let limits = [
            limit,
            (of(self.memory, bytes), "half of the memory that is available"),
            (
                of(self.space, space),
                "half of the address space that is left (RLIMIT_AS, RLIMIT_DATA)",
            ),
            (of(self.files, files), "the files that are left (RLIMIT_NOFILE)"),
        ];
        let [first_limit, others @ ..] = limits;
        let (most, what) = others
            .into_iter()
            .fold(first_limit, |one, other| if other.0 < one.0 { other } else { one });
        let (needed, last) = (first * DECADES, most.min(wanted));
        if last < needed {
            let (most, needed) = (units::things(last, dimension.one()), units::grouped(needed));
            return Err(Failed(format!(
                "there may be {most} at most, by {what}, and a law needs {needed}"
            )));
        }
        Ok(first..=last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: Room = Room {
        memory: 1 << 40,
        space: u64::MAX,
        files: 1 << 20,
        mappings: 1 << 20,
        vcpus: 1024,
        slots: 32_764,
    };

    fn range(room: Room, dimension: Dimension) -> RangeInclusive<u64> {
        room.range(dimension).unwrap()
    }

    #[test]
    fn the_narrowest_limit_is_the_end_of_a_range() {
        assert_eq!(range(PLENTY, Dimension::Mappings), 1..=30_000);
        assert_eq!(range(Room { mappings: 7000, ..PLENTY }, Dimension::Mappings), 1..=7000);
        assert_eq!(range(Room { vcpus: 110, ..PLENTY }, Dimension::Vcpus), 1..=109);
        assert_eq!(range(Room { files: 300, ..PLENTY }, Dimension::Irqfds), 1..=300);
        assert_eq!(range(Room { space: 40 << 20, ..PLENTY }, Dimension::SlotPages), 16..=10_240);
        let small = Room { memory: 60 << 20, ..PLENTY };
        assert_eq!(range(small, Dimension::Vms), 1..=120);
        assert_eq!(range(small, Dimension::Age), 100..=50_000);
        assert_eq!(range(small, Dimension::Gpa), 1..=32_768);
        assert_eq!(range(PLENTY, Dimension::Threads), 1..=128);
        assert_eq!(range(Room { slots: 300, ..PLENTY }, Dimension::LoggedSlots), 1..=298);
    }

    #[test]
    fn less_than_two_decades_are_refused_with_the_limit() {
        let why = |room: Room, dimension| room.range(dimension).unwrap_err().0;
        let small = Room { memory: 60 << 20, ..PLENTY };
        assert_eq!(
            why(Room { files: 150, ..PLENTY }, Dimension::Vms),
            "there may be 75 other VMs at most, by the files that are left (RLIMIT_NOFILE), and a law needs 100"
        );
        assert_eq!(
            why(Room { memory: 10 << 20, ..PLENTY }, Dimension::Vcpus),
            "there may be 40 vCPUs at most, by half of the memory that is available, and a law needs 100"
        );
        assert_eq!(
            why(small, Dimension::Threads),
            "there may be 60 threads at most, by half of the memory that is available, and a law needs 100"
        );
        assert_eq!(
            why(Room { mappings: 60, ..PLENTY }, Dimension::Mappings),
            "there may be 60 mappings at most, by half of vm.max_map_count, and a law needs 100"
        );
    }
}
