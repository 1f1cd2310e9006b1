//! RISC-V's G-stage: Privileged Architecture, chapter on the hypervisor extension, section "Guest Physical Address
//! Translation"; the entries are those of Sv39 and Sv48 in the supervisor's chapter, and memory types those of
//! Svpbmt.

use mayfly_platform::address::Pfn;

use super::{Format, Kind, frame, framed, when};
use crate::{Entry, Leaf, Level, MemoryType, Permissions};

/// RISC-V's G-stage for 64 bits: the paging of addresses of 39 or 48 bits (any other number does not compile), with a
/// root of four tables for two bits more.
///
/// `menvcfg` has PBMTE set, if any leaf is to be other than write-back (Svpbmt). It has ADUE clear: an access to a leaf
/// that is not accessed faults (Svade), and dirty is not kept; as a store to a leaf whose D is clear would fault too,
/// every writable leaf has D set. Every G-stage access counts as a user's, so leaves have U set. A leaf is readable, as
/// writable without readable is reserved. A guest that has Svpbmt itself replaces a leaf's memory type by its own,
/// where that is not the default.
#[derive(Clone, Copy, Debug)]
pub struct SvX4<const VA_BITS: u32>;

/// Three levels, guest physical addresses of 41 bits.
pub type Sv39x4 = SvX4<39>;

/// Four levels, guest physical addresses of 50 bits.
pub type Sv48x4 = SvX4<48>;

const VALID: u64 = 1 << 0;
/// A table has none of the three.
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;
const USER: u64 = 1 << 4;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
/// The first of the two bits of RSW, which are software's.
const WRITTEN: u64 = 1 << 8;
const PPN_SHIFT: u32 = 10;

/// The page-based memory type; none is what the platform says of the address, which is write-back for memory.
const MEMORY_TYPE: u64 = 3 << 61;
const DEFAULT: u64 = 0 << 61;
const NON_CACHEABLE: u64 = 1 << 61;
const IO: u64 = 2 << 61;

// SAFETY: as the manual says, in the sections named above.
unsafe impl<const VA_BITS: u32> Format for SvX4<VA_BITS> {
    const NAME: &'static str = match VA_BITS {
        39 => "Sv39x4",
        48 => "Sv48x4",
        _ => panic!("addresses have 39 or 48 bits before they are widened by two"),
    };
    const TOP: Level = match VA_BITS {
        39 => Level::GIB1,
        48 => Level::GIB512,
        _ => panic!("addresses have 39 or 48 bits before they are widened by two"),
    };
    const ROOT_ORDER: u32 = 2;
    const LARGEST_BLOCK: Level = Level::GIB1;
    const PFN_BITS: u32 = 44;
    const SETS_ACCESSED: bool = false;
    const SETS_DIRTY: bool = false;
    /// A guest that has Svpbmt may have memory uncached.
    const COHERENT: bool = false;
    /// Svvptc, which has entries that become valid seen by themselves, is not assumed.
    const KEEPS_ABSENT: bool = true;

    #[inline]
    fn encode_leaf(_: Level, leaf: &Leaf) -> u64 {
        let memory = match leaf.memory {
            MemoryType::WriteBack => DEFAULT,
            MemoryType::Uncached => NON_CACHEABLE,
            MemoryType::Device => IO,
        };
        frame::<Self>(leaf.pfn) << PPN_SHIFT
            | VALID
            | READ
            | when(leaf.permissions.contains(Permissions::WRITE), WRITE | DIRTY)
            | when(leaf.permissions.contains(Permissions::EXECUTE), EXECUTE)
            | USER
            | when(leaf.accessed, ACCESSED)
            | when(leaf.written, WRITTEN)
            | memory
    }

    #[inline]
    fn decode_leaf(_: Level, bits: u64) -> Leaf {
        let mut permissions = Permissions::READ;
        permissions.set(Permissions::WRITE, bits & WRITE != 0);
        permissions.set(Permissions::EXECUTE, bits & EXECUTE != 0);
        let memory = match bits & MEMORY_TYPE {
            DEFAULT => MemoryType::WriteBack,
            NON_CACHEABLE => MemoryType::Uncached,
            _ => MemoryType::Device,
        };
        Leaf {
            pfn: framed::<Self>(bits >> PPN_SHIFT),
            permissions,
            memory,
            accessed: bits & ACCESSED != 0,
            dirty: false,
            written: bits & WRITTEN != 0,
        }
    }

    #[inline]
    fn without_write(_: Level, bits: u64) -> Option<u64> {
        (bits & WRITE != 0).then_some(bits & !(WRITE | DIRTY))
    }

    /// A, D and U stay clear: they are reserved in a table's entry.
    #[inline]
    fn encode_table(pfn: Pfn) -> u64 {
        frame::<Self>(pfn) << PPN_SHIFT | VALID
    }

    #[inline]
    fn kind(_: Level, bits: u64) -> Kind {
        if bits & (READ | WRITE | EXECUTE) != 0 {
            Kind::Leaf
        } else {
            Kind::Table(Pfn::new(bits >> PPN_SHIFT))
        }
    }

    /// Never. Entries of an address-translation cache may coexist for one address, as where "a page is upgraded to a
    /// superpage without first clearing the original non-leaf PTE's valid bit": until the fence, it is unpredictable
    /// which is used, "but the behavior is otherwise well defined" ("Virtual Address Translation Process"; the G-stage
    /// takes over that algorithm, and its fence is HFENCE.GVMA).
    #[inline]
    fn requires_break_before_make(_: Level, _: Entry<Self>, _: Entry<Self>, _: bool) -> bool {
        false
    }
}
