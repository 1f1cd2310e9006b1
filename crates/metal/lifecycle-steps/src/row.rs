//! What is measured.

macro_rules! rows {
    ($($(#[$doc:meta])* $row:ident $name:literal $summary:literal,)*) => {
        /// A step of a VM's lifecycle.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Row { $(#[doc = $summary] $row,)* }

        impl Row {
            /// All of them, in the order in which they are shown.
            pub const ALL: &'static [Self] = &[$(Self::$row,)*];

            /// The name in lines and records: lower case, words joined by dashes.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$row => $name,)* }
            }

            /// What is done, in one line.
            pub const fn summary(self) -> &'static str {
                match self { $(Self::$row => $summary,)* }
            }
        }
    };
}

rows! {
    Nothing "nothing" "an empty step, and an idle machine: subtracted from the other rows",
    MemoryMade4k "memory-made-4k" "256 MiB for a guest are made, in pages of 4 KiB that lie apart",
    MemoryMade2m "memory-made-2m" "256 MiB for a guest are made, in blocks of 2 MiB",
    MemoryFreed4k "memory-freed-4k" "the pages of memory-made-4k are given back",
    MemoryFreed2m "memory-freed-2m" "the blocks of memory-made-2m are given back",
    VmCreated "vm-created" "a VM is created",
    MachineCreated "machine-created" "the rest of its machine: KVM's vGIC; on Mayfly also PSCI and devices",
    DevicesTouched "devices-touched" "the first access to each device of that machine, on Mayfly alone",
    DeviceFirst "device-first" "a device is registered, before the first memslot",
    FirstMemslot "first-memslot" "the first memslot is set",
    VcpuCreated "vcpu-created" "a vCPU is created, until it can be run",
    DeviceLater "device-later" "a device is registered, after memory and a vCPU",
    MmioUser "mmio-user" "an MMIO read that the VMM answers",
    FirstFault "first-fault" "a first write to a page of 4 KiB: its table is missing, and the host has already allocated the page",
    Hvc "hvc" "a hypercall for the version of PSCI",
    MmioDoorbell "mmio-doorbell" "an MMIO write to a doorbell: KVM's ioeventfd",
    MmioGic "mmio-gic" "an MMIO read of the distributor of the interrupt controller",
    TimerInterrupt "timer-interrupt" "the virtual timer's interrupt, until the guest's handler has ended it",
    WfiTimer "wfi-timer" "a vCPU waits by WFI for its timer, due after 2 ms, and is woken",
    Ipi "ipi" "an interrupt to another vCPU that waits by WFI on the same CPU, and one back to the sender, which waits too",
    Faults4k "faults-4k" "a first write to each page of 256 MiB, per page of 4 KiB",
    Faults2m "faults-2m" "a first write to each block of 256 MiB, per block of 2 MiB",
    Deleted4k "deleted-4k" "a slot of 256 MiB, mapped by 4 KiB, is deleted",
    Deleted2m "deleted-2m" "a slot of 256 MiB, mapped by 2 MiB, is deleted",
    Faults4kUncached "faults-4k-uncached" "as faults-4k, by a guest whose caches are off",
    Faults2mUncached "faults-2m-uncached" "as faults-2m, by a guest whose caches are off",
    Deleted4kUncached "deleted-4k-uncached" "as deleted-4k, of pages that were written with the caches off",
    Deleted2mUncached "deleted-2m-uncached" "as deleted-2m, of blocks that were written with the caches off",
    CachesOn "caches-on" "4 vCPUs turn MMU and caches on, one after the other; 64 MiB are mapped by 2 MiB",
    Destroyed "destroyed" "a VM with a few mapped pages is destroyed",
    Destroyed4k "destroyed-4k" "a VM with 256 MiB mapped by 4 KiB is destroyed",
    Destroyed2m "destroyed-2m" "a VM with 256 MiB mapped by 2 MiB is destroyed",
}

impl Row {
    /// The row of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|row| row.name() == name)
    }

    /// Whether there is such a step on Mayfly alone: KVM leaves devices to its VMM.
    pub const fn is_of_mayfly_alone(self) -> bool {
        matches!(self, Self::DevicesTouched)
    }

    /// Whether each sample has, beside what it is of, one read by which the guest asks ([`Row::MmioUser`]); how many.
    pub const fn asks(self) -> u64 {
        match self {
            Self::FirstFault
            | Self::Hvc
            | Self::MmioDoorbell
            | Self::MmioGic
            | Self::TimerInterrupt
            | Self::WfiTimer
            | Self::Ipi
            | Self::Faults4k
            | Self::Faults2m
            | Self::Faults4kUncached
            | Self::Faults2mUncached => 1,
            Self::CachesOn => crate::times::CACHED_VCPUS as u64,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_name_alone() {
        for &row in Row::ALL {
            assert_eq!(Row::named(row.name()), Some(row));
            assert!(
                row.name()
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'-' || byte.is_ascii_digit())
            );
        }
        assert_eq!(Row::named("vm-create"), None);
        assert_eq!(Row::named(""), None);
    }
}
