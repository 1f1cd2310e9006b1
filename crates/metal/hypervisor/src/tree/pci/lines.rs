//! By which lines the functions of a PCI bus interrupt (Devicetree Specification 0.4, 2.4.3, `interrupt-map`).

use alloc::vec::Vec;

use crate::board::Line;
use crate::tree::node::{cells, line};

/// The most entries of a map: four pins of each of 32 devices have so many, twice over.
const MOST: usize = 256;

/// What an entry begins with: three cells of an address and one of a pin.
const CHILD_CELLS: usize = 4;
/// The most cells of what follows it.
const MOST_PARENT_CELLS: usize = 16;

/// The parent of an interrupt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parent {
    pub(super) address_cells: usize,
    pub(super) interrupt_cells: usize,
    /// It is the machine's interrupt controller, which has lines.
    pub(super) is_controller: bool,
}

/// An entry: a function and a pin, and the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    function: u32,
    pin: u32,
    line: Option<Line>,
}

/// The lines of a bus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    /// Which bits of the first cell of an address, and of a pin, are compared.
    mask: (u32, u32),
    entries: Vec<Entry>,
}

impl Lines {
    /// Reads a map, in which nodes have numbers (`parent`).
    ///
    /// `None` where its length does not fit, its mask has another length, or an entry has a parent that is not there.
    pub(super) fn parse(
        map: &[u8],
        mask: Option<&[u8]>,
        mut parent: impl FnMut(u32) -> Option<Parent>,
    ) -> Option<Self> {
        let mask =
            mask.map_or(Some([u32::MAX; CHILD_CELLS]), |mask| cells(mask)?.try_into().ok())?;
        let map = cells(map)?;
        let mut rest = &map[..];
        let mut entries = Vec::new();
        // Most entries have the parent of the one before.
        let mut last = None;
        while !rest.is_empty() {
            if entries.len() == MOST {
                return None;
            }
            let (&[function, middle, low, pin, handle], behind) = rest.split_first_chunk()?;
            let known = last.filter(|(known, _)| *known == handle);
            let (_, parent) = known.or_else(|| Some((handle, parent(handle)?)))?;
            last = Some((handle, parent));
            let Parent { address_cells, interrupt_cells, is_controller } = parent;
            if address_cells > MOST_PARENT_CELLS || interrupt_cells > MOST_PARENT_CELLS {
                return None;
            }
            let (_, behind) = behind.split_at_checked(address_cells)?;
            let interrupt;
            (interrupt, rest) = behind.split_at_checked(interrupt_cells)?;
            let line = if is_controller { line(interrupt) } else { None };
            // The two other cells of a function's address are 0.
            if middle & mask[1] == 0 && low & mask[2] == 0 {
                entries.push(Entry { function: function & mask[0], pin: pin & mask[3], line });
            }
        }
        Some(Self { mask: (mask[0], mask[3]), entries })
    }

    /// The line of a function, by the first cell of its address, and of a pin.
    pub(super) fn find(&self, function: u32, pin: u32) -> Option<Line> {
        let meant = (function & self.mask.0, pin & self.mask.1);
        let is_pin = (1..=4).contains(&pin);
        let entry =
            self.entries.iter().find(|entry| is_pin && (entry.function, entry.pin) == meant);
        entry?.line
    }
}
