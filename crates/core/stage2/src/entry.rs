//! An entry of a table.

use core::fmt;
use core::marker::PhantomData;

use mayfly_platform::address::Pfn;

use crate::format::Kind;
use crate::{Format, Leaf, Level};

/// Every format takes an entry for absent whose three lowest bits are clear; so these mean the same in all of them, and
/// are nothing to hardware. (Bit 10 stays clear as well: with mode-based execute control, Intel's EPT takes it for a
/// permission.)
const EMPTY: u64 = 0;
const FROZEN: u64 = 1 << 3;
const AWAITED: u64 = 2 << 3;
const REMOVED: u64 = 3 << 3;
const TAG: u64 = 7 << 3;

const PRESENT: u64 = 7;

/// Where a removed entry keeps the number of the next dead table.
const LINK_SHIFT: u32 = 12;

/// An entry of a table in format `F`, as it was when it was loaded.
pub struct Entry<F> {
    bits: u64,
    format: PhantomData<F>,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing: an access faults, and the fault may fill it.
    Empty,
    /// Its holder is changing it, and will shortly be done. Absent to hardware.
    Frozen,
    /// Its table is no longer part of a tree, and never will be again.
    Removed,
    /// The table below.
    Table(Pfn),
    /// A page or a block.
    Leaf,
}

impl<F: Format> Entry<F> {
    pub(crate) const EMPTY: Self = Self::from_bits(EMPTY);
    /// Frozen, and no CPU waits.
    pub(crate) const FROZEN: Self = Self::from_bits(FROZEN);
    /// Frozen, and the holder has to wake the waiters when it thaws the entry.
    pub(crate) const AWAITED: Self = Self::from_bits(AWAITED);
    pub(crate) const REMOVED: Self = Self::from_bits(REMOVED);

    /// The page or block `leaf` at `level`: frames that the format can name ([`Format::PFN_BITS`]), the first at a
    /// multiple of their number.
    #[inline]
    pub fn leaf(level: Level, leaf: &Leaf) -> Self {
        debug_assert!(level.is_aligned(leaf.pfn.get()) && level <= F::LARGEST_BLOCK);
        Self::from_bits(F::encode_leaf(level, leaf))
    }

    /// The table in frame `pfn`, which the format can name.
    #[inline]
    pub fn table(pfn: Pfn) -> Self {
        Self::from_bits(F::encode_table(pfn))
    }

    /// The entry with this representation.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self { bits, format: PhantomData }
    }

    /// Its representation.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// What it is, in a table of `level`.
    #[inline]
    pub fn state(self, level: Level) -> State {
        if self.bits & PRESENT != 0 {
            return match F::kind(level, self.bits) {
                Kind::Table(pfn) => State::Table(pfn),
                Kind::Leaf => State::Leaf,
            };
        }
        match self.bits & TAG {
            EMPTY => State::Empty,
            FROZEN | AWAITED => State::Frozen,
            _ => State::Removed,
        }
    }

    /// The leaf that it is.
    #[inline]
    pub fn to_leaf(self, level: Level) -> Leaf {
        debug_assert_eq!(self.state(level), State::Leaf);
        F::decode_leaf(level, self.bits)
    }

    /// The leaf that it is, at `level`, without the right to write; `None` if it does not have that.
    #[inline]
    pub(crate) fn without_write(self, level: Level) -> Option<Self> {
        debug_assert_eq!(self.state(level), State::Leaf);
        F::without_write(level, self.bits).map(Self::from_bits)
    }

    /// Whether going from this to `new`, both present, has to go by an absent entry and an invalidation
    /// ([`Format::requires_break_before_make`]).
    pub fn requires_break_before_make(self, level: Level, new: Self, same_contents: bool) -> bool {
        F::requires_break_before_make(level, self, new, same_contents)
    }
}

/// A removed entry that names the next table of a list. The number is inverted, so that a processor that speculates
/// past an absent entry (L1TF) is led to no memory that there is.
pub(crate) const fn link(next: Pfn) -> u64 {
    !next.get() << LINK_SHIFT | REMOVED
}

/// The next table of the list that a removed entry names.
pub(crate) const fn linked(entry: u64) -> Pfn {
    Pfn::new(!entry >> LINK_SHIFT & (u64::MAX >> LINK_SHIFT))
}

impl<F> Clone for Entry<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Entry<F> {}

impl<F> PartialEq for Entry<F> {
    fn eq(&self, other: &Self) -> bool {
        self.bits == other.bits
    }
}

impl<F> Eq for Entry<F> {}

impl<F: Format> fmt::Debug for Entry<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:#x})", F::NAME, self.bits)
    }
}
