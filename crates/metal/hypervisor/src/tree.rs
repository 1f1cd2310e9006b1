//! The machine that the program runs on, as its device tree describes it.
//!
//! The console is looked for first, and by itself, so that whatever else is wrong can be printed on it.
//!
//! A node or property that is missing, or is not as the specification says, is an error with its name. The tree comes
//! from firmware, but its modules and boot arguments come from the user who starts the machine.

mod bus;
mod node;
mod pci;
mod virtio;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property};

use self::bus::Bus;
use self::node::{interrupt, is_available, span, text, word};
pub use self::pci::{PciBus, PciPlace, PciUnusable, PciWindow};
pub use self::virtio::VirtioPlace;
use crate::board::{Board, Module, ModuleKind, Region};

/// The machine, with what arm64 has beside the [`Board`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Its memory, as far as the normal world may use it; `/chosen/bootargs`; what was loaded for guests, by address (the
    /// `multiboot,module` binding); and `/chosen/rng-seed`.
    pub board: Board,
    /// What of its memory is not even to be mapped (`no-map`): an access that a processor makes by speculation may be fatal.
    pub unmapped: Vec<Region>,
    /// The affinity of each of its CPUs, as `MPIDR_EL1` has it.
    pub cpus: Vec<u64>,
    /// The interrupt controller, a `GICv3`: its distributor.
    pub distributor: Region,
    /// The regions of its redistributors.
    pub redistributors: Vec<Region>,
    /// The console, a PL011: the one that `/chosen/stdout-path` names, or the first one.
    pub uart: Region,
    /// The number of the console's interrupt.
    pub uart_interrupt: Option<u32>,
    /// The clock, a PL031; empty where there is none.
    pub clock: Region,
    /// Where virtio devices may be, by address.
    pub virtio: Vec<VirtioPlace>,
    /// Where PCI buses are, by address.
    pub pci: Vec<PciPlace>,
}

/// What is wrong with a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// It is no device tree.
    Malformed(String),
    /// It has no such node or property.
    Missing(&'static str),
    /// It has another interrupt controller than a `GICv3`, which is compatible with this.
    Controller(String),
    /// Its firmware is called by this, and not by `SMC`.
    Method(String),
}

impl core::fmt::Display for TreeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "the device tree is malformed: {why}"),
            Self::Missing(what) => write!(f, "the device tree has no {what}"),
            Self::Controller(kind) => write!(
                f,
                "the interrupt controller is a GICv2 ({kind}), and a GICv3 is needed (QEMU: -M virt,gic-version=3)"
            ),
            Self::Method(method) => write!(
                f,
                "the firmware (PSCI) is called by {method}, as the device tree says, and it is called by smc at EL2"
            ),
        }
    }
}

/// Bytes of the largest tree that is looked at.
pub const LARGEST: usize = 2 << 20;

/// The number of bytes of a tree, by its header; `None` where there is none.
pub fn size(header: &[u8; 8]) -> Option<usize> {
    let word = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    (word(0) == 0xd00d_feed).then(|| word(4) as usize).filter(|size| *size <= LARGEST)
}

/// The console of the machine, if its tree has one that is known: what to do before anything that may fail.
pub fn console(tree: &[u8]) -> Option<Region> {
    let mut found = Tree::default();
    found.find_console(&Fdt::new(tree).ok()?);
    (!found.uart.is_empty()).then_some(found.uart)
}

/// How the firmware is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By `SMC`.
    Smc,
    /// By `HVC`.
    Hvc,
}

/// How the firmware is called, if the tree has PSCI.
pub fn method(tree: &[u8]) -> Option<Method> {
    let tree = Fdt::new(tree).ok()?;
    match text(psci(tree.root())?, "method")? {
        "smc" => Some(Method::Smc),
        "hvc" => Some(Method::Hvc),
        _ => None,
    }
}

