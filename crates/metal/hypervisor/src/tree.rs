//! The machine that the program runs on, as its device tree describes it.
//!
//! A node or property that is missing, or is not as the specification says, is an error with its name. The tree comes
//! from firmware, but its modules and boot arguments come from the user who starts the machine.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use dtoolkit::{Node, Property};

/// Addresses.
pub type Region = Range<u64>;

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Board {
    /// Its memory, as far as the normal world may use it.
    pub memory: Vec<Region>,
    /// What of it is not to be touched: reservations, and the modules.
    pub reserved: Vec<Region>,
    /// What of it is not even to be mapped (`no-map`): an access that a processor makes by speculation may be fatal.
    pub unmapped: Vec<Region>,
    /// The affinity of each of its CPUs, as `MPIDR_EL1` has it.
    pub cpus: Vec<u64>,
    /// The interrupt controller, a `GICv3`: its distributor.
    pub distributor: Region,
    /// The first region of its redistributors.
    pub redistributors: Region,
    /// The console, a PL011.
    pub uart: Region,
    /// The number of the console's interrupt.
    pub uart_interrupt: Option<u32>,
    /// The clock, a PL031; empty where there is none.
    pub clock: Region,
    /// `/chosen/bootargs`.
    pub arguments: String,
    /// What was loaded for guests, by address.
    pub modules: Vec<Module>,
    /// `/chosen/rng-seed`.
    pub seed: Vec<u8>,
}

/// Something that was loaded for a guest (the `multiboot,module` binding).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Where it is.
    pub region: Region,
    /// What it is.
    pub kind: ModuleKind,
    /// Its `bootargs`.
    pub arguments: String,
}

/// What a module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleKind {
    /// `multiboot,kernel`.
    Kernel,
    /// `multiboot,ramdisk`.
    Ramdisk,
    /// Another kind, which is not used.
    Other,
}

/// What is wrong with a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeError {
    /// It is no device tree.
    Malformed(String),
    /// It has no such node or property.
    Missing(&'static str),
}

impl core::fmt::Display for TreeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "the device tree is malformed: {why}"),
            Self::Missing(what) => write!(f, "the device tree has no {what}"),
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

impl Board {
    /// Reads a tree.
    ///
    /// # Errors
    ///
    /// [`TreeError`].
    pub fn read(tree: &[u8]) -> Result<Self, TreeError> {
        let tree = Fdt::new(tree).map_err(|error| TreeError::Malformed(error.to_string()))?;
        let mut board = Self::default();
        for reservation in tree.memory_reservations() {
            board.reserved.push(span(reservation.address(), reservation.size()));
        }
        board.visit(tree.root());
        if let Some(reserved) = tree.find_node("/reserved-memory") {
            for node in reserved.children() {
                board.reserved.extend(regions(node));
                if node.property("no-map").is_some() {
                    board.unmapped.extend(regions(node));
                }
            }
        }
        if let Some(cpus) = tree.find_node("/cpus") {
            // A CPU that is "disabled" is one that waits to be started (Devicetree Specification 0.4, 3.8.1).
            let is_cpu = |node: &FdtNode<'_>| {
                text(*node, "device_type") == Some("cpu")
                    && (is_available(*node) || text(*node, "status") == Some("disabled"))
            };
            board.cpus = cpus.children().filter(is_cpu).filter_map(cpu).collect();
        }
        if let Some(chosen) = tree.find_node("/chosen") {
            board.arguments = text(chosen, "bootargs").unwrap_or_default().into();
            board.seed =
                chosen.property("rng-seed").map(|seed| seed.value().to_vec()).unwrap_or_default();
            board.modules = chosen.children().filter_map(module).collect();
            board.modules.sort_by_key(|module| module.region.start);
            let modules = board.modules.iter().map(|module| module.region.clone());
            board.reserved.extend(modules);
        }
        match () {
            () if board.memory.is_empty() => Err(TreeError::Missing("memory")),
            () if board.cpus.is_empty() => Err(TreeError::Missing("CPUs")),
            () if board.distributor.is_empty() => Err(TreeError::Missing("GICv3")),
            () if board.redistributors.is_empty() => Err(TreeError::Missing("redistributors")),
            () if board.uart.is_empty() => Err(TreeError::Missing("PL011")),
            () => Ok(board),
        }
    }

    /// Looks at a node and at what is below it. Depth is bounded by the tree's own check.
    fn visit(&mut self, node: FdtNode<'_>) {
        // A secure world's memory and devices are in the tree, too, as "disabled".
        if !is_available(node) {
            return;
        }
        if text(node, "device_type") == Some("memory") {
            self.memory.extend(regions(node));
        }
        if self.distributor.is_empty() && node.is_compatible("arm,gic-v3") {
            let mut regions = regions(node).into_iter();
            self.distributor = regions.next().unwrap_or_default();
            self.redistributors = regions.next().unwrap_or_default();
        }
        if self.clock.is_empty() && node.is_compatible("arm,pl031") {
            self.clock = regions(node).into_iter().next().unwrap_or_default();
        }
        if self.uart.is_empty() && node.is_compatible("arm,pl011") {
            self.uart = regions(node).into_iter().next().unwrap_or_default();
            self.uart_interrupt = interrupt(node);
        }
        let is_bus = matches!(node.name_without_address(), "" | "soc" | "platform-bus");
        for child in node.children() {
            let kind = text(child, "device_type");
            if is_bus || child.is_compatible("simple-bus") || matches!(kind, None | Some("memory"))
            {
                self.visit(child);
            }
        }
    }
}

