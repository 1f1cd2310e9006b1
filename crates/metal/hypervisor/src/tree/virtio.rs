//! Where virtio devices may be.

use dtoolkit::fdt::FdtNode;
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property};

use super::bus::Bus;
use super::node::{Region, interrupt};

/// Registers behind which a virtio device may be (Linux, `Documentation/devicetree/bindings/virtio/mmio.yaml`). One that is
/// not coherent with the processors' caches is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtioPlace {
    /// Where they are.
    pub region: Region,
    /// The number of its interrupt, which is shared by all CPUs.
    pub interrupt: u32,
    /// It interrupts by an edge, and not by a level.
    pub is_edge: bool,
}

/// The most places of virtio devices that are looked at; QEMU's `virt` has 32.
pub(super) const MOST: usize = 64;

/// The place of a node, which is on `bus`, if it is one.
pub(super) fn place(node: FdtNode<'_>, bus: &Bus) -> Option<VirtioPlace> {
    if !node.is_compatible("virtio,mmio") || node.property("dma-coherent").is_none() {
        return None;
    }
    let region = bus.regions(node).into_iter().next()?;
    let interrupt = interrupt(node).filter(|number| (32..1020).contains(number))?;
    // The third cell; an edge is 1, rising, or 2, falling.
    let flags = node.property("interrupts")?.value().to_vec();
    let is_edge = flags.get(11).is_some_and(|flags| flags & 3 != 0);
    Some(VirtioPlace { region, interrupt, is_edge })
}
