//! The differences between architectures: the shape of the tables, and the meaning of the bits.
//!
//! `format.rs` and `entry.rs` import each other: an entry is an entry of a format, and a format says what its entries
//! mean.

use mayfly_platform::address::{Gfn, PAGE_SHIFT, Pfn};
use mayfly_platform::frames::WORDS;

use crate::level::INDEX_BITS;
use crate::{Entry, Error, Leaf, Level, Permissions};

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
///
/// # Safety
///
/// Tables are found by what a format makes of entries, by the core and by CPUs that walk them:
///
/// - [`IPA_BITS`](Format::IPA_BITS) are at most those that a walk from [`TOP`](Format::TOP) through
///   `1 << ROOT_ORDER` tables takes up, which is the default; [`LARGEST_BLOCK`](Format::LARGEST_BLOCK) is below
///   [`TOP`](Format::TOP), or the same; [`PFN_BITS`](Format::PFN_BITS) are at most 52. None of them is so much that a
///   shift by it overflows.
/// - [`encode_table`](Format::encode_table) and [`encode_leaf`](Format::encode_leaf) make present entries: one of the
///   three lowest bits is set.
/// - [`kind`](Format::kind) of what `encode_table(pfn)` has made, at any level but the pages', is the table in `pfn`,
///   and so it is with the marks that hardware sets. Of what `encode_leaf` has made for that level, and at the level of
///   pages of anything, it is a leaf.
/// - A CPU that is told to walk tables of this format takes entries for what they are here. A leaf of `level` gives it
///   the [`Level::pages`] frames from [`Leaf::pfn`] on, and no others, with the rights that the leaf says, and no more.
/// - Where [`requires_break_before_make`](Format::requires_break_before_make) says no, a CPU uses one of the two
///   entries until it has been told to forget the old one.
///
/// An implementation without `unsafe` could lead to any memory:
///
/// ```compile_fail,E0200
/// use mayfly_platform::address::Pfn;
/// use mayfly_stage2::{Entry, Format, Kind, Leaf, Level, Permissions};
///
/// #[derive(Clone, Copy)]
/// struct Anywhere;
///
/// impl Format for Anywhere {
///     const NAME: &'static str = "anywhere";
///     const TOP: Level = Level::GIB512;
///     const ROOT_ORDER: u32 = 0;
///     const LARGEST_BLOCK: Level = Level::GIB1;
///     const PFN_BITS: u32 = 36;
///     const SETS_ACCESSED: bool = true;
///     const SETS_DIRTY: bool = true;
///     const COHERENT: bool = true;
///
///     fn encode_leaf(_: Level, _: &Leaf) -> u64 {
///         1
///     }
///
///     fn decode_leaf(_: Level, _: u64) -> Leaf {
///         Leaf::new(Pfn::new(0), Permissions::READ)
///     }
///
///     fn encode_table(_: Pfn) -> u64 {
///         1
///     }
///
///     fn kind(_: Level, _: u64) -> Kind {
///         Kind::Table(Pfn::new(0xdead_beef))
///     }
///
///     fn requires_break_before_make(_: Level, _: Entry<Self>, _: Entry<Self>, _: bool) -> bool {
///         false
///     }
/// }
/// ```
pub unsafe trait Format: Copy + Send + Sync + 'static {
    /// As its manual calls it.
    const NAME: &'static str;

    /// The level of the root.
    const TOP: Level;

    /// The root is `1 << ROOT_ORDER` tables, one after the other.
    const ROOT_ORDER: u32;

    /// The largest block, of 1 GiB at most.
    const LARGEST_BLOCK: Level;

    /// Bits of a guest physical address; at least those of a page.
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

    /// Whether a TLB may keep a leaf by which an access has faulted, and have the next one fault by it too, though the
    /// table allows it by then. The code that resolves such a fault has the CPU that took it forget the page:
    /// [`Mapped::Relaxed`](crate::Mapped::Relaxed).
    const KEEPS_FAULTING: bool = true;

    /// Whether a TLB may remember that an entry was absent, until it is told to forget that.
    const KEEPS_ABSENT: bool = false;

    /// Whether what a guest has its CPU forget of its own tables (stage 1), all CPUs forget. Where they do not, a vCPU
    /// that has been on another CPU may find, where it was before, what it has had forgotten since.
    const GUEST_REACHES_ALL: bool = false;

    /// The bits of `leaf` at `level`, which is [`Format::LARGEST_BLOCK`] at most. The frame's number stands in them as
    /// it is: of leaves that are the same otherwise, they differ from one to the next by as much.
    fn encode_leaf(level: Level, leaf: &Leaf) -> u64;

    /// The leaf with these bits at `level`.
    fn decode_leaf(level: Level, bits: u64) -> Leaf;

    /// The bits at `level` of the leaf with these bits, without the right to write; `None` if it does not have that. The
    /// default decodes the leaf and encodes it. A format that knows its bit spares each page of a dirty log that.
    #[inline]
    fn without_write(level: Level, bits: u64) -> Option<u64> {
        let leaf = Self::decode_leaf(level, bits);
        let permissions = leaf.permissions - Permissions::WRITE;
        let is_writable = leaf.permissions.contains(Permissions::WRITE);
        is_writable.then(|| Self::encode_leaf(level, &Leaf { permissions, ..leaf }))
    }

    /// The bits of the table in frame `pfn`.
    fn encode_table(pfn: Pfn) -> u64;

    /// What the present entry with these bits is at `level`. If a table, [`Format::encode_table`] made them, and
    /// hardware has at most set marks below the frame number: so there is nothing above to be masked, which saves a
    /// walk an instruction or two at each level.
    fn kind(level: Level, bits: u64) -> Kind;

    /// Whether the architecture forbids to overwrite the present entry `old` with the present entry `new` at `level`,
    /// so that `old` has to be made absent, and forgotten by every TLB, before `new` is stored. `same_contents`: the
    /// frames behind the two hold the same bytes, and nothing writes to them. (What comes of it on Arm otherwise is in
    /// `litmus/S2+make+unbroken`, and a change that needs none in `litmus/S2+replace+reuse`.)
    fn requires_break_before_make(
        level: Level,
        old: Entry<Self>,
        new: Entry<Self>,
        same_contents: bool,
    ) -> bool;
}

