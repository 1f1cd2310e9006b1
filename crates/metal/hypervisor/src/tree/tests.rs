//! Trees that are read, and trees that are refused.

use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
use proptest::prelude::*;

use super::*;
use crate::board::Line;
use crate::division::Division;
use crate::memory_map::whole_frames;

pub(super) fn property<T: dtoolkit::ToPropertyValue>(name: &str, value: T) -> DeviceTreeProperty {
    DeviceTreeProperty::new(name, value).unwrap()
}

pub(super) fn node(
    name: &str,
    properties: impl IntoIterator<Item = DeviceTreeProperty>,
) -> DeviceTreeNode {
    let mut node = DeviceTreeNode::new(name).unwrap();
    properties.into_iter().for_each(|property| node.add_property(property));
    node
}

pub(super) fn reg(start: u64, size: u64) -> DeviceTreeProperty {
    property("reg", [(start >> 32) as u32, start as u32, (size >> 32) as u32, size as u32])
}

/// A tree like that of QEMU's `virt`.
pub(super) fn virt() -> DeviceTree {
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
    root.add_child(node(
        "psci",
        [
            property("compatible", &["arm,psci-1.0", "arm,psci-0.2", "arm,psci"][..]),
            property("method", "smc"),
        ],
    ));
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
    let found = Tree::read(&virt().to_dtb()).unwrap();
    assert_eq!(
        (found.board.memory.len(), &found.board.memory[0]),
        (1, &(0x4000_0000..0x8000_0000))
    );
    assert_eq!(found.cpus, [0, 1]);
    assert_eq!(found.distributor, 0x800_0000..0x801_0000);
    assert_eq!(found.redistributors, *core::slice::from_ref(&(0x80a_0000..0x900_0000)));
    assert_eq!((found.uart, found.uart_interrupt), (0x900_0000..0x900_1000, Some(33)));
    assert_eq!(found.clock, 0x901_0000..0x901_1000);
    assert_eq!(found.board.arguments, "vm list");
    assert_eq!(found.board.seed.len(), 8);
    let kinds: Vec<_> =
        found.board.modules.iter().map(|module| (module.region.start, module.kind)).collect();
    assert_eq!(kinds, [(0x5000_0000, ModuleKind::Kernel), (0x6000_0000, ModuleKind::Ramdisk)]);
    assert_eq!(found.board.modules[0].arguments, "vcpus=4 -- console=ttyAMA0");
    assert!(found.board.reserved.contains(&(0x5000_0000..0x5000_2000)));
}

