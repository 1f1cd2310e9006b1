//! The lifecycles of a VM with much mapped memory.

use crate::guest::Order;
use crate::{Row, times};

/// The size by which memory is mapped and written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// By pages of 4 KiB.
    Pages,
    /// By blocks of 2 MiB.
    Blocks,
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

    /// The row of its writes, the order for them, and their number.
    pub const fn touches(self) -> (Row, Order, u32) {
        let (row, order, size) = match (self.mapping, self.is_cached) {
            (Mapping::Pages, true) => (Row::Faults4k, Order::Pages, 4 << 10),
            (Mapping::Pages, false) => (Row::Faults4kUncached, Order::Pages, 4 << 10),
            (Mapping::Blocks, true) => (Row::Faults2m, Order::Blocks, 2 << 20),
            (Mapping::Blocks, false) => (Row::Faults2mUncached, Order::Blocks, 2 << 20),
        };
        (row, order, (times::BYTES / size) as u32)
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

    #[test]
    fn each_row_of_much_memory_belongs_to_a_lifecycle() {
        let rows: std::vec::Vec<_> =
            Large::ALL.iter().flat_map(|large| [large.touches().0, large.end()]).collect();
        for row in Row::ALL {
            let is_large = row.name().contains("-4k") || row.name().contains("-2m");
            assert_eq!(rows.contains(row), is_large, "{}", row.name());
        }
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
