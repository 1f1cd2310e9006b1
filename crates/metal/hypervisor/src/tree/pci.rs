//! Bridges from processors to a PCI bus (`pci-host-ecam-generic`; Linux,
//! `Documentation/devicetree/bindings/pci/host-generic-pci.yaml`).
//!
//! A bridge is used if all that it says makes sense, and if its devices reach memory as processors do. The first bus behind
//! it is all that is described.

mod iommu;
mod lines;
mod ranges;

use alloc::vec::Vec;
use core::fmt;

use dtoolkit::fdt::FdtNode;
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property};

use super::bus::Bus;
use super::node::{cells, word};
use crate::board::{Line, Region};
use iommu::Iommu;
use lines::{Lines, Parent};
pub use ranges::PciWindow;

/// The most bridges that are looked at.
pub(super) const MOST: usize = 8;

/// Bytes of the configuration of a bus: 256 functions, of 4 KiB each.
const BUS_BYTES: u64 = 1 << 20;

/// Where a bridge is, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciPlace {
    /// Where its registers begin, as far as it says.
    pub at: u64,
    /// The bus behind it.
    pub bus: Result<PciBus, PciUnusable>,
}

/// A PCI bus: the first one behind a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciBus {
    /// Where processors see the configuration of its functions.
    pub configuration: Region,
    /// Its number.
    pub number: u8,
    /// Where the registers of its functions may be.
    pub windows: Vec<PciWindow>,
    lines: Lines,
    iommu: Iommu,
}

/// Why a bridge is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PciUnusable {
    /// Addresses of a PCI bus have three cells and sizes two; an interrupt has one.
    Cells,
    /// Its registers are too few for one bus, or are not where processors reach them; or it has no buses.
    Configuration,
    /// Its windows are not where processors reach them, overlap, or are no windows.
    Ranges,
    /// Its map of interrupts is none.
    Map,
    /// Caches do not see what its devices do.
    Incoherent,
    /// Its devices see memory elsewhere than processors do, or not all of it.
    Dma,
    /// It is where memory is, or another device.
    Overlap,
}

impl fmt::Display for PciUnusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cells => "its node has other numbers of cells than a PCI bus",
            Self::Configuration => "its registers (reg, bus-range) are not those of a bus",
            Self::Ranges => "its windows (ranges) make no sense",
            Self::Map => "its map of interrupts (interrupt-map) makes no sense",
            Self::Incoherent => "its devices are not coherent with the caches (dma-coherent)",
            Self::Dma => "its devices do not reach all memory where processors see it (dma-ranges)",
            Self::Overlap => "its addresses are those of memory, or of another device",
        })
    }
}

impl PciBus {
    /// The line by which a function of the bus interrupts with `pin`, from 1 on, if that is a line of the interrupt
    /// controller.
    pub fn line(&self, device: u8, function: u8, pin: u8) -> Option<Line> {
        self.lines.find(self.requester(device, function) << 8, pin.into())
    }

    /// Whether an IOMMU stands between memory and a function of the bus.
    pub fn is_behind_iommu(&self, device: u8, function: u8) -> bool {
        self.iommu.holds(self.requester(device, function))
    }

    /// What a function of the bus calls itself when it accesses memory.
    fn requester(&self, device: u8, function: u8) -> u32 {
        u32::from(self.number) << 8 | u32::from(device & 31) << 3 | u32::from(function & 7)
    }

    /// All of its addresses.
    fn regions(&self) -> impl Iterator<Item = &Region> {
        core::iter::once(&self.configuration).chain(self.windows.iter().map(|window| &window.cpu))
    }
}

/// Takes the bridges whose addresses are those of something else out of use: of `taken`, or of a bridge before.
pub(super) fn refuse_overlaps(places: &mut [PciPlace], mut taken: Vec<Region>) {
    for place in places {
        let Ok(bus) = &place.bus else { continue };
        let before = taken.len();
        let is_apart = bus.regions().all(|region| {
            let meets = |other: &Region| region.start < other.end && other.start < region.end;
            let is_free = !taken.iter().any(meets);
            taken.push(region.clone());
            is_free
        });
        if !is_apart {
            taken.truncate(before);
            place.bus = Err(PciUnusable::Overlap);
        }
    }
}

