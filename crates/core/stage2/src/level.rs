//! The sizes that an entry of a table can stand for.

use mayfly_platform::address::Gfn;
use mayfly_platform::frames::WORDS;

/// Bits of a frame number that index one table.
pub(crate) const INDEX_BITS: u32 = WORDS.trailing_zeros();

/// How far above the pages a table is: what each of its entries stands for, as a table or as a block.
///
/// Counted from the pages up, and not from the root down as Arm's manual does, so that a number means the same size in
/// every format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

impl Level {
    /// Entries stand for pages of 4 KiB.
    pub const PAGE: Self = Self(0);
    /// Entries stand for 2 MiB.
    pub const MIB2: Self = Self(1);
    /// Entries stand for 1 GiB.
    pub const GIB1: Self = Self(2);
    /// Entries stand for 512 GiB.
    pub const GIB512: Self = Self(3);

    /// Its number.
    #[inline]
    pub(crate) const fn get(self) -> u8 {
        self.0
    }

    /// How many pages an entry stands for.
    #[inline]
    pub const fn pages(self) -> u64 {
        1 << self.shift()
    }

    /// The level below; `None` below the pages.
    #[inline]
    pub const fn below(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(level) => Some(Self(level)),
            None => None,
        }
    }

    /// This level and those below, the pages last.
    #[inline]
    pub(crate) fn down_to_pages(self) -> impl Iterator<Item = Self> {
        (0..=self.0).rev().map(Self)
    }

    /// The level above.
    #[inline]
    #[must_use]
    pub const fn above(self) -> Self {
        Self(self.0 + 1)
    }

    /// The first frame of the entry that `gfn` lies in.
    #[inline]
    pub const fn first(self, gfn: Gfn) -> Gfn {
        Gfn::new(gfn.get() & !(self.pages() - 1))
    }

    /// Whether `number`, of a frame, is the first of such an entry.
    #[inline]
    pub const fn is_aligned(self, number: u64) -> bool {
        number.trailing_zeros() >= self.shift()
    }

    /// Bits of a frame number below this level's index.
    #[inline]
    pub(crate) const fn shift(self) -> u32 {
        self.0 as u32 * INDEX_BITS
    }
}

/// The level of the table that an entry of `level` leads to.
#[inline]
pub(crate) fn below_of(level: Level) -> Level {
    level.below().expect("pages have no tables below")
}