/// The node of PSCI that is at or below `node`: of a version whose functions have numbers of the standard (Linux,
/// `Documentation/devicetree/bindings/arm/psci.yaml`). Depth is bounded by the tree's own check.
fn psci(node: FdtNode<'_>) -> Option<FdtNode<'_>> {
    if !is_available(node) {
        return None;
    }
    if ["arm,psci-1.0", "arm,psci-0.2"].iter().any(|kind| node.is_compatible(kind)) {
        return Some(node);
    }
    node.children().find_map(psci)
}

impl Tree {
    /// Reads a tree.
    ///
    /// # Errors
    ///
    /// [`TreeError`].
    pub fn read(tree: &[u8]) -> Result<Self, TreeError> {
        let tree = Fdt::new(tree).map_err(|error| TreeError::Malformed(error.to_string()))?;
        let mut found = Self::default();
        for reservation in tree.memory_reservations() {
            found.board.reserved.push(span(reservation.address(), reservation.size()));
        }
        found.find_console(&tree);
        let mut others = None;
        each_node(tree.root(), &Bus::Same, &mut |node, bus| found.take(node, bus, &mut others));
        found.virtio.sort_by_key(|place| place.region.start);
        found.find_bridges(&tree);
        if let Some(reserved) = tree.find_node("/reserved-memory") {
            for node in reserved.children() {
                found.board.reserved.extend(Bus::Same.regions(node));
                if node.property("no-map").is_some() {
                    found.unmapped.extend(Bus::Same.regions(node));
                }
            }
        }
        if let Some(cpus) = tree.find_node("/cpus") {
            // A CPU that is "disabled" is one that waits to be started (Devicetree Specification 0.4, 3.8.1).
            let is_cpu = |node: &FdtNode<'_>| {
                text(*node, "device_type") == Some("cpu")
                    && (is_available(*node) || text(*node, "status") == Some("disabled"))
            };
            found.cpus = cpus.children().filter(is_cpu).filter_map(cpu).collect();
        }
        if let Some(chosen) = tree.find_node("/chosen") {
            found.board.arguments = text(chosen, "bootargs").unwrap_or_default().into();
            found.board.seed =
                chosen.property("rng-seed").map(|seed| seed.value().to_vec()).unwrap_or_default();
            found.board.modules = chosen.children().filter_map(module).collect();
            found.board.modules.sort_by_key(|module| module.region.start);
            let modules = found.board.modules.iter().map(|module| module.region.clone());
            found.board.reserved.extend(modules);
        }
        match () {
            () if found.board.memory.is_empty() => Err(TreeError::Missing("memory")),
            () if found.cpus.is_empty() => Err(TreeError::Missing("CPUs")),
            () if found.distributor.is_empty() => {
                Err(others.map_or(TreeError::Missing("GICv3"), TreeError::Controller))
            }
            () if found.redistributors.is_empty() => Err(TreeError::Missing("redistributors")),
            () if found.uart.is_empty() => Err(TreeError::Missing("PL011")),
            () => check_firmware(&tree).map(|()| found),
        }
    }

    /// Takes the console that `/chosen/stdout-path` names, by its path or by an alias, and where it names none that is
    /// known, the first one.
    fn find_console(&mut self, tree: &Fdt<'_>) {
        let named = tree.find_node("/chosen").and_then(|chosen| text(chosen, "stdout-path"));
        // What is behind a colon is said to the driver.
        let named = named.and_then(|named| named.split(':').next()).and_then(|named| {
            if named.starts_with('/') {
                return Some(named);
            }
            text(tree.find_node("/aliases")?, named)
        });
        if let Some((node, bus)) = named.and_then(|path| bus::find(tree.root(), path)) {
            self.take_console(node, &bus);
        }
        each_node(tree.root(), &Bus::Same, &mut |node, bus| {
            if self.uart.is_empty() {
                self.take_console(node, bus);
            }
        });
    }

    fn take_console(&mut self, node: FdtNode<'_>, bus: &Bus) {
        if node.is_compatible("arm,pl011") {
            self.uart = bus.regions(node).into_iter().next().unwrap_or_default();
            self.uart_interrupt = interrupt(node);
        }
    }

    /// Takes the bridges to PCI buses, when it is known what else there is.
    fn find_bridges(&mut self, tree: &Fdt<'_>) {
        let mut places = Vec::new();
        each_node(tree.root(), &Bus::Same, &mut |node, bus| {
            if places.len() < pci::MOST {
                places.extend(pci::place(tree.root(), node, bus, &self.board.memory));
            }
        });
        places.sort_by_key(|place| place.at);
        let devices = [&self.distributor, &self.uart, &self.clock];
        let virtio = self.virtio.iter().map(|place| &place.region);
        let taken = devices.into_iter().chain(&self.redistributors).chain(virtio);
        pci::refuse_overlaps(&mut places, taken.chain(&self.board.memory).cloned().collect());
        self.pci = places;
    }

    /// Takes what a node is, which is on `bus`. `others` is an interrupt controller that is known, and not used.
    fn take(&mut self, node: FdtNode<'_>, bus: &Bus, others: &mut Option<String>) {
        if text(node, "device_type") == Some("memory") {
            self.board.memory.extend(bus.regions(node));
        }
        if self.distributor.is_empty() && node.is_compatible("arm,gic-v3") {
            let mut regions = bus.regions(node).into_iter();
            let count = word(node, "#redistributor-regions").unwrap_or(1);
            self.distributor = regions.next().unwrap_or_default();
            self.redistributors = regions.take(count as usize).collect();
        }
        if let Some(kind) = GICV2.iter().find(|kind| node.is_compatible(kind)) {
            *others = Some((*kind).into());
        }
        if self.clock.is_empty() && node.is_compatible("arm,pl031") {
            self.clock = bus.regions(node).into_iter().next().unwrap_or_default();
        }
        if self.virtio.len() < virtio::MOST {
            self.virtio.extend(virtio::place(node, bus));
        }
    }
}

