//! Addresses on a bus, as its parent sees them (Devicetree Specification 0.4, 2.3.8, `ranges`).

use alloc::vec::Vec;
use core::ops::Range;

use dtoolkit::fdt::FdtNode;
use dtoolkit::{Node, Property};

use super::node::{is_available, span};
use crate::board::Region;

/// How addresses of the children of a node are seen by processors.
#[derive(Clone, Debug)]
pub(super) enum Bus {
    /// As they are.
    Same,
    /// Those in each region, from the processors' address beside it on.
    Windows(Vec<(Region, u64)>),
}

impl Bus {
    /// The bus that is below `node`, which is on this bus itself. `None`: processors do not reach what is on it.
    pub(super) fn below(&self, node: FdtNode<'_>) -> Option<Self> {
        let ranges = node.property("ranges")?;
        if ranges.value().is_empty() {
            return Some(self.clone());
        }
        let window = |range: dtoolkit::standard::Range<'_>| {
            let child = span(range.child_bus_address().ok()?, range.length().ok()?);
            let length = child.end - child.start;
            let parent = self.seen(&span(range.parent_bus_address().ok()?, length))?;
            Some((child, parent.start))
        };
        Some(Self::Windows(node.ranges().ok()??.filter_map(window).collect()))
    }

    /// Where processors see `region`; `None` where they do not see all of it.
    pub(super) fn seen(&self, region: &Range<u64>) -> Option<Region> {
        match self {
            Self::Same => Some(region.clone()),
            Self::Windows(windows) => {
                let (child, start) = windows
                    .iter()
                    .find(|(child, _)| child.start <= region.start && region.end <= child.end)?;
                let start = start.checked_add(region.start - child.start)?;
                Some(span(start, region.end - region.start))
            }
        }
    }

    /// The registers of `node`, which is on this bus, where processors see them.
    pub(super) fn regions(&self, node: FdtNode<'_>) -> Vec<Region> {
        let Ok(Some(registers)) = node.reg() else { return Vec::new() };
        let region = |register: dtoolkit::standard::Reg<'_>| {
            self.seen(&span(register.address::<u64>().ok()?, register.size::<u64>().ok()?))
        };
        registers.filter_map(region).collect()
    }
}

/// The node at `path`, and the bus that it is on; `None` where one of the nodes above it, or itself, is not to be used.
pub(super) fn find<'a>(root: FdtNode<'a>, path: &str) -> Option<(FdtNode<'a>, Bus)> {
    let (mut node, mut bus) = (root, Bus::Same);
    for (depth, name) in path.split('/').filter(|name| !name.is_empty()).enumerate() {
        if depth > 0 {
            bus = bus.below(node)?;
        }
        node = node.child(name)?;
        if !is_available(node) {
            return None;
        }
    }
    Some((node, bus))
}
