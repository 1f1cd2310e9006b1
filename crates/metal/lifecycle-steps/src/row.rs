//! What is measured.

use crate::times;

/// What VMs go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// They are made, used and ended.
    Lives,
    /// A dirty log is started, harvested and stopped.
    DirtyLog,
    /// They are forks of one that was frozen.
    Fork,
}

impl Course {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Lives, Self::DirtyLog, Self::Fork];

    /// The name in commands and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lives => "lives",
            Self::DirtyLog => "dirty-log",
            Self::Fork => "fork",
        }
    }

    /// How many rounds there are by default.
    pub const fn rounds(self) -> u32 {
        match self {
            Self::Lives | Self::Fork => times::ROUNDS,
            Self::DirtyLog => times::LOGGED_ROUNDS,
        }
    }

    /// The course of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|course| course.name() == name)
    }
}

/// The architecture of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// arm64, on which the counts of EL0, EL1 and EL2 are apart.
    Arm64,
    /// x86-64, on which there is one count of all.
    X86,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Arm64, Self::X86];

    /// That of the processor that this runs on.
    pub const HERE: Self = if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::X86 };

    /// The name in texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::X86 => "x86-64",
        }
    }

    /// Whether a course is counted there.
    pub const fn has(self, course: Course) -> bool {
        matches!((self, course), (Self::Arm64, _) | (Self::X86, Course::Lives))
    }
}

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
    MachineCreated "machine-created" "the rest of its machine: KVM's interrupt controllers; on Mayfly also devices, and arm64's PSCI",
    DevicesTouched "devices-touched" "the first access to each device of that machine, on Mayfly alone",
    DeviceFirst "device-first" "a device is registered, before the first memslot",
    FirstMemslot "first-memslot" "the first memslot is set",
    VcpuCreated "vcpu-created" "a vCPU is created, until it can be run",
    DeviceLater "device-later" "a device is registered, after memory and a vCPU",
    MmioUser "mmio-user" "an MMIO read that the VMM answers",
    FirstFault "first-fault" "a first write to a page of 4 KiB: its table is missing, and the host has already allocated the page",
    Cpuid "cpuid" "CPUID, for the name of the processor's maker",
    Hvc "hvc" "a hypercall for the version of PSCI",
    MmioDoorbell "mmio-doorbell" "an MMIO write to a doorbell: KVM's ioeventfd",
    MmioGic "mmio-gic" "an MMIO read of the distributor of the interrupt controller",
    MmioIoapic "mmio-ioapic" "an MMIO read of the IOAPIC",
    TimerInterrupt "timer-interrupt" "the virtual timer's interrupt, until the guest's handler has ended it",
    WfiTimer "wfi-timer" "a vCPU waits by WFI for its timer, due after 2 ms, and is woken",
    HltTimer "hlt-timer" "a vCPU waits by HLT for its timer, due after 2 ms, and is woken",
    Ipi "ipi" "an interrupt to another vCPU that waits for it on the same CPU, and one back to the sender, which waits too",
    MemslotAtOnce "memslot-at-once" "the first memslot is set at once after a device was registered",
    UnregisteredAtOnce "unregistered-at-once" "a device is unregistered at once after it was registered",
    ClosedAtOnce "closed-at-once" "a VM with a slot and no vCPU is destroyed at once after a device was registered",
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
    LogStarted4k "log-started-4k" "dirty logging of 256 MiB is switched on, mapped by 4 KiB and writable",
    LoggedFirst4k "logged-first-4k" "a guest's first write to one page in each 2 MiB of that memory, per write",
    Harvested4k "harvested-4k" "the log is harvested after that: 128 pages, and for KVM's initially-set all",
    Logged1Of4k "logged-1-4k" "a first write after a harvest, to 1 % of the pages, per write",
    Harvested1Of4k "harvested-1-4k" "the log is harvested: pages named, marks taken, pages write-protected; 1 % written",
    Logged10Of4k "logged-10-4k" "a first write after a harvest, to 10 % of the pages, per write",
    Harvested10Of4k "harvested-10-4k" "the log is harvested, 10 % of the pages written",
    Logged100Of4k "logged-100-4k" "a first write after a harvest, to every page, per write",
    Harvested100Of4k "harvested-100-4k" "the log is harvested, every page written",
    LogStopped4k "log-stopped-4k" "dirty logging is switched off",
    Unlogged4k "unlogged-4k" "a first write after that, to every page, per write",
    LogStarted2m "log-started-2m" "as log-started-4k, mapped by 2 MiB",
    LoggedFirst2m "logged-first-2m" "the first write to a block since the start, per write",
    Harvested2m "harvested-2m" "as harvested-4k, the memory in blocks of 2 MiB before the start",
    Logged1Of2m "logged-1-2m" "as logged-1-4k, in blocks that were written before",
    Harvested1Of2m "harvested-1-2m" "as harvested-1-4k, in such blocks",
    Logged10Of2m "logged-10-2m" "as logged-10-4k, in such blocks",
    Harvested10Of2m "harvested-10-2m" "as harvested-10-4k, in such blocks",
    Logged100Of2m "logged-100-2m" "as logged-100-4k, in such blocks",
    Harvested100Of2m "harvested-100-2m" "as harvested-100-4k, in such blocks",
    LogStopped2m "log-stopped-2m" "dirty logging is switched off; Mayfly also puts the blocks together again",
    Unlogged2m "unlogged-2m" "a first write after that to each block, which KVM puts together then, per write",
    ForkFrozen "fork-frozen" "the guest that forks begin from is frozen: its VM ends, and what it was is kept",
    ForkRanFirst "fork-ran-first" "as fork-ran, the first fork of the frozen guest",
    ForkMade "fork-made" "a fork is made: memory, VM, slot, interrupt controller, and a vCPU with its registers",
    ForkRegisters "fork-registers" "of that, the registers of the vCPU alone",
    ForkRan "fork-ran" "a fork is made, and its guest has retired its first instructions: their faults are included",
    ForkAnswered50 "fork-answered-50" "a fork is made, and its guest has answered a request: it writes to 50 pages",
    ForkAnswered500 "fork-answered-500" "as fork-answered-50, 500 pages",
    ForkAnswered5000 "fork-answered-5000" "as fork-answered-50, 5,000 pages",
    ForkWrote50 "fork-wrote-50" "the request alone, of a fork that has run before: its guest writes to 50 pages",
    ForkWrote500 "fork-wrote-500" "as fork-wrote-50, 500 pages",
    ForkWrote5000 "fork-wrote-5000" "as fork-wrote-50, 5,000 pages",
    ForkReset50 "fork-reset-50" "a fork that has answered goes back to what it began as: 50 pages are written, and registers",
    ForkReset500 "fork-reset-500" "as fork-reset-50, 500 pages",
    ForkReset5000 "fork-reset-5000" "as fork-reset-50, 5,000 pages",
    ForkAgain50 "fork-again-50" "the same request after that, until its guest has answered: it writes to 50 pages",
    ForkAgain500 "fork-again-500" "as fork-again-50, 500 pages",
    ForkAgain5000 "fork-again-5000" "as fork-again-50, 5,000 pages",
    ForkEnded "fork-ended" "a fork that has run is destroyed, with its memory",
    ForkEnded50 "fork-ended-50" "the same, of a fork that has written to 50 pages",
    ForkEnded500 "fork-ended-500" "as fork-ended-50, 500 pages",
    ForkEnded5000 "fork-ended-5000" "as fork-ended-50, 5,000 pages",
}

