//! Intel's extended page tables: Software Developer's Manual, volume 3C, sections "EPT Translation Mechanism" and
//! "Accessed and Dirty Flags for EPT".

use mayfly_platform::address::{PAGE_SHIFT, Pfn};

use super::{Format, Kind, frame, framed, when};
use crate::{Entry, Leaf, Level, MemoryType, Permissions};

/// Intel EPT: four levels, with accessed and dirty flags (bit 6 of the EPT pointer set).
///
/// A leaf is always readable: a writable entry that is not is a misconfiguration, and an executable one that is not
/// takes a capability that not every processor has. The guest's PAT applies (bit 6 clear), so that a guest may ask for
/// less caching than the leaf allows, and for write combining where the leaf says device.
#[derive(Clone, Copy, Debug)]
pub struct Ept;

const READ: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const EXECUTE: u64 = 1 << 2;

/// The EPT memory type, in leaves; its values are the ones that MTRRs have.
const MEMORY_TYPE_SHIFT: u32 = 3;
const UNCACHEABLE: u64 = 0;
const WRITE_COMBINING: u64 = 1;
const WRITE_BACK: u64 = 6;

/// A leaf, above the lowest level, where the bit is ignored.
const PAGE_SIZE: u64 = 1 << 7;
const ACCESSED: u64 = 1 << 8;
const DIRTY: u64 = 1 << 9;
/// The first of bits 56:52, which are ignored.
const WRITTEN: u64 = 1 << 52;

// SAFETY: as the manual says, in the sections named above.
unsafe impl Format for Ept {
    const NAME: &'static str = "EPT";
    const TOP: Level = Level::GIB512;
    const ROOT_ORDER: u32 = 0;
    const LARGEST_BLOCK: Level = Level::GIB1;
    const PFN_BITS: u32 = 40;
    const SETS_ACCESSED: bool = true;
    const SETS_DIRTY: bool = true;
    /// Processors snoop each other's caches for accesses of every memory type (SDM volume 3A, "Caching Terminology"),
    /// and their own, where they have self-snooping (`CPUID.01H:EDX[27]`, volume 2A).
    const COHERENT: bool = true;
    /// An EPT violation drops what it was caused by (volume 3C, "Operations that Invalidate Cached Mappings").
    const KEEPS_FAULTING: bool = false;

    #[inline]
    fn encode_leaf(level: Level, leaf: &Leaf) -> u64 {
        let memory = match leaf.memory {
            MemoryType::WriteBack => WRITE_BACK,
            MemoryType::Uncached => WRITE_COMBINING,
            MemoryType::Device => UNCACHEABLE,
        };
        frame::<Self>(leaf.pfn) << PAGE_SHIFT
            | READ
            | when(leaf.permissions.contains(Permissions::WRITE), WRITE)
            | when(leaf.permissions.contains(Permissions::EXECUTE), EXECUTE)
            | memory << MEMORY_TYPE_SHIFT
            | when(level > Level::PAGE, PAGE_SIZE)
            | when(leaf.accessed, ACCESSED)
            | when(leaf.dirty, DIRTY)
            | when(leaf.written, WRITTEN)
    }

    #[inline]
    fn decode_leaf(_: Level, bits: u64) -> Leaf {
        let mut permissions = Permissions::READ;
        permissions.set(Permissions::WRITE, bits & WRITE != 0);
        permissions.set(Permissions::EXECUTE, bits & EXECUTE != 0);
        let memory = match bits >> MEMORY_TYPE_SHIFT & 7 {
            WRITE_BACK => MemoryType::WriteBack,
            WRITE_COMBINING => MemoryType::Uncached,
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
        (bits & WRITE != 0).then_some(bits & !WRITE)
    }

    /// Accessed from the start: hardware sets the flag of tables too, and an entry that it writes is one that a
    /// compare-exchange may find changed.
    #[inline]
    fn encode_table(pfn: Pfn) -> u64 {
        frame::<Self>(pfn) << PAGE_SHIFT | READ | WRITE | EXECUTE | ACCESSED
    }

    #[inline]
    fn kind(level: Level, bits: u64) -> Kind {
        if level == Level::PAGE || bits & PAGE_SIZE != 0 {
            Kind::Leaf
        } else {
            Kind::Table(Pfn::new(bits >> PAGE_SHIFT))
        }
    }

    /// Never: until the invalidation, an access uses the old translation or the new one (volume 3A, "Details of TLB
    /// Use", says so of page sizes; volume 3C, "Guidelines for Use of the INVEPT Instruction", asks for an
    /// invalidation after a change, and for nothing before it).
    #[inline]
    fn requires_break_before_make(_: Level, _: Entry<Self>, _: Entry<Self>, _: bool) -> bool {
        false
    }
}