#[test]
fn virtio_devices_are_where_the_tree_says_and_only_those_that_are_coherent() {
    let mut tree = virt();
    let place = |at: u64, interrupts: [u32; 3]| {
        let registers = [property("compatible", "virtio,mmio"), reg(at, 0x200)];
        let mut place = node(&std::format!("virtio_mmio@{at:x}"), registers);
        place.add_property(property("interrupts", interrupts));
        place
    };
    let coherent = || property("dma-coherent", [0_u8; 0]);
    // As QEMU has them, and others: one by a level, one with a private interrupt, one that is disabled, one without caches.
    for (at, interrupts) in
        [(0xa00_0200, [0, 17, 1]), (0xa00_0000, [0, 16, 4]), (0xa00_0400, [1, 3, 4])]
    {
        let mut place = place(at, interrupts);
        place.add_property(coherent());
        tree.root.add_child(place);
    }
    let mut disabled = place(0xa00_0600, [0, 19, 1]);
    disabled.add_property(coherent());
    disabled.add_property(property("status", "disabled"));
    tree.root.add_child(disabled);
    tree.root.add_child(place(0xa00_0800, [0, 20, 1]));
    let found = Tree::read(&tree.to_dtb()).unwrap();
    let place = |start: u64, number, is_edge| VirtioPlace {
        region: start..start + 0x200,
        line: Line { number, is_edge },
    };
    assert_eq!(found.virtio, [place(0xa00_0000, 48, false), place(0xa00_0200, 49, true)]);
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
    let found = Tree::read(&tree.to_dtb()).unwrap();
    assert_eq!(found.board.memory, [0x4000_0000..0x8000_0000, 0x1_0000_0000..0x1_4000_0000]);
    for (name, missing) in [("pl011@9000000", "PL011"), ("intc@8000000", "GICv3")] {
        let mut tree = virt();
        let device = tree.root.child_mut(name).unwrap();
        device.add_property(property("status", "disabled"));
        assert_eq!(Tree::read(&tree.to_dtb()), Err(TreeError::Missing(missing)));
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
    let found = Tree::read(&tree.to_dtb()).unwrap();
    assert!(found.board.reserved.contains(&(0x4100_0000..0x4100_1000)));
    assert!(found.board.reserved.contains(&(0x4200_0000..0x4200_2000)));
    assert_eq!(found.unmapped, *core::slice::from_ref(&(0x4200_0000..0x4200_2000)));
}

#[test]
fn memory_of_any_regions_of_a_tree_is_in_the_books_and_holes_are_not() {
    const GIB: u64 = 1 << 30;
    let at_1_tib = [GIB..2 * GIB, 1024 * GIB..1026 * GIB];
    // An Ampere Altra of two sockets: 64 GiB each, of which 2 GiB of the first are below 4 GiB.
    let altra = [
        0x8000_0000..0x1_0000_0000,
        0x80_0000_0000..0x80_0000_0000 + 62 * GIB,
        0x400_0000_0000..0x400_0000_0000 + 64 * GIB,
    ];
    for regions in [&at_1_tib[..], &altra] {
        let mut tree = virt();
        tree.root.remove_child("memory@40000000");
        let mut all = 0;
        for region in regions {
            let bytes = region.end - region.start;
            all += bytes;
            let memory = [property("device_type", "memory"), reg(region.start, bytes)];
            tree.root.add_child(node(&std::format!("memory@{:x}", region.start), memory));
        }
        let found = Tree::read(&tree.to_dtb()).unwrap();
        assert_eq!(found.board.memory, regions);
        let free = whole_frames(&found.board.memory, &found.board.reserved, 1 << 48);
        let division = Division::of(&free).unwrap();
        assert_eq!(division.count() as u64, all >> 16, "an entry for each 64 KiB");
        let pool: u64 = division.pool.iter().map(|region| region.end - region.start).sum();
        assert!(pool > all / 100 * 98, "{pool} of {all}");
    }
}

#[test]
fn the_first_interrupt_controller_is_taken_and_one_without_redistributors_is_refused() {
    let mut tree = virt();
    let second = [0_u32, 0x2800_0000, 0, 0x1_0000, 0, 0x280a_0000, 0, 0xf6_0000];
    let second = [property("compatible", "arm,gic-v3"), property("reg", second)];
    tree.root.add_child(node("intc@28000000", second));
    assert_eq!(Tree::read(&tree.to_dtb()).unwrap().distributor, 0x800_0000..0x801_0000);
    let alone = property("reg", [0_u32, 0x800_0000, 0, 0x1_0000]);
    tree.root.child_mut("intc@8000000").unwrap().add_property(alone);
    assert_eq!(Tree::read(&tree.to_dtb()), Err(TreeError::Missing("redistributors")));
}

#[test]
fn a_machine_without_something_that_is_needed_is_refused_by_its_name() {
    for (node, missing) in [
        ("memory@40000000", "memory"),
        ("cpus", "CPUs"),
        ("intc@8000000", "GICv3"),
        ("pl011@9000000", "PL011"),
    ] {
        let mut tree = virt();
        tree.root.remove_child(node).unwrap();
        assert_eq!(Tree::read(&tree.to_dtb()), Err(TreeError::Missing(missing)), "{node}");
    }
    // And what has nothing is told of its memory first.
    let mut empty = DeviceTree::new();
    empty.root.add_property(property("#address-cells", 2_u32));
    assert_eq!(Tree::read(&empty.to_dtb()), Err(TreeError::Missing("memory")));
}

#[test]
fn a_gicv2_is_refused_by_name() {
    let mut tree = virt();
    let controller = tree.root.child_mut("intc@8000000").unwrap();
    controller.add_property(property("compatible", "arm,cortex-a15-gic"));
    let refused = Tree::read(&tree.to_dtb());
    assert_eq!(refused, Err(TreeError::Controller("arm,cortex-a15-gic".into())));
    assert_eq!(console(&tree.to_dtb()), Some(0x900_0000..0x900_1000), "and can be printed on it");
}

#[test]
fn redistributors_are_in_as_many_regions_as_the_tree_says() {
    let mut tree = virt();
    // As QEMU has it for 128 CPUs; behind the redistributors there may be what a GICv2 has.
    let frames = [
        0_u32, 0x800_0000, 0, 0x1_0000, 0, 0x80a_0000, 0, 0xf6_0000, 0x40, 0, 0, 0x400_0000, 0,
        0x801_0000, 0, 0x1_0000,
    ];
    let controller = tree.root.child_mut("intc@8000000").unwrap();
    controller.add_property(property("reg", frames));
    controller.add_property(property("#redistributor-regions", 2_u32));
    let found = Tree::read(&tree.to_dtb()).unwrap();
    let expected = [0x80a_0000..0x900_0000, 0x40_0000_0000..0x40_0400_0000];
    assert_eq!(found.redistributors, expected);
}

/// A board with its devices on a bus of 32 bits, which lies at 4 GiB, and whose console is the second one.
fn with_bus(stdout: &str) -> DeviceTree {
    let mut tree = virt();
    for name in ["pl011@9000000", "pl031@9010000"] {
        tree.root.remove_child(name);
    }
    let cells = || [property("#address-cells", 1_u32), property("#size-cells", 1_u32)];
    let mut soc = node("soc", cells());
    soc.add_property(property("compatible", "simple-bus"));
    soc.add_property(property("ranges", [0_u32, 1, 0, 0x1000_0000]));
    let mut inner = node("peripherals@8000000", cells());
    inner.add_property(property("ranges", [0_u32, 0x800_0000, 0x10_0000]));
    for at in [0x1000_u32, 0x2000] {
        let uart = [
            property("compatible", "arm,pl011"),
            property("reg", [at, 0x1000]),
            property("interrupts", [0_u32, at >> 12, 4]),
        ];
        inner.add_child(node(&std::format!("serial@{at:x}"), uart));
    }
    soc.add_child(inner);
    let clock = [property("compatible", "arm,pl031"), property("reg", [0x3000_u32, 0x1000])];
    soc.add_child(node("rtc@3000", clock));
    // Its window does not hold it, so that no processor reaches it.
    let out = [property("compatible", "arm,pl011"), property("reg", [0x2000_0000_u32, 0x1000])];
    soc.add_child(node("serial@20000000", out));
    tree.root.add_child(soc);
    let path = "/soc/peripherals@8000000/serial@2000";
    tree.root.add_child(node("aliases", [property("serial1", path)]));
    tree.root.child_mut("chosen").unwrap().add_property(property("stdout-path", stdout));
    tree
}

#[test]
fn devices_on_a_bus_are_where_processors_see_them() {
    let found = Tree::read(&with_bus("").to_dtb()).unwrap();
    assert_eq!(found.uart, 0x1_0800_1000..0x1_0800_2000, "the first one");
    assert_eq!(found.clock, 0x1_0000_3000..0x1_0000_4000);
}

#[test]
fn the_console_is_the_one_that_stdout_path_names() {
    let second = 0x1_0800_2000..0x1_0800_3000;
    for named in ["serial1:115200n8", "/soc/peripherals@8000000/serial@2000:115200", "serial1"] {
        let tree = with_bus(named).to_dtb();
        let found = Tree::read(&tree).unwrap();
        assert_eq!((found.uart, found.uart_interrupt), (second.clone(), Some(34)), "{named}");
        assert_eq!(console(&tree), Some(second.clone()));
    }
    for unknown in ["serial7", "/soc/serial@20000000", "/soc/rtc@3000", "/nowhere"] {
        let found = Tree::read(&with_bus(unknown).to_dtb()).unwrap();
        assert_eq!(found.uart.start, 0x1_0800_1000, "{unknown}: the first one");
    }
}

/// That tree, whose firmware is called so, if it is.
fn with_firmware(firmware: Option<DeviceTreeNode>) -> Vec<u8> {
    let mut tree = virt();
    tree.root.remove_child("psci");
    if let Some(firmware) = firmware {
        tree.root.add_child(firmware);
    }
    tree.to_dtb()
}

#[test]
fn firmware_that_is_called_by_smc_is_found_wherever_it_is() {
    let psci = || {
        let compatible = property("compatible", "arm,psci-0.2");
        node("psci", [compatible, property("method", "smc")])
    };
    let mut below = node("firmware", []);
    below.add_child(psci());
    for firmware in [psci(), below] {
        let tree = with_firmware(Some(firmware));
        assert_eq!(method(&tree), Some(Method::Smc));
        assert!(Tree::read(&tree).is_ok());
    }
}

#[test]
fn firmware_that_is_called_otherwise_is_refused_by_name() {
    let psci = |compatible: &str, method: &str| {
        node("psci", [property("compatible", compatible), property("method", method)])
    };
    let by_hvc = with_firmware(Some(psci("arm,psci-1.0", "hvc")));
    assert_eq!(method(&by_hvc), Some(Method::Hvc));
    assert_eq!(Tree::read(&by_hvc), Err(TreeError::Method("hvc".into())));
    let no_such = with_firmware(Some(psci("arm,psci-1.0", "svc")));
    assert_eq!(method(&no_such), None);
    assert_eq!(Tree::read(&no_such), Err(TreeError::Method("svc".into())));
    assert!(TreeError::Method("hvc".into()).to_string().contains("called by hvc"));
    // PSCI 0.1 has numbers of its own for its functions, and a node that is disabled is none.
    let mut disabled = psci("arm,psci-1.0", "smc");
    disabled.add_property(property("status", "disabled"));
    for firmware in [None, Some(psci("arm,psci", "smc")), Some(disabled)] {
        let tree = with_firmware(firmware);
        assert_eq!(method(&tree), None);
        assert_eq!(Tree::read(&tree), Err(TreeError::Missing("PSCI, of version 0.2 or later")));
    }
    let silent = with_firmware(Some(node("psci", [property("compatible", "arm,psci-1.0")])));
    assert_eq!(Tree::read(&silent), Err(TreeError::Method("nothing".into())));
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
        let _ = Tree::read(&bytes);
    }
}
