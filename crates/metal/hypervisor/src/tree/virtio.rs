//! Where virtio devices may be.

use dtoolkit::fdt::FdtNode;
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property};

use super::bus::Bus;
use super::node::{cells, line};
use crate::board::{Line, Region};

/// Registers behind which a virtio device may be (Linux, `Documentation/devicetree/bindings/virtio/mmio.yaml`). One that is
/// not coherent with the processors' caches is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioPlace {
    /// Where they are.
    pub region: Region,
    /// By which it interrupts.
    pub line: Line,
}

/// The most places of virtio devices that are looked at; QEMU's `virt` has 32.
pub(super) const MOST: usize = 64;

/// The place of a node, which is on `bus`, if it is one.
pub(super) fn place(node: FdtNode<'_>, bus: &Bus) -> Option<VirtioPlace> {
    if !node.is_compatible("virtio,mmio") || node.property("dma-coherent").is_none() {
        return None;
    }
    let region = bus.regions(node).into_iter().next()?;
    let line = line(&cells(node.property("interrupts")?.value())?)?;
    Some(VirtioPlace { region, line })
}
