//! The rules, and where they stand.

use std::fmt;

/// A rule that a trace can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// An entry that is present becomes another that takes break-before-make, without an absent one between, or before
    /// the invalidation in between is complete.
    BreakBeforeMake,
    /// A table's frame is free, and a CPU is in a guest that may still walk it.
    TableFreed,
    /// A frame that a guest had is free, and a CPU is in a guest that may still use it.
    FrameFreed,
    /// A guest used what had been taken away, after the invalidation was complete.
    StaleAccess,
    /// A root is entered under a VMID under which TLBs may have another's translations.
    VmidReused,
    /// A root is entered under a VMID that belongs to none, or one is given away that a guest is running under.
    VmidNotTaken,
    /// An entry was written, and no barrier ordered it before the walks that rely on it: before this CPU's guest, or
    /// before the invalidation, this CPU's or another's.
    NoBarrier,
    /// A frame is mapped that was not cleaned to memory since it was given out, though guests go past the caches.
    NotCleaned,
    /// An entry of a table that is free was written, or the table filled.
    WriteAfterFree,
    /// A root's tables are free, or it is gone, and a CPU is in its guest, or enters it.
    RootGone,
    /// One table, in two places of the trees.
    TableTwice,
    /// A frame that is free is mapped, linked as a table, or used by a guest.
    FreeFrame,
    /// A frame is given out that is given out already.
    GivenTwice,
    /// A guest is given a frame that is a table, or uses one, or a frame that a guest has becomes one, or is written as one.
    TableMapped,
    /// A guest is said to use a TLB under a VMID under which the CPU has left the guest.
    AccessOutside,
    /// An entry was not what the last write of it had left: a write is missing. Or a table that is in a tree was filled.
    LostWrite,
}

impl Rule {
    /// All.
    pub const ALL: [Self; 16] = [
        Self::BreakBeforeMake,
        Self::TableFreed,
        Self::FrameFreed,
        Self::StaleAccess,
        Self::VmidReused,
        Self::VmidNotTaken,
        Self::NoBarrier,
        Self::NotCleaned,
        Self::WriteAfterFree,
        Self::RootGone,
        Self::TableTwice,
        Self::FreeFrame,
        Self::GivenTwice,
        Self::TableMapped,
        Self::AccessOutside,
        Self::LostWrite,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BreakBeforeMake => "break-before-make",
            Self::TableFreed => "table-freed",
            Self::FrameFreed => "frame-freed",
            Self::StaleAccess => "stale-access",
            Self::VmidReused => "vmid-reused",
            Self::VmidNotTaken => "vmid-not-taken",
            Self::NoBarrier => "no-barrier",
            Self::NotCleaned => "not-cleaned",
            Self::WriteAfterFree => "write-after-free",
            Self::RootGone => "root-gone",
            Self::TableTwice => "table-twice",
            Self::FreeFrame => "free-frame",
            Self::GivenTwice => "given-twice",
            Self::TableMapped => "table-mapped",
            Self::AccessOutside => "access-outside",
            Self::LostWrite => "lost-write",
        }
    }

    /// Where the manuals have it; of the last ones, what they follow from.
    pub const fn source(self) -> &'static str {
        match self {
            Self::BreakBeforeMake => {
                "Arm DDI 0487, D8.16 \"Using break-before-make when updating translation table entries\""
            }
            Self::TableFreed => {
                "Arm DDI 0487, D8.16 \"TLB maintenance requirements\"; Intel SDM 3C, \"Caching Translation \
                 Information\": paging-structure caches; RISC-V Privileged, \"Hypervisor Memory-Management Fence \
                 Instructions\"; AMD64 volume 2, \"TLB Control\""
            }
            Self::FrameFreed | Self::StaleAccess => {
                "Arm DDI 0487, D8.16 \"TLB maintenance requirements\" and \"Ordering and completion of TLB maintenance \
                 instructions\"; Intel SDM 3C, \"Operations that Invalidate Cached Mappings\"; RISC-V Privileged, \
                 \"Hypervisor Memory-Management Fence Instructions\"; AMD64 volume 2, \"TLB Control\""
            }
            Self::VmidReused | Self::VmidNotTaken => {
                "Arm DDI 0487, D8.16 \"VMID\"; RISC-V Privileged, hgatp; Intel SDM 3C, \"Guidelines for Use of the \
                 INVEPT Instruction\"; AMD64 volume 2, \"Address Space Identifier\""
            }
            Self::NoBarrier => {
                "Arm DDI 0487, D8.2 \"Ordering of memory accesses from translation table walks\"; RISC-V Privileged, \
                 \"Hypervisor Memory-Management Fence Instructions\""
            }
            Self::NotCleaned => {
                "Arm DDI 0487, \"Stage 2 memory region type and cacheability attributes when FWB is disabled\", and \
                 D7.5 \"Cache maintenance\""
            }
            Self::WriteAfterFree | Self::RootGone => {
                "a CPU walks what VTTBR_EL2, EPTP, hgatp or nCR3 leads to"
            }
            Self::TableTwice => "an invalidation by address names one place",
            Self::FreeFrame | Self::GivenTwice => "a frame has one owner, from `give` to `free`",
            Self::TableMapped => "a guest that writes its own table maps what it likes",
            Self::AccessOutside => "docs/trace-format.md: a guest runs from `enter` to `leave`",
            Self::LostWrite => "docs/trace-format.md: every write of an entry is in the trace",
        }
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The line of the event that broke it.
    pub line: u64,
    /// Which.
    pub rule: Rule,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, rule, what } = self;
        write!(f, "line {line}: {}: {what} ({})", rule.name(), rule.source())
    }
}
