//! Arm's stage 2, VMSAv8-64 with the 4 KiB granule: Architecture Reference Manual for A-profile (DDI 0487), chapter
//! "The `AArch64` Virtual Memory System Architecture", sections "Translation table descriptor formats", "Memory access
//! control" and "Memory region attributes" for stage 2, "Concatenated translation tables".

use mayfly_platform::address::{PAGE_SHIFT, Pfn};

use super::{Format, Kind, frame, framed, when};
use crate::{Entry, Leaf, Level, MemoryType, Permissions};

mod choice;
mod features;
mod registers;
mod unsupported;

pub use choice::{ArmChoice, ArmIpa, WithArm};
pub use features::ArmFeatures;
pub use unsupported::ArmUnsupported;

/// Arm VMSAv8-64 stage 2 with the 4 KiB granule, and guest physical addresses of 32 to 48 bits (any other number does
/// not compile). Up to 43 bits a walk begins at the architecture's level 1, with 2 to 16 concatenated tables above 39
/// bits; from 44 bits on at its level 0, with one.
///
/// `VTCR_EL2` has HA and HD clear, so that accessed is software's to set, and dirty is not kept. `HCR_EL2.FB` is set,
/// so that a vCPU may move between CPUs ([`Format::GUEST_REACHES_ALL`]). `HCR_EL2.FWB` is as `FWB` says. Where it is
/// clear, memory attributes have the encoding that every version knows, and the guest's may ask for less; where it is
/// set ([`ArmFwb`]), what is write-back here is write-back for the guest. XN is the one bit that every version has, for
/// EL1 and EL0 alike. The contiguous hint is not used, nor are output addresses of 52 bits (`FEAT_LPA2`).
///
/// [`Arm::vtcr`] has what a CPU has to be told, or why it cannot be; [`ArmFeatures::choose`] makes the choice among
/// formats when the program runs.
#[derive(Clone, Copy, Debug)]
pub struct Arm<const IPA_BITS: u32, const FWB: bool = false>;

/// [`Arm`] with `HCR_EL2.FWB` set (`FEAT_S2FWB`): no access of a guest to write-back memory goes past the caches,
/// whatever its stage 1 says.
pub type ArmFwb<const IPA_BITS: u32> = Arm<IPA_BITS, true>;

/// What a walk from the architecture's level 1 translates by one table.
const LEVEL_1_BITS: u32 = 39;
/// The largest that begins at level 1: 16 tables, as many as can be concatenated.
const LEVEL_1_BITS_MAX: u32 = LEVEL_1_BITS + 4;

const VALID: u64 = 1 << 0;
/// A table above the lowest level, and a page there; a block has it clear.
const TABLE_OR_PAGE: u64 = 1 << 1;

/// `MemAttr[3:0]`: outer, then inner, where FWB is clear.
const MEMORY_ATTRIBUTES: u64 = 0xf << 2;
const NORMAL_WRITE_BACK: u64 = 0b1111 << 2;
/// Where FWB is set, whatever stage 1 says.
const FORCED_WRITE_BACK: u64 = 0b0110 << 2;
/// With FWB or without: normal memory that is not cacheable, unless stage 1 says device.
const NORMAL_NON_CACHEABLE: u64 = 0b0101 << 2;
/// With FWB or without.
const DEVICE_NGNRE: u64 = 0b0001 << 2;

/// `S2AP[0]`.
const READ: u64 = 1 << 6;
/// `S2AP[1]`.
const WRITE: u64 = 1 << 7;

const SHAREABILITY: u64 = 3 << 8;
/// The domain of all processors of a system. What is not cacheable is outer shareable, whatever the field says.
const INNER_SHAREABLE: u64 = 3 << 8;

const ACCESS_FLAG: u64 = 1 << 10;
/// The first of bits 58:55, which are reserved for software.
const WRITTEN: u64 = 1 << 55;
/// `XN[1]`; `XN[0]`, bit 53, means something only with `FEAT_XNX`, and for EL0 and EL1 alike when it is clear.
const EXECUTE_NEVER: u64 = 1 << 54;

/// Names of formats of these sizes.
macro_rules! names {
    ($($bits:literal)*) => {
        const fn name(ipa_bits: u32, fwb: bool) -> &'static str {
            match (ipa_bits, fwb) {
                $(
                    ($bits, false) => concat!("VMSAv8-64 stage 2, ", $bits, " bits"),
                    ($bits, true) => concat!("VMSAv8-64 stage 2 with FWB, ", $bits, " bits"),
                )*
                _ => panic!("guest physical addresses have 32 to 48 bits"),
            }
        }
    };
}

names!(32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48);

impl<const IPA_BITS: u32, const FWB: bool> Arm<IPA_BITS, FWB> {
    const WRITE_BACK: u64 = if FWB { FORCED_WRITE_BACK } else { NORMAL_WRITE_BACK };
}

