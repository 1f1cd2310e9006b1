//! The lifecycles of a VM with much mapped memory.

use crate::guest::Order;
use crate::{Architecture, Row, times};

/// The size by which memory is mapped and written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// By pages of 4 KiB.
    Pages,
    /// By blocks of 2 MiB.
    Blocks,
}

impl Mapping {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Pages, Self::Blocks];

    /// Bytes of a page or block.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Pages => 4 << 10,
            Self::Blocks => 2 << 20,
        }
    }

    /// The row of such memory that is made.
    pub const fn made(self) -> Row {
        match self {
            Self::Pages => Row::MemoryMade4k,
            Self::Blocks => Row::MemoryMade2m,
        }
    }

    /// The row of such memory that is given back.
    pub const fn freed(self) -> Row {
        match self {
            Self::Pages => Row::MemoryFreed4k,
            Self::Blocks => Row::MemoryFreed2m,
        }
    }

    /// Where a caller that makes memory of `bytes` bytes touches it: once in each page or block. Pages are touched in an
    /// order in which neighbours come long after each other, so that they get frames that lie apart.
    pub fn touches(self, bytes: u64) -> impl Iterator<Item = u64> {
        /// A prime, so every page comes once: no memory has a multiple of it.
        const STRIDE: u64 = 1_000_003;
        let (size, count) = (self.bytes(), bytes / self.bytes());
        (0..count).map(move |number| match self {
            Self::Pages => number * STRIDE % count * size,
            Self::Blocks => number * size,
        })
    }
}

/// What follows when all pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// Its slot is deleted.
    Deleted,
    /// The VM is destroyed.
    Destroyed,
}

/// A lifecycle: the guest writes to [`times::BYTES`] in a slot of their own. Then the slot is deleted or the VM
/// destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Large {
    /// The size by which its memory is mapped.
    pub mapping: Mapping,
    /// Whether the guest turns its MMU and caches on first, as an operating system does.
    pub is_cached: bool,
    /// What follows.
    pub goes: Goes,
}

impl Large {
    /// All of them. The caches make no difference to a VM that is destroyed, so that lifecycle is there once.
    pub const ALL: [Self; 6] = {
        const fn of(mapping: Mapping) -> [Large; 3] {
            [
                Large { mapping, is_cached: true, goes: Goes::Deleted },
                Large { mapping, is_cached: true, goes: Goes::Destroyed },
                Large { mapping, is_cached: false, goes: Goes::Deleted },
            ]
        }
        let ([a, b, c], [d, e, f]) = (of(Mapping::Pages), of(Mapping::Blocks));
        [a, b, c, d, e, f]
    };

    /// Those of an architecture: on x86-64, no guest writes past the caches.
    pub fn all(architecture: Architecture) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |large| large.end().is_on(architecture))
    }

    /// The row of its writes, the order for them, and their number.
    pub const fn touches(self) -> (Row, Order, u32) {
        let (row, order) = match (self.mapping, self.is_cached) {
            (Mapping::Pages, true) => (Row::Faults4k, Order::Pages),
            (Mapping::Pages, false) => (Row::Faults4kUncached, Order::Pages),
            (Mapping::Blocks, true) => (Row::Faults2m, Order::Blocks),
            (Mapping::Blocks, false) => (Row::Faults2mUncached, Order::Blocks),
        };
        (row, order, (times::BYTES / self.mapping.bytes()) as u32)
    }

    /// The row of what follows.
    pub const fn end(self) -> Row {
        match (self.goes, self.mapping, self.is_cached) {
            (Goes::Deleted, Mapping::Pages, true) => Row::Deleted4k,
            (Goes::Deleted, Mapping::Pages, false) => Row::Deleted4kUncached,
            (Goes::Deleted, Mapping::Blocks, true) => Row::Deleted2m,
            (Goes::Deleted, Mapping::Blocks, false) => Row::Deleted2mUncached,
            (Goes::Destroyed, Mapping::Pages, _) => Row::Destroyed4k,
            (Goes::Destroyed, Mapping::Blocks, _) => Row::Destroyed2m,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Course;

    #[test]
    fn each_row_of_much_memory_belongs_to_a_lifecycle() {
        for architecture in Architecture::ALL {
            let lives = Large::all(architecture).flat_map(|large| [large.touches().0, large.end()]);
            let memory =
                Mapping::ALL.into_iter().flat_map(|mapping| [mapping.made(), mapping.freed()]);
            let rows: std::vec::Vec<_> = lives.chain(memory).collect();
            for row in Row::of(Course::Lives, architecture) {
                let is_large = row.name().contains("-4k") || row.name().contains("-2m");
                assert_eq!(rows.contains(&row), is_large, "{}", row.name());
            }
            let is_there = |row: &Row| row.is_on(architecture);
            assert!(rows.iter().all(is_there), "{}", architecture.name());
        }
    }

    #[test]
    fn each_page_is_touched_once_and_neighbours_are_not_touched_one_after_the_other() {
        for bytes in [2 << 20, 8 << 20, times::BYTES, times::BYTES + (2 << 20)] {
            let touched: std::vec::Vec<_> = Mapping::Pages.touches(bytes).collect();
            assert!(touched.windows(2).all(|two| two[0].abs_diff(two[1]) > 4096));
            let mut sorted = touched;
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq((0..bytes).step_by(4096)), "{bytes}");
        }
        assert!(Mapping::Blocks.touches(6 << 20).eq([0, 2 << 20, 4 << 20]));
    }

    #[test]
    fn all_of_the_memory_is_touched() {
        for large in Large::ALL {
            let (_, order, count) = large.touches();
            let size = if order == Order::Pages { 4 << 10 } else { 2 << 20 };
            assert_eq!(u64::from(count) * size, times::BYTES);
        }
    }
}
