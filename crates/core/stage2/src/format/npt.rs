//! AMD's nested page tables: AMD64 Architecture Programmer's Manual, volume 2, sections "Nested Paging" and "Long-Mode
//! Page Translation". They are the tables that the host's own addresses go through, in long mode.

use mayfly_platform::address::{PAGE_SHIFT, Pfn};

use super::{Format, Kind, frame, framed, when};
use crate::{Entry, Leaf, Level, MemoryType, Permissions};

/// AMD nested page tables: four levels, with accessed and dirty bits; the host has set EFER.NXE.
///
/// A present leaf is readable. Every nested access counts as a user's, so U/S is set throughout. Memory types are
/// entries 0, 2, and 3 of the host's page attribute table, which are write-back, UC-, and UC at reset, and as Linux
/// sets them. The guest's types are combined with the host's; write combining, where the guest asks for it, prevails
/// even where the leaf says device.
#[derive(Clone, Copy, Debug)]
pub struct Npt;

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// With PCD below, and PAT (in bit 7 or 12, by the leaf's size), which stays clear: an index into the host's page
/// attribute table.
const WRITE_THROUGH: u64 = 1 << 3;
const CACHE_DISABLE: u64 = 1 << 4;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
/// A leaf, above the lowest level, where the bit is PAT.
const PAGE_SIZE: u64 = 1 << 7;
/// The first of bits 58:52, which are available to software.
const WRITTEN: u64 = 1 << 52;
const NO_EXECUTE: u64 = 1 << 63;

/// Entry 0.
const WRITE_BACK: u64 = 0;
/// Entry 2.
const UNCACHED_MINUS: u64 = CACHE_DISABLE;
/// Entry 3.
const UNCACHEABLE: u64 = CACHE_DISABLE | WRITE_THROUGH;

// SAFETY: as the manual says, in the sections named above.
unsafe impl Format for Npt {
    const NAME: &'static str = "NPT";
    const TOP: Level = Level::GIB512;
    const ROOT_ORDER: u32 = 0;
    const LARGEST_BLOCK: Level = Level::GIB1;
    const PFN_BITS: u32 = 40;
    const SETS_ACCESSED: bool = true;
    const SETS_DIRTY: bool = true;
    /// Caches are kept coherent with memory by hardware, which probes them for accesses of every memory type (volume 2,
    /// "Memory Coherency and Protocol").
    const COHERENT: bool = true;
    /// A page fault, and so a nested one, drops what it was caused by (volume 2, "Translation-Lookaside Buffer").
    const KEEPS_FAULTING: bool = false;

    #[inline]
    fn encode_leaf(level: Level, leaf: &Leaf) -> u64 {
        let memory = match leaf.memory {
            MemoryType::WriteBack => WRITE_BACK,
            MemoryType::Uncached => UNCACHED_MINUS,
            MemoryType::Device => UNCACHEABLE,
        };
        frame::<Self>(leaf.pfn) << PAGE_SHIFT
            | PRESENT
            | USER
            | when(leaf.permissions.contains(Permissions::WRITE), WRITABLE)
            | when(!leaf.permissions.contains(Permissions::EXECUTE), NO_EXECUTE)
            | memory
            | when(level > Level::PAGE, PAGE_SIZE)
            | when(leaf.accessed, ACCESSED)
            | when(leaf.dirty, DIRTY)
            | when(leaf.written, WRITTEN)
    }

    #[inline]
    fn decode_leaf(_: Level, bits: u64) -> Leaf {
        let mut permissions = Permissions::READ;
        permissions.set(Permissions::WRITE, bits & WRITABLE != 0);
        permissions.set(Permissions::EXECUTE, bits & NO_EXECUTE == 0);
        let memory = match bits & (CACHE_DISABLE | WRITE_THROUGH) {
            WRITE_BACK => MemoryType::WriteBack,
            UNCACHED_MINUS => MemoryType::Uncached,
            _ => MemoryType::Device,
        };
        Leaf {
            pfn: framed::<Self>(bits >> PAGE_SHIFT),
            permissions,
            memory,
            accessed: bits & ACCESSED != 0,
            dirty: bits & DIRTY != 0,
            written: bits & WRITTEN != 0,
        }
    }

    #[inline]
    fn without_write(_: Level, bits: u64) -> Option<u64> {
        (bits & WRITABLE != 0).then_some(bits & !WRITABLE)
    }

    /// Accessed from the start, as in EPT: hardware sets the bit of tables too.
    #[inline]
    fn encode_table(pfn: Pfn) -> u64 {
        frame::<Self>(pfn) << PAGE_SHIFT | PRESENT | WRITABLE | USER | ACCESSED
    }

    #[inline]
    fn kind(level: Level, bits: u64) -> Kind {
        if level == Level::PAGE || bits & PAGE_SIZE != 0 {
            Kind::Leaf
        } else {
            Kind::Table(Pfn::new(bits >> PAGE_SHIFT))
        }
    }

    /// Never: volume 2, "Translation-Lookaside Buffer", has the TLB invalidated after a change, and asks for no absent
    /// entry before it.
    #[inline]
    fn requires_break_before_make(_: Level, _: Entry<Self>, _: Entry<Self>, _: bool) -> bool {
        false
    }
}