/// Whether the tree says that the node can be used (Devicetree Specification 0.4, 2.3.4): without a status it can.
fn is_available(node: FdtNode<'_>) -> bool {
    node.property("status").is_none() || matches!(text(node, "status"), Some("okay" | "ok"))
}

fn span(start: u64, size: u64) -> Region {
    start..start.saturating_add(size)
}

fn regions(node: FdtNode<'_>) -> Vec<Region> {
    let Ok(Some(registers)) = node.reg() else { return Vec::new() };
    let region = |register: dtoolkit::standard::Reg<'_>| {
        Some(span(register.address::<u64>().ok()?, register.size::<u64>().ok()?))
    };
    registers.filter_map(region).collect()
}

fn text<'a>(node: FdtNode<'a>, name: &str) -> Option<&'a str> {
    let value =
        node.properties().find(|property| property.name() == name)?.value_as::<&'a [u8]>().ok()?;
    core::str::from_utf8(value.split(|&byte| byte == 0).next()?).ok()
}

fn cpu(node: FdtNode<'_>) -> Option<u64> {
    // One cell or two, by the parent's `#address-cells`; there is no size.
    let value = node.property("reg")?.value().to_vec();
    (value.len() <= 8).then(|| value.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

/// The first interrupt of a child of a `GICv3`: three cells, of which the first two are type and number. `None` for those of
/// the extended ranges.
fn interrupt(node: FdtNode<'_>) -> Option<u32> {
    let value = node.property("interrupts")?.value().to_vec();
    let word = |at: usize| Some(u32::from_be_bytes(value.get(at..at + 4)?.try_into().ok()?));
    match word(0)? {
        0 => word(4)?.checked_add(32),
        1 => word(4)?.checked_add(16),
        _ => None,
    }
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
mod tests {
    use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
    use proptest::prelude::*;

    use super::*;

    fn property<T: dtoolkit::ToPropertyValue>(name: &str, value: T) -> DeviceTreeProperty {
        DeviceTreeProperty::new(name, value).unwrap()
    }

    fn node(
        name: &str,
        properties: impl IntoIterator<Item = DeviceTreeProperty>,
    ) -> DeviceTreeNode {
        let mut node = DeviceTreeNode::new(name).unwrap();
        properties.into_iter().for_each(|property| node.add_property(property));
        node
    }

    fn reg(start: u64, size: u64) -> DeviceTreeProperty {
        property("reg", [(start >> 32) as u32, start as u32, (size >> 32) as u32, size as u32])
    }

    /// A tree like that of QEMU's `virt`.
    fn virt() -> DeviceTree {
        let mut tree = DeviceTree::new();
        let root = &mut tree.root;
        root.add_property(property("#address-cells", 2_u32));
        root.add_property(property("#size-cells", 2_u32));
        root.add_child(node(
            "memory@40000000",
            [property("device_type", "memory"), reg(0x4000_0000, 1 << 30)],
        ));
        let mut cpus =
            node("cpus", [property("#address-cells", 1_u32), property("#size-cells", 0_u32)]);
        for cpu in 0..2_u32 {
            let name = std::format!("cpu@{cpu}");
            cpus.add_child(node(&name, [property("device_type", "cpu"), property("reg", cpu)]));
        }
        root.add_child(cpus);
        let frames = [0_u32, 0x800_0000, 0, 0x1_0000, 0, 0x80a_0000, 0, 0xf6_0000];
        root.add_child(node(
            "intc@8000000",
            [property("compatible", "arm,gic-v3"), property("reg", frames)],
        ));
        let uart = [
            property("compatible", &["arm,pl011", "arm,primecell"][..]),
            reg(0x900_0000, 0x1000),
            property("interrupts", [0_u32, 1, 4]),
        ];
        root.add_child(node("pl011@9000000", uart));
        let clock = [property("compatible", "arm,pl031"), reg(0x901_0000, 0x1000)];
        root.add_child(node("pl031@9010000", clock));
        let mut chosen =
            node("chosen", [property("bootargs", "vm list"), property("rng-seed", [1_u32, 2])]);
        chosen.add_child(node(
            "module@60000000",
            [
                property("compatible", &["multiboot,module", "multiboot,ramdisk"][..]),
                reg(0x6000_0000, 0x1000),
            ],
        ));
        chosen.add_child(node(
            "module@50000000",
            [
                property("compatible", &["multiboot,module", "multiboot,kernel"][..]),
                reg(0x5000_0000, 0x2000),
                property("bootargs", "vcpus=4 -- console=ttyAMA0"),
            ],
        ));
        root.add_child(chosen);
        tree
    }

    #[test]
    fn a_machine_is_read_from_its_tree() {
        let board = Board::read(&virt().to_dtb()).unwrap();
        assert_eq!((board.memory.len(), &board.memory[0]), (1, &(0x4000_0000..0x8000_0000)));
        assert_eq!(board.cpus, [0, 1]);
        assert_eq!(board.distributor, 0x800_0000..0x801_0000);
        assert_eq!(board.redistributors, 0x80a_0000..0x900_0000);
        assert_eq!((board.uart, board.uart_interrupt), (0x900_0000..0x900_1000, Some(33)));
        assert_eq!(board.clock, 0x901_0000..0x901_1000);
        assert_eq!(board.arguments, "vm list");
        assert_eq!(board.seed.len(), 8);
        let kinds: Vec<_> =
            board.modules.iter().map(|module| (module.region.start, module.kind)).collect();
        assert_eq!(kinds, [(0x5000_0000, ModuleKind::Kernel), (0x6000_0000, ModuleKind::Ramdisk)]);
        assert_eq!(board.modules[0].arguments, "vcpus=4 -- console=ttyAMA0");
        assert!(board.reserved.contains(&(0x5000_0000..0x5000_2000)));
    }

    #[test]
    fn memory_and_devices_that_are_disabled_are_not_used() {
        let mut tree = virt();
        // As QEMU has it with `-M virt,secure=on`: memory and a console of the secure world.
        for (name, status) in [("secram@e000000", "disabled"), ("broken@d000000", "fail-ecc")] {
            let secure = [
                property("device_type", "memory"),
                reg(0xe00_0000, 0x100_0000),
                property("status", status),
                property("secure-status", "okay"),
            ];
            tree.root.add_child(node(name, secure));
        }
        let usable = [
            property("device_type", "memory"),
            reg(0x1_0000_0000, 0x4000_0000),
            property("status", "okay"),
        ];
        tree.root.add_child(node("memory@100000000", usable));
        let board = Board::read(&tree.to_dtb()).unwrap();
        assert_eq!(board.memory, [0x4000_0000..0x8000_0000, 0x1_0000_0000..0x1_4000_0000]);
        for (name, missing) in [("pl011@9000000", "PL011"), ("intc@8000000", "GICv3")] {
            let mut tree = virt();
            let device = tree.root.child_mut(name).unwrap();
            device.add_property(property("status", "disabled"));
            assert_eq!(Board::read(&tree.to_dtb()), Err(TreeError::Missing(missing)));
        }
    }

    #[test]
    fn reserved_memory_is_not_touched_and_where_the_tree_says_so_not_mapped() {
        let mut tree = virt();
        let mut reserved = node(
            "reserved-memory",
            [property("#address-cells", 2_u32), property("#size-cells", 2_u32)],
        );
        reserved.add_child(node("kept@41000000", [reg(0x4100_0000, 0x1000)]));
        let firmware = [reg(0x4200_0000, 0x2000), property("no-map", [0_u8; 0])];
        reserved.add_child(node("firmware@42000000", firmware));
        tree.root.add_child(reserved);
        let board = Board::read(&tree.to_dtb()).unwrap();
        assert!(board.reserved.contains(&(0x4100_0000..0x4100_1000)));
        assert!(board.reserved.contains(&(0x4200_0000..0x4200_2000)));
        assert_eq!(board.unmapped, *core::slice::from_ref(&(0x4200_0000..0x4200_2000)));
    }

    #[test]
    fn the_first_interrupt_controller_is_taken_and_one_without_redistributors_is_refused() {
        let mut tree = virt();
        let second = [0_u32, 0x2800_0000, 0, 0x1_0000, 0, 0x280a_0000, 0, 0xf6_0000];
        let second = [property("compatible", "arm,gic-v3"), property("reg", second)];
        tree.root.add_child(node("intc@28000000", second));
        assert_eq!(Board::read(&tree.to_dtb()).unwrap().distributor, 0x800_0000..0x801_0000);
        let alone = property("reg", [0_u32, 0x800_0000, 0, 0x1_0000]);
        tree.root.child_mut("intc@8000000").unwrap().add_property(alone);
        assert_eq!(Board::read(&tree.to_dtb()), Err(TreeError::Missing("redistributors")));
    }

    #[test]
    fn a_machine_without_a_console_is_refused_by_name() {
        let mut tree = virt();
        tree.root.remove_child("pl011@9000000");
        assert_eq!(Board::read(&tree.to_dtb()), Err(TreeError::Missing("PL011")));
    }

    #[test]
    fn what_is_no_tree_has_no_size() {
        assert_eq!(size(&[0; 8]), None);
        assert_eq!(size(&[0xd0, 0x0d, 0xfe, 0xed, 0, 1, 0, 0]), Some(0x1_0000));
        assert_eq!(size(&[0xd0, 0x0d, 0xfe, 0xed, 0xff, 0, 0, 0]), None);
    }

    proptest! {
        #[test]
        fn a_tree_with_bytes_changed_is_read_or_refused(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..32)) {
            let mut bytes = virt().to_dtb();
            let length = bytes.len();
            for (at, byte) in &changes {
                bytes[at.index(length)] = *byte;
            }
            let _ = Board::read(&bytes);
        }
    }
}
