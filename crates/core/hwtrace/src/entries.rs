//! What entries say to hardware. This file decodes them a second time, from the manuals, so that the checker does not
//! repeat a mistake of the core.

use crate::event::Family;
use crate::parse::ENTRIES;

/// Bits of a guest frame by which an entry of a table is found.
pub(crate) const BITS: u32 = ENTRIES.trailing_zeros();

/// What an entry is to a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A fault.
    Absent,
    /// The table in this frame.
    Table(u64),
    /// A page or block.
    Leaf(Leaf),
}

/// A page or block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// Its first frame.
    pub(crate) frame: u64,
    /// Read, write, execute: 1, 2, 4.
    pub(crate) rights: u8,
    /// Memory type, cacheability and shareability, as they stand in the entry.
    pub(crate) memory: u64,
}

/// None of them is set in an absent entry, in any format.
pub(crate) const PRESENT: u64 = 0b111;

/// The right to write.
pub(crate) const WRITE: u8 = 2;

const fn bit(bits: u64, number: u32) -> bool {
    bits >> number & 1 == 1
}

/// Bits `low` to `high`, in their place.
const fn field(bits: u64, low: u32, high: u32) -> u64 {
    bits >> low << low & (u64::MAX >> (63 - high))
}

fn rights(read: bool, write: bool, execute: bool) -> u8 {
    u8::from(read) | u8::from(write) << 1 | u8::from(execute) << 2
}

/// The first frame of a block of `level` that has `frame`: the bits below its size are no part of its address.
const fn aligned(frame: u64, level: u32) -> u64 {
    frame >> (level * BITS) << (level * BITS)
}

impl Family {
    /// What `bits` are in a table of `level`, 0 being that of pages.
    pub(crate) fn kind(self, level: u32, bits: u64) -> Kind {
        match self {
            // DDI 0487, "VMSAv8-64 translation table format descriptors", stage 2, 4 KiB granule.
            Self::Arm | Self::ArmFwb => {
                let frame = field(bits, 12, 47) >> 12;
                match (bit(bits, 0), bit(bits, 1)) {
                    (false, _) => Kind::Absent,
                    (true, true) if level > 0 => Kind::Table(frame),
                    (true, false) if level == 0 => Kind::Absent,
                    _ => Kind::Leaf(Leaf {
                        frame: aligned(frame, level),
                        rights: rights(bit(bits, 6), bit(bits, 7), !bit(bits, 54)),
                        memory: field(bits, 2, 5) | field(bits, 8, 9),
                    }),
                }
            }
            // SDM 3C, "EPT Translation Mechanism", tables "Format of an EPT Page-Table Entry" and its kin.
            Self::Ept => {
                let frame = field(bits, 12, 51) >> 12;
                let rights = (bits & 7) as u8;
                if rights == 0 {
                    Kind::Absent
                } else if level > 0 && !bit(bits, 7) {
                    Kind::Table(frame)
                } else {
                    Kind::Leaf(Leaf {
                        frame: aligned(frame, level),
                        rights,
                        memory: field(bits, 3, 6),
                    })
                }
            }
            // AMD64 volume 2, "Nested Paging": long-mode entries, 5.3.
            Self::Npt => {
                let frame = field(bits, 12, 51) >> 12;
                if !bit(bits, 0) {
                    Kind::Absent
                } else if level > 0 && !bit(bits, 7) {
                    Kind::Table(frame)
                } else {
                    let rights = rights(true, bit(bits, 1), !bit(bits, 63));
                    Kind::Leaf(Leaf {
                        frame: aligned(frame, level),
                        rights,
                        memory: field(bits, 3, 4),
                    })
                }
            }
            // Privileged Architecture, "Sv32x4, Sv39x4, Sv48x4".
            Self::RiscV => {
                let frame = field(bits, 10, 53) >> 10;
                if !bit(bits, 0) {
                    Kind::Absent
                } else if bits & 0xe == 0 {
                    Kind::Table(frame)
                } else {
                    let rights = rights(bit(bits, 1), bit(bits, 2), bit(bits, 3));
                    Kind::Leaf(Leaf {
                        frame: aligned(frame, level),
                        rights,
                        memory: field(bits, 61, 62),
                    })
                }
            }
        }
    }

    /// The bits that hardware writes by itself, and software may at any time: accessed and dirty.
    pub(crate) fn marks(self) -> u64 {
        match self {
            Self::Arm | Self::ArmFwb => 1 << 10,
            Self::Ept => 3 << 8,
            Self::Npt => 3 << 5,
            Self::RiscV => 3 << 6,
        }
    }

    /// Whether there are entries that must not become another but by way of an absent one.
    pub(crate) fn breaks(self) -> bool {
        matches!(self, Self::Arm | Self::ArmFwb)
    }

    /// Whether `old` must not become `new`, both present, but by way of an absent entry that every TLB has been told
    /// of. On Arm alone. Two that no party may write are taken to hold the same bytes, since a trace does not say.
    pub(crate) fn requires_break(self, level: u32, old: u64, new: u64) -> bool {
        if !self.breaks() {
            return false;
        }
        match (self.kind(level, old), self.kind(level, new)) {
            (Kind::Absent, _) | (_, Kind::Absent) => false,
            (Kind::Leaf(from), Kind::Leaf(to)) => {
                let writable = (from.rights | to.rights) & WRITE != 0;
                from.memory != to.memory || from.frame != to.frame && writable
            }
            (from, to) => from != to,
        }
    }

    /// Whether something that `old` allows `new` does not.
    pub(crate) fn takes_away(self, level: u32, old: u64, new: u64) -> bool {
        match (self.kind(level, old), self.kind(level, new)) {
            (Kind::Absent, _) => false,
            (Kind::Leaf(from), Kind::Leaf(to)) => {
                from.frame != to.frame || from.memory != to.memory || from.rights & !to.rights != 0
            }
            (from, to) => from != to,
        }
    }

    /// Whether walks may go on seeing what was there until a barrier of the writer's: not on x86, where a locked write
    /// is seen by all at once.
    pub(crate) fn sees_late(self) -> bool {
        !matches!(self, Self::Ept | Self::Npt)
    }

    /// Whether data have to be cleaned to memory before a guest that goes past the caches finds them.
    pub(crate) fn goes_past_caches(self) -> bool {
        self == Self::Arm
    }
}