// SAFETY: as the manual says, in the sections named above; up to 16 concatenated tables of level 1 translate the bits,
// or one of level 0.
unsafe impl<const IPA_BITS: u32, const FWB: bool> Format for Arm<IPA_BITS, FWB> {
    const NAME: &'static str = name(IPA_BITS, FWB);
    const TOP: Level = match IPA_BITS {
        32..=LEVEL_1_BITS_MAX => Level::GIB1,
        44..=48 => Level::GIB512,
        _ => panic!("guest physical addresses have 32 to 48 bits"),
    };
    const ROOT_ORDER: u32 = if IPA_BITS > LEVEL_1_BITS && IPA_BITS <= LEVEL_1_BITS_MAX {
        IPA_BITS - LEVEL_1_BITS
    } else {
        0
    };
    const IPA_BITS: u32 = IPA_BITS;
    const LARGEST_BLOCK: Level = Level::GIB1;
    const PFN_BITS: u32 = 36;
    const SETS_ACCESSED: bool = false;
    const SETS_DIRTY: bool = false;
    /// "Stage 2 memory region type and cacheability attributes when FWB is enabled": write-back whatever stage 1 says,
    /// its MMU being off included. With FWB a processor has `FEAT_IDC` in effect: Linux relies on it too
    /// (`__clean_dcache_guest_page`, `arch/arm64/include/asm/kvm_mmu.h`).
    const COHERENT: bool = FWB;
    /// `HCR_EL2.FB` makes them so, for TLBs and instruction caches.
    const GUEST_REACHES_ALL: bool = true;

    #[expect(clippy::inline_always, reason = "calls were a third of what a fault comes to")]
    #[inline(always)]
    fn encode_leaf(level: Level, leaf: &Leaf) -> u64 {
        let memory = match leaf.memory {
            MemoryType::WriteBack => Self::WRITE_BACK,
            MemoryType::Uncached => NORMAL_NON_CACHEABLE,
            MemoryType::Device => DEVICE_NGNRE,
        };
        frame::<Self>(leaf.pfn) << PAGE_SHIFT
            | VALID
            | when(level == Level::PAGE, TABLE_OR_PAGE)
            | memory
            | READ
            | when(leaf.permissions.contains(Permissions::WRITE), WRITE)
            | INNER_SHAREABLE
            | when(leaf.accessed, ACCESS_FLAG)
            | when(leaf.written, WRITTEN)
            | when(!leaf.permissions.contains(Permissions::EXECUTE), EXECUTE_NEVER)
    }

    #[inline]
    fn decode_leaf(_: Level, bits: u64) -> Leaf {
        let mut permissions = Permissions::READ;
        permissions.set(Permissions::WRITE, bits & WRITE != 0);
        permissions.set(Permissions::EXECUTE, bits & EXECUTE_NEVER == 0);
        let memory = match bits & MEMORY_ATTRIBUTES {
            attributes if attributes == Self::WRITE_BACK => MemoryType::WriteBack,
            NORMAL_NON_CACHEABLE => MemoryType::Uncached,
            _ => MemoryType::Device,
        };
        Leaf {
            pfn: framed::<Self>(bits >> PAGE_SHIFT),
            permissions,
            memory,
            accessed: bits & ACCESS_FLAG != 0,
            dirty: false,
            written: bits & WRITTEN != 0,
        }
    }

    #[inline]
    fn without_write(_: Level, bits: u64) -> Option<u64> {
        (bits & WRITE != 0).then_some(bits & !WRITE)
    }

    #[inline]
    fn encode_table(pfn: Pfn) -> u64 {
        frame::<Self>(pfn) << PAGE_SHIFT | TABLE_OR_PAGE | VALID
    }

    #[inline]
    fn kind(level: Level, bits: u64) -> Kind {
        if level == Level::PAGE || bits & TABLE_OR_PAGE == 0 {
            Kind::Leaf
        } else {
            Kind::Table(Pfn::new(bits >> PAGE_SHIFT))
        }
    }

    /// The rules of "Using break-before-make when updating translation table entries": another size (a table for a
    /// block, a block for a table); another memory type, cacheability, or shareability; another output address, unless
    /// no CPU can write by either entry, and the contents at the two addresses are the same. Permissions, XN and the
    /// access flag change in place. `FEAT_BBM`, which allows more, is not assumed; and a table gives way to another
    /// table only by way of an absent entry.
    fn requires_break_before_make(
        level: Level,
        old: Entry<Self>,
        new: Entry<Self>,
        same_contents: bool,
    ) -> bool {
        let (Kind::Leaf, Kind::Leaf) =
            (Self::kind(level, old.bits()), Self::kind(level, new.bits()))
        else {
            return old != new;
        };
        let (from, to) = (old.to_leaf(level), new.to_leaf(level));
        let retyped = (old.bits() ^ new.bits()) & (MEMORY_ATTRIBUTES | SHAREABILITY) != 0;
        let writable = (from.permissions | to.permissions).contains(Permissions::WRITE);
        retyped || from.pfn != to.pfn && (writable || !same_contents)
    }
}
