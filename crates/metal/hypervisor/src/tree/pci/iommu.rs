//! Which functions of a PCI bus are behind an IOMMU (Linux, `Documentation/devicetree/bindings/pci/pci-iommu.txt`).

use alloc::vec::Vec;
use core::ops::Range;

/// The functions that are, by bus, device and function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Iommu {
    mask: u32,
    behind: Vec<Range<u64>>,
}

impl Iommu {
    /// Reads a map `iommu-map`: entries of a function, an IOMMU, what the IOMMU calls it, and how many there are. One whose
    /// length does not fit holds all functions.
    pub(super) fn parse(map: &[u8], mask: Option<u32>) -> Self {
        let (entries, rest) = map.as_chunks::<16>();
        let cell = |entry: &[u8; 16], at: usize| {
            u64::from(u32::from_be_bytes(core::array::from_fn(|byte| entry[at + byte])))
        };
        let mut behind: Vec<_> =
            entries.iter().map(|entry| cell(entry, 0)..cell(entry, 0) + cell(entry, 12)).collect();
        if !rest.is_empty() {
            behind.push(0..u64::MAX);
        }
        Self { mask: mask.unwrap_or(u32::MAX), behind }
    }

    /// Whether a function is behind one.
    pub(super) fn holds(&self, function: u32) -> bool {
        self.behind.iter().any(|range| range.contains(&u64::from(function & self.mask)))
    }
}