/// The number of the frame that a present entry of `F` is to name. It has no more than [`Format::PFN_BITS`] bits:
/// whatever comes into a table was asked for that before ([`nameable`]), and is not masked again.
#[inline]
fn frame<F: Format>(pfn: Pfn) -> u64 {
    debug_assert!(pfn.get() >> F::PFN_BITS == 0, "no entry can name {pfn:?}");
    pfn.get()
}

/// Whether entries of `F` can name frames `pfn` to `pfn` + `count` - 1. `count` is not 0.
#[inline]
pub(crate) fn nameable<F: Format>(pfn: Pfn, count: u64) -> bool {
    pfn.get().checked_add(count - 1).is_some_and(|last| last >> F::PFN_BITS == 0)
}

/// That they cannot.
#[cold]
pub(crate) fn out_of_range<F: Format>(pfn: Pfn) -> Error {
    Error::PfnOutOfRange { pfn, limit: Pfn::new(1 << F::PFN_BITS) }
}

/// Whether a leaf of `level` can name the frames from `pfn` on: an entry of that level can be a leaf, they are
/// nameable, and the first is where one can begin.
#[inline]
pub(crate) fn check_leaf<F: Format>(level: Level, pfn: Pfn) -> Result<(), Error> {
    // By level, the bits that are clear in the first frame of a leaf: looked up, which is fewer instructions than to
    // make them. Where the first is nameable, so are the others, as they are as many as a power of two.
    let clear = const {
        let outside = !mask::<F>();
        let pages = [Level::PAGE.pages(), Level::MIB2.pages(), Level::GIB1.pages()];
        &[outside | (pages[0] - 1), outside | (pages[1] - 1), outside | (pages[2] - 1)]
    };
    match clear.get(usize::from(level.get())) {
        Some(clear) if level <= F::LARGEST_BLOCK && pfn.get() & clear == 0 => Ok(()),
        _ => Err(refuse_leaf::<F>(level, pfn)),
    }
}

#[cold]
fn refuse_leaf<F: Format>(level: Level, pfn: Pfn) -> Error {
    if level > F::LARGEST_BLOCK || !level.is_aligned(pfn.get()) {
        Error::Misaligned { pfn }
    } else {
        out_of_range::<F>(pfn)
    }
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

/// Whether a block goes out of all TLBs before its pages come in, so that what is found of one size is remembered of
/// that size alone.
pub(crate) fn breaks_blocks<F: Format>() -> bool {
    let leaf = Leaf::new(Pfn::new(0), Permissions::READ);
    let block = Entry::<F>::leaf(F::LARGEST_BLOCK, &leaf);
    F::requires_break_before_make(F::LARGEST_BLOCK, block, Entry::table(Pfn::new(0)), true)
}

impl Level {
    /// The index of `gfn` in a table of this level; in a root of several tables, counted from the first.
    #[inline]
    pub(crate) fn index_in<F: Format>(self, gfn: Gfn) -> usize {
        let index = (gfn.get() >> self.shift()) as usize;
        if self == F::TOP { index } else { index % WORDS }
    }
}
