//! What differs between architectures: the shape of the tables, and the meaning of the bits.

use mayfly_platform::address::{PAGE_SHIFT, Pfn};

use crate::level::INDEX_BITS;
use crate::{Entry, Leaf, Level};

mod arm;
mod ept;
mod npt;
mod riscv;

pub use arm::{Arm, ArmChoice, ArmFeatures, ArmFwb, ArmIpa, ArmUnsupported, WithArm};
pub use ept::Ept;
pub use npt::Npt;
pub use riscv::{Sv39x4, Sv48x4, SvX4};

/// What a present entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The table below, in this frame.
    Table(Pfn),
    /// A page or a block.
    Leaf,
}

/// An architecture's stage-2 tables.
///
/// In every format an entry with its three lowest bits clear is absent, and hardware ignores the rest of it (bit 10
/// excepted, which stays clear); absent entries are this crate's to use.
///
/// Every leaf is readable: [`Permissions::READ`](crate::Permissions::READ) is implied by the other two, which some
/// architecture or other does not grant alone. A leaf without any permission is not a leaf.
pub trait Format: Copy + Send + Sync + 'static {
    /// As its manual calls it.
    const NAME: &'static str;

    /// The level of the root.
    const TOP: Level;

    /// The root is `1 << ROOT_ORDER` tables, one after the other.
    const ROOT_ORDER: u32;

    /// The largest block.
    const LARGEST_BLOCK: Level;

    /// Bits of a guest physical address.
    const IPA_BITS: u32 = PAGE_SHIFT + Self::TOP.shift() + INDEX_BITS + Self::ROOT_ORDER;

    /// Bits of a host frame number, at most: as many as an entry has room for.
    const PFN_BITS: u32;

    /// Whether hardware itself sets [`Leaf::accessed`], at the time of an access. Where it does not, an access to a
    /// leaf that has it clear faults.
    const SETS_ACCESSED: bool;

    /// Whether hardware itself sets [`Leaf::dirty`], at the time of a store; where it does not, [`Leaf::dirty`] reads
    /// as clear.
    const SETS_DIRTY: bool;

    /// Whether memory and caches never differ for a guest, whatever its own stage says: because caches see all accesses
    /// to memory, or because this stage has them all go through the caches. Implies that data need not be cleaned for
    /// instructions to be fetched.
    const COHERENT: bool;

    /// The bits of `leaf` at `level`, which is [`Format::LARGEST_BLOCK`] at most.
    fn encode_leaf(level: Level, leaf: &Leaf) -> u64;

    /// The leaf with these bits at `level`.
    fn decode_leaf(level: Level, bits: u64) -> Leaf;

    /// The bits of the table in frame `pfn`.
    fn encode_table(pfn: Pfn) -> u64;

    /// What the present entry with these bits is at `level`. If a table, [`Format::encode_table`] made them, and
    /// hardware has at most set marks below the frame number: so there is nothing above to be masked, which saves a
    /// walk an instruction or two at each level.
    fn kind(level: Level, bits: u64) -> Kind;

    /// Whether the architecture forbids to overwrite the present entry `old` with the present entry `new` at `level`,
    /// so that `old` has to be made absent, and forgotten by every TLB, before `new` is stored. `same_contents`: the
    /// frames behind the two hold the same bytes, and nobody writes them.
    fn requires_break_before_make(
        level: Level,
        old: Entry<Self>,
        new: Entry<Self>,
        same_contents: bool,
    ) -> bool;
}

/// The number of the frame that a present entry of `F` is to name. No frame has a number of more than
/// [`Format::PFN_BITS`] bits; what is above them is not encoded.
#[inline]
fn frame<F: Format>(pfn: Pfn) -> u64 {
    debug_assert!(pfn.get() >> F::PFN_BITS == 0, "no entry can name {pfn:?}");
    pfn.get() & mask::<F>()
}

/// The frame whose number is in the low bits of `bits`.
#[inline]
fn framed<F: Format>(bits: u64) -> Pfn {
    Pfn::new(bits & mask::<F>())
}

const fn mask<F: Format>() -> u64 {
    (1 << F::PFN_BITS) - 1
}

/// `bits` where `condition` holds, without a branch.
#[inline]
fn when(condition: bool, bits: u64) -> u64 {
    u64::from(condition).wrapping_neg() & bits
}