/// The bridge of a node, which is on `bus`, if it is one. `memory` is all that its devices are to reach.
pub(super) fn place(
    root: FdtNode<'_>,
    node: FdtNode<'_>,
    bus: &Bus,
    memory: &[Region],
) -> Option<PciPlace> {
    if !node.is_compatible("pci-host-ecam-generic") {
        return None;
    }
    let configuration = bus.regions(node).into_iter().next();
    let at = configuration.as_ref().map_or(0, |region| region.start);
    Some(PciPlace { at, bus: read(root, node, bus, configuration, memory) })
}

fn read(
    root: FdtNode<'_>,
    node: FdtNode<'_>,
    bus: &Bus,
    configuration: Option<Region>,
    memory: &[Region],
) -> Result<PciBus, PciUnusable> {
    let cells = ["#address-cells", "#size-cells", "#interrupt-cells"];
    if cells.map(|name| word(node, name)) != [Some(3), Some(2), Some(1)] {
        return Err(PciUnusable::Cells);
    }
    let (configuration, number) =
        first_bus(node, configuration).ok_or(PciUnusable::Configuration)?;
    let parent_cells = parent_cells(node).ok_or(PciUnusable::Configuration)?;
    let bytes = |name| node.property(name).map(|property| property.value().to_vec());
    let ranges = bytes("ranges").unwrap_or_default();
    let windows = ranges::parse(&ranges, parent_cells).ok_or(PciUnusable::Ranges)?;
    let windows = windows.into_iter().map(|window| {
        let cpu = bus.seen(&window.cpu).ok_or(PciUnusable::Ranges)?;
        Ok(PciWindow { cpu, ..window })
    });
    let windows = windows.collect::<Result<Vec<_>, _>>()?;
    if node.property("dma-coherent").is_none() {
        return Err(PciUnusable::Incoherent);
    }
    if let Some(reached) = bytes("dma-ranges").filter(|reached| !reached.is_empty()) {
        let reached = ranges::parse(&reached, parent_cells).ok_or(PciUnusable::Dma)?;
        if !ranges::reach(&reached, memory) {
            return Err(PciUnusable::Dma);
        }
    }
    let mask = bytes("interrupt-map-mask");
    let map = bytes("interrupt-map").unwrap_or_default();
    let lines = Lines::parse(&map, mask.as_deref(), |handle| parent(root, handle))
        .ok_or(PciUnusable::Map)?;
    let mask = word(node, "iommu-map-mask");
    let iommu = bytes("iommu-map").map_or(Iommu::default(), |map| Iommu::parse(&map, mask));
    Ok(PciBus { configuration, number, windows, lines, iommu })
}

/// How many cells the addresses of the node's registers have.
fn parent_cells(node: FdtNode<'_>) -> Option<usize> {
    Some(node.reg().ok()??.next()?.address.as_ref().len())
}

/// The configuration and the number of the first bus of a bridge that has this for all of its buses.
fn first_bus(node: FdtNode<'_>, configuration: Option<Region>) -> Option<(Region, u8)> {
    let start = configuration.filter(|all| all.end - all.start >= BUS_BYTES)?.start;
    let number = match node.property("bus-range") {
        None => 0,
        Some(range) => {
            let [first, last] = cells(range.value())?.try_into().ok()?;
            u8::try_from(first).ok().filter(|_| (first..256).contains(&last))?
        }
    };
    Some((start..start + BUS_BYTES, number))
}

/// What the node with that handle is, as the parent of an interrupt. Depth is bounded by the tree's own check.
fn parent(node: FdtNode<'_>, handle: u32) -> Option<Parent> {
    if word(node, "phandle") == Some(handle) {
        let cells = |name| word(node, name).map(|cells| cells as usize);
        return Some(Parent {
            // A parent that has no addresses says nothing of their cells.
            address_cells: cells("#address-cells").unwrap_or(0),
            interrupt_cells: cells("#interrupt-cells")?,
            is_controller: node.is_compatible("arm,gic-v3"),
        });
    }
    node.children().find_map(|child| parent(child, handle))
}

#[cfg(test)]
mod tests;