impl Row {
    /// The row of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|row| row.name() == name)
    }

    /// Those of a course on an architecture.
    pub fn of(course: Course, architecture: Architecture) -> impl Iterator<Item = Self> + Clone {
        let rows = Self::ALL.iter().copied();
        rows.filter(move |row| row.is_of(course) && row.is_on(architecture))
    }

    /// Whether there is such a step on an architecture.
    pub const fn is_on(self, architecture: Architecture) -> bool {
        match self {
            Self::Hvc
            | Self::MmioGic
            | Self::WfiTimer
            | Self::Faults4kUncached
            | Self::Faults2mUncached
            | Self::Deleted4kUncached
            | Self::Deleted2mUncached
            | Self::CachesOn => matches!(architecture, Architecture::Arm64),
            Self::Cpuid
            | Self::MmioIoapic
            | Self::HltTimer
            | Self::MemslotAtOnce
            | Self::UnregisteredAtOnce
            | Self::ClosedAtOnce => matches!(architecture, Architecture::X86),
            _ => true,
        }
    }

    /// Whether a course has such a step. Each measures what is subtracted from the others.
    pub fn is_of(self, course: Course) -> bool {
        match self {
            Self::Nothing | Self::MmioUser => true,
            _ if self < Self::LogStarted4k => course == Course::Lives,
            _ if self < Self::ForkFrozen => course == Course::DirtyLog,
            _ => course == Course::Fork,
        }
    }

    /// Whether there is such a step on Mayfly alone: KVM leaves devices to its VMM.
    pub const fn is_of_mayfly_alone(self) -> bool {
        matches!(self, Self::DevicesTouched)
    }

    /// Whether each sample has, beside what it is of, one read by which the guest asks ([`Row::MmioUser`]); how many.
    pub const fn asks(self) -> u64 {
        match self {
            Self::FirstFault
            | Self::Cpuid
            | Self::Hvc
            | Self::MmioDoorbell
            | Self::MmioGic
            | Self::MmioIoapic
            | Self::TimerInterrupt
            | Self::HltTimer
            | Self::WfiTimer
            | Self::Ipi
            | Self::Faults4k
            | Self::Faults2m
            | Self::Faults4kUncached
            | Self::Faults2mUncached
            | Self::LoggedFirst4k
            | Self::Logged1Of4k
            | Self::Logged10Of4k
            | Self::Logged100Of4k
            | Self::Unlogged4k
            | Self::LoggedFirst2m
            | Self::Logged1Of2m
            | Self::Logged10Of2m
            | Self::Logged100Of2m
            | Self::Unlogged2m
            | Self::ForkRanFirst
            | Self::ForkRan
            | Self::ForkWrote50
            | Self::ForkWrote500
            | Self::ForkWrote5000 => 1,
            Self::ForkAnswered50
            | Self::ForkAnswered500
            | Self::ForkAnswered5000
            | Self::ForkAgain50
            | Self::ForkAgain500
            | Self::ForkAgain5000 => 2,
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

    #[test]
    fn a_step_is_of_one_course_but_for_what_is_subtracted() {
        for &row in Row::ALL {
            let courses = Course::ALL.into_iter().filter(|course| row.is_of(*course)).count();
            let is_subtracted = matches!(row, Row::Nothing | Row::MmioUser);
            let expected = if is_subtracted { Course::ALL.len() } else { 1 };
            assert_eq!(courses, expected, "{}", row.name());
        }
        let arm64 = Architecture::Arm64;
        assert!(Row::of(Course::DirtyLog, arm64).any(|row| row == Row::Unlogged2m));
        assert!(Row::of(Course::Fork, arm64).any(|row| row == Row::ForkMade));
        assert!(Row::of(Course::Lives, arm64).any(|row| row == Row::Destroyed2m));
        assert!(Course::ALL.into_iter().all(|one| Course::named(one.name()) == Some(one)));
        assert_eq!(Course::named("life"), None);
    }

    #[test]
    fn a_step_is_on_an_architecture_at_least() {
        let [arm64, x86] = Architecture::ALL;
        for row in Row::ALL {
            assert!(row.is_on(arm64) || row.is_on(x86), "{}", row.name());
        }
        let of = |architecture| Row::of(Course::Lives, architecture);
        assert!(of(x86).any(|row| row == Row::Cpuid) && of(arm64).all(|row| row != Row::Cpuid));
        assert!(of(arm64).any(|row| row == Row::Hvc) && of(x86).all(|row| row != Row::Hvc));
        assert!(Course::ALL.into_iter().all(|course| arm64.has(course)));
    }
}