/// Calls `look` with each node that can be used, from `node` on, and the bus that it is on. Depth is bounded by the tree's own
/// check.
fn each_node<'a>(node: FdtNode<'a>, bus: &Bus, look: &mut impl FnMut(FdtNode<'a>, &Bus)) {
    // A secure world's memory and devices are in the tree, too, as "disabled".
    if is_available(node) {
        look(node, bus);
        each_child(node, bus, |child, bus| each_node(child, bus, look));
    }
}

/// Checks that other processors can be started, and the machine be turned off, by `SMC`.
fn check_firmware(tree: &Fdt<'_>) -> Result<(), TreeError> {
    let psci = psci(tree.root()).ok_or(TreeError::Missing("PSCI, of version 0.2 or later"))?;
    match text(psci, "method") {
        Some("smc") => Ok(()),
        other => Err(TreeError::Method(other.unwrap_or("nothing").into())),
    }
}

/// What a `GICv2` is compatible with (Linux, `Documentation/devicetree/bindings/interrupt-controller/arm,gic.yaml`).
const GICV2: [&str; 4] =
    ["arm,cortex-a15-gic", "arm,gic-400", "arm,cortex-a7-gic", "arm,cortex-a9-gic"];

/// Calls `look` with each child of `node` that processors reach, and the bus that the child is on. `node` is on `bus`.
fn each_child<'a>(node: FdtNode<'a>, bus: &Bus, mut look: impl FnMut(FdtNode<'a>, &Bus)) {
    let below = if node.name().is_empty() { Some(Bus::Same) } else { bus.below(node) };
    let Some(below) = below else { return };
    node.children().for_each(|child| look(child, &below));
}

fn cpu(node: FdtNode<'_>) -> Option<u64> {
    // One cell or two, by the parent's `#address-cells`; there is no size.
    let value = node.property("reg")?.value().to_vec();
    (value.len() <= 8).then(|| value.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

fn module(node: FdtNode<'_>) -> Option<Module> {
    if !node.is_compatible("multiboot,module") {
        return None;
    }
    let kind = match () {
        () if node.is_compatible("multiboot,kernel") => ModuleKind::Kernel,
        () if node.is_compatible("multiboot,ramdisk") => ModuleKind::Ramdisk,
        () => ModuleKind::Other,
    };
    let region = module_region(&node.property("reg")?.value_as::<Vec<u8>>().ok()?)?;
    Some(Module { region, kind, arguments: text(node, "bootargs").unwrap_or_default().into() })
}

/// Where a module is. By the length of its `reg`: QEMU writes two cells each, whatever `/chosen` says of cells, and
/// says nothing there.
fn module_region(reg: &[u8]) -> Option<Region> {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
    let cells = match reg.len() {
        16 | 12 => 8,
        8 => 4,
        _ => return None,
    };
    let (start, size) = reg.split_at(cells);
    Some(span(number(start), number(size)))
}

#[cfg(test)]
mod tests;
