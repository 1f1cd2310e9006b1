//! Bridges that are used, and bridges that are refused.

use std::vec;

use dtoolkit::model::{DeviceTree, DeviceTreeNode};
use proptest::prelude::*;

use super::*;
use crate::tree::Tree;
use crate::tree::tests::{node, property, reg, virt};

/// Cells of a property, as bytes.
fn cells(cells: &[u32]) -> Vec<u8> {
    cells.iter().flat_map(|cell| cell.to_be_bytes()).collect()
}

const CONTROLLER: u32 = 0x8002;

/// The windows of QEMU's `virt` with `highmem=on`: ports, and memory of 32 and of 64 bits.
const RANGES: [[u32; 7]; 3] = [
    [0x100_0000, 0, 0, 0, 0x3eff_0000, 0, 0x1_0000],
    [0x200_0000, 0, 0x1000_0000, 0, 0x1000_0000, 0, 0x2eff_0000],
    [0x300_0000, 0x80, 0, 0x80, 0, 0x80, 0],
];

/// QEMU's map: four lines, and each device begins with the next of them.
fn map() -> Vec<u32> {
    let entry = |device: u32, pin: u32| {
        [device << 11, 0, 0, pin, CONTROLLER, 0, 0, 0, 3 + (device + pin - 1) % 4, 4]
    };
    (0..4).flat_map(|device| (1..=4).flat_map(move |pin| entry(device, pin))).collect()
}

/// The bridge of QEMU's `virt` with `highmem=on`.
fn bridge() -> DeviceTreeNode {
    let mut bridge = node("pcie@10000000", [reg(0x40_1000_0000, 0x1000_0000)]);
    for (name, value) in [("#address-cells", 3_u32), ("#size-cells", 2), ("#interrupt-cells", 1)] {
        bridge.add_property(property(name, value));
    }
    bridge.add_property(property("compatible", "pci-host-ecam-generic"));
    bridge.add_property(property("bus-range", [0_u32, 255]));
    bridge.add_property(property("dma-coherent", [0_u8; 0]));
    bridge.add_property(property("ranges", cells(&RANGES.concat()).as_slice()));
    bridge.add_property(property("interrupt-map-mask", [0x1800_u32, 0, 0, 7]));
    bridge.add_property(property("interrupt-map", cells(&map()).as_slice()));
    bridge
}

/// A machine with these bridges.
fn with(bridges: impl IntoIterator<Item = DeviceTreeNode>) -> DeviceTree {
    let mut tree = virt();
    let controller = tree.root.child_mut("intc@8000000").unwrap();
    for (name, value) in
        [("phandle", CONTROLLER), ("#interrupt-cells", 3_u32), ("#address-cells", 2)]
    {
        controller.add_property(property(name, value));
    }
    bridges.into_iter().for_each(|bridge| tree.root.add_child(bridge));
    tree
}

fn places(tree: &DeviceTree) -> Vec<PciPlace> {
    Tree::read(&tree.to_dtb()).unwrap().pci
}

/// The one bus of a machine with a bridge, of which a property is other than QEMU's.
fn changed<T: dtoolkit::ToPropertyValue>(name: &str, value: T) -> Result<PciBus, PciUnusable> {
    let mut bridge = bridge();
    bridge.add_property(property(name, value));
    the_bus(bridge)
}

fn without(name: &str) -> Result<PciBus, PciUnusable> {
    let mut bridge = bridge();
    bridge.remove_property(name);
    the_bus(bridge)
}

fn the_bus(bridge: DeviceTreeNode) -> Result<PciBus, PciUnusable> {
    let mut places = places(&with([bridge]));
    assert_eq!(places.len(), 1);
    places.remove(0).bus
}

#[test]
fn the_first_bus_behind_a_bridge_is_where_the_tree_says() {
    let bus = the_bus(bridge()).unwrap();
    assert_eq!((bus.configuration.clone(), bus.number), (0x40_1000_0000..0x40_1010_0000, 0));
    let windows: Vec<_> = bus
        .windows
        .iter()
        .map(|window| (window.bus, window.cpu.clone(), window.is_prefetchable))
        .collect();
    let expected = [
        (0x1000_0000, 0x1000_0000..0x3eff_0000, false),
        (0x80_0000_0000, 0x80_0000_0000..0x100_0000_0000, false),
    ];
    assert_eq!(windows, expected, "and none of ports");
    let line = |number| Some(Line { number, is_edge: false });
    assert_eq!(
        [1, 2, 3, 4, 5].map(|device| bus.line(device, 0, 1)),
        [36, 37, 38, 35, 36].map(line)
    );
    assert_eq!(
        [0, 1, 2, 4, 5, 255].map(|pin| bus.line(3, 7, pin)),
        [None, line(38), line(35), line(37), None, None]
    );
    assert!(!bus.is_behind_iommu(31, 7));
}

#[test]
fn a_bus_has_the_number_that_its_bridge_says_and_a_line_is_of_that_bus() {
    let mut bridge = bridge();
    bridge.add_property(property("bus-range", [0x20_u32, 0x2f]));
    bridge.add_property(property("interrupt-map-mask", [0xff_f800_u32, 0, 0, 7]));
    let entry = [0x20_0800_u32, 0, 0, 1, CONTROLLER, 0, 0, 0, 9, 1];
    bridge.add_property(property("interrupt-map", cells(&entry).as_slice()));
    let bus = the_bus(bridge).unwrap();
    assert_eq!(bus.number, 0x20);
    assert_eq!(bus.line(1, 3, 1), Some(Line { number: 41, is_edge: true }));
    assert_eq!((bus.line(1, 3, 2), bus.line(2, 0, 1)), (None, None));
    for wrong in [[3_u32, 2], [256, 256], [0, 256]] {
        assert_eq!(changed("bus-range", wrong), Err(PciUnusable::Configuration), "{wrong:?}");
    }
    assert_eq!(changed("bus-range", [0_u32, 0, 0]), Err(PciUnusable::Configuration));
}

#[test]
fn a_bridge_that_cannot_be_used_says_why() {
    assert_eq!(changed("#address-cells", 2_u32), Err(PciUnusable::Cells));
    assert_eq!(without("#interrupt-cells"), Err(PciUnusable::Cells));
    assert_eq!(without("dma-coherent"), Err(PciUnusable::Incoherent));
    assert_eq!(without("reg"), Err(PciUnusable::Configuration));
    let mut small = bridge();
    small.add_property(reg(0x40_1000_0000, 0xf_0000));
    assert_eq!(the_bus(small), Err(PciUnusable::Configuration), "less than one bus");
    let mut beyond = bridge();
    beyond.add_property(reg(u64::MAX - 0xffff, 0x1000_0000));
    assert_eq!(the_bus(beyond), Err(PciUnusable::Configuration));
    let ranges = cells(&RANGES.concat());
    assert_eq!(changed("ranges", &ranges[..ranges.len() - 4]), Err(PciUnusable::Ranges));
    let all = cells(&map());
    assert_eq!(changed("interrupt-map", &all[..all.len() - 4]), Err(PciUnusable::Map));
}

#[test]
fn a_bridge_that_is_disabled_is_none_and_of_many_eight_are_looked_at() {
    let mut disabled = bridge();
    disabled.add_property(property("status", "disabled"));
    assert!(places(&with([disabled])).is_empty());
    let many = (0..20_u64).map(|number| {
        let at = 0x80_0000_0000 * (number + 1);
        let mut bridge = node(&std::format!("pcie@{at:x}"), []);
        for property in self::bridge().properties() {
            bridge.add_property(property.clone());
        }
        bridge.add_property(reg(at, 0x1000_0000));
        bridge.add_property(property("ranges", [0_u8; 0]));
        bridge
    });
    let places = places(&with(many));
    assert_eq!(places.len(), MOST);
    assert!(
        places.iter().all(|place| place.bus.is_ok()) && places.is_sorted_by_key(|place| place.at)
    );
}

#[test]
fn a_bus_without_a_map_has_no_lines() {
    let bus = without("interrupt-map").unwrap();
    assert_eq!(bus.line(1, 0, 1), None);
    let other = [0x800_u32, 0, 0, 1, 1, 0, 7];
    let mut tree = with([bridge()]);
    let elsewhere = [property("phandle", 1_u32), property("#interrupt-cells", 2_u32)];
    tree.root.add_child(node("gpio", elsewhere));
    let map = [&other[..], &map()].concat();
    let bridge = tree.root.child_mut("pcie@10000000").unwrap();
    bridge.add_property(property("interrupt-map", cells(&map).as_slice()));
    let bus = places(&tree).remove(0).bus.unwrap();
    assert_eq!(
        bus.line(1, 0, 1),
        None,
        "the first entry counts, which leads to another controller"
    );
    assert_eq!(bus.line(2, 0, 1).map(|line| line.number), Some(37));
}

#[test]
fn interrupts_that_are_no_shared_lines_are_no_lines() {
    for (kind, number, line) in
        [(0, 987, Some(1019)), (0, 988, None), (0, u32::MAX, None), (1, 3, None), (2, 3, None)]
    {
        let entry = [0x800, 0, 0, 1, CONTROLLER, 0, 0, kind, number, 4];
        let bus = changed("interrupt-map", cells(&entry).as_slice()).unwrap();
        assert_eq!(bus.line(1, 0, 1).map(|line| line.number), line, "{kind} {number}");
    }
}

#[test]
fn addresses_that_memory_or_a_device_has_are_not_those_of_a_bridge() {
    let range = |at: u32, size| cells(&[0x200_0000, 0, at, 0, at, 0, size]);
    for (at, size) in [
        // Memory, the first and the last page of it, and more than all of it; the controller; the console; configuration.
        (0x5000_0000, 0x1000),
        (0x3fff_f000, 0x2000),
        (0x7fff_f000, 0x1000_0000),
        (0x1000_0000, 0xe000_0000),
        (0x801_0000 - 0x1000, 0x1000),
        (0x900_0000, 0x1000),
    ] {
        assert_eq!(
            changed("ranges", range(at, size).as_slice()),
            Err(PciUnusable::Overlap),
            "{at:#x}"
        );
    }
    assert!(changed("ranges", range(0x8000_0000, 0x1000).as_slice()).is_ok(), "right behind it");
    let mut own = bridge();
    own.add_property(reg(0x80_0000_0000, 0x1000_0000));
    assert_eq!(the_bus(own), Err(PciUnusable::Overlap), "its configuration is in its window");
    let mut second = node("pcie@20000000", []);
    bridge().properties().for_each(|property| second.add_property(property.clone()));
    second.add_property(reg(0x50_1000_0000, 0x1000_0000));
    let found: Vec<_> =
        places(&with([bridge(), second])).into_iter().map(|place| place.bus.err()).collect();
    assert_eq!(found, [None, Some(PciUnusable::Overlap)], "both have the same windows");
}

#[test]
fn devices_have_to_reach_all_memory_where_processors_see_it() {
    let reached = |bus: u64, cpu: u64, size: u64| {
        let halves = |value: u64| [(value >> 32) as u32, value as u32];
        cells(&[&[0x4200_0000], &halves(bus)[..], &halves(cpu), &halves(size)].concat())
    };
    let all = reached(0x4000_0000, 0x4000_0000, 0x4000_0000);
    assert!(changed("dma-ranges", all.as_slice()).is_ok());
    assert!(changed("dma-ranges", [0_u8; 0]).is_ok(), "empty: they are the same");
    for wrong in [
        reached(0, 0x4000_0000, 0x4000_0000),
        reached(0x4000_0000, 0x4000_0000, 0x3fff_f000),
        reached(0x8000_0000, 0x8000_0000, 0x4000_0000),
        vec![0; 4],
    ] {
        assert_eq!(changed("dma-ranges", wrong.as_slice()), Err(PciUnusable::Dma));
    }
}

#[test]
fn functions_behind_an_iommu_are_known() {
    // As QEMU has it for a virtio IOMMU at 2.0: all functions but its own.
    let map = cells(&[0, 7, 0, 0x10, 0x11, 7, 0x11, 0xffef]);
    let bus = changed("iommu-map", map.as_slice()).unwrap();
    assert!(bus.is_behind_iommu(1, 7) && !bus.is_behind_iommu(2, 0) && bus.is_behind_iommu(2, 1));
    let bus = changed("iommu-map", &map[..20]).unwrap();
    assert!(bus.is_behind_iommu(2, 0), "a map that is none holds all");
    let mut masked = bridge();
    masked.add_property(property("iommu-map", [8_u32, 7, 0, 1]));
    masked.add_property(property("iommu-map-mask", 0xfff8_u32));
    let bus = the_bus(masked).unwrap();
    assert!(bus.is_behind_iommu(1, 5) && !bus.is_behind_iommu(2, 0));
}

/// Another reading of a map, by hand: all entries have the controller as their parent.
fn find(map: &[u32], mask: [u32; 4], function: u32, pin: u32) -> Option<u32> {
    let child = [function, 0, 0, pin];
    let entry =
        map.chunks(10).find(|entry| (0..4).all(|at| (entry[at] ^ child[at]) & mask[at] == 0))?;
    (entry[7] == 0 && entry[8] < 988).then(|| entry[8] + 32)
}

proptest! {
    #[test]
    fn a_line_is_that_of_the_first_entry_that_fits(
        entries in prop::collection::vec((0..8_u32, 0..2_u32, 0..6_u32, 0..2_u32, 0..1100_u32), 0..20),
        device in 0..8_u8,
        pin in 1..5_u8,
        mask in prop::sample::select(vec![[0x1800_u32, 0, 0, 7], [u32::MAX; 4], [0x3800, 0, 1, 3], [0; 4]]),
    ) {
        let map: Vec<u32> = entries.iter().flat_map(|&(device, low, pin, kind, number)| {
            [device << 11, 0, low, pin, CONTROLLER, 0, 0, kind, number, 4]
        }).collect();
        let mut bridge = bridge();
        bridge.add_property(property("interrupt-map-mask", mask));
        bridge.add_property(property("interrupt-map", cells(&map).as_slice()));
        let bus = the_bus(bridge).unwrap();
        let found = bus.line(device, 0, pin).map(|line| line.number);
        prop_assert_eq!(found, find(&map, mask, u32::from(device) << 11, pin.into()));
    }

    #[test]
    fn any_map_is_read_or_refused(
        map in prop::collection::vec(prop_oneof![0..4_u32, Just(CONTROLLER), any::<u32>()], 0..60),
        cut in 0..4_usize,
        counts in prop::collection::vec((0..20_usize, 0..20_usize), 4),
    ) {
        let bytes = cells(&map);
        let parent = |handle: u32| {
            let &(address_cells, interrupt_cells) = counts.get(handle as usize % 8)?;
            Some(Parent { address_cells, interrupt_cells, is_controller: handle.is_multiple_of(2) })
        };
        let read = Lines::parse(&bytes[..bytes.len().saturating_sub(cut)], None, parent);
        prop_assert!(read.is_none() || bytes.is_empty() || cut == 0);
        if let Some(lines) = read {
            for place in 0..=255 {
                let line = lines.find(place << 8, 1);
                prop_assert!(line.is_none_or(|line| (32..1020).contains(&line.number)));
            }
        }
    }

    #[test]
    fn windows_of_any_ranges_are_apart_and_as_long_on_either_side(
        ranges in prop::collection::vec((0..4_u32, 0..4_u32, any::<u32>(), 0..4_u32, any::<u32>(), 0..3_u32, any::<u32>()), 0..5),
        cut in 0..4_usize,
    ) {
        let bytes: Vec<u8> = ranges.iter().flat_map(|&(space, b1, b0, c1, c0, s1, s0)| {
            cells(&[space << 24, b1, b0, c1, c0, s1, s0])
        }).collect();
        let Some(windows) = ranges::parse(&bytes[..bytes.len().saturating_sub(cut)], 2) else { return Ok(()) };
        prop_assert!(bytes.is_empty() || cut == 0);
        for (number, window) in windows.iter().enumerate() {
            prop_assert!(!window.cpu.is_empty());
            let bus_end = window.bus.checked_add(window.cpu.end - window.cpu.start).unwrap();
            for other in &windows[..number] {
                let other_end = other.bus + (other.cpu.end - other.cpu.start);
                prop_assert!(bus_end <= other.bus || other_end <= window.bus);
                prop_assert!(window.cpu.end <= other.cpu.start || other.cpu.end <= window.cpu.start);
            }
        }
    }

    #[test]
    fn a_bridge_with_bytes_changed_is_used_or_refused_and_never_where_memory_is(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..16),
    ) {
        let mut bytes = with([bridge()]).to_dtb();
        let length = bytes.len();
        for (at, byte) in &changes {
            bytes[at.index(length)] = *byte;
        }
        let Ok(found) = Tree::read(&bytes) else { return Ok(()) };
        for bus in found.pci.iter().filter_map(|place| place.bus.as_ref().ok()) {
            for (region, memory) in bus.regions().flat_map(|region| found.board.memory.iter().map(move |memory| (region, memory))) {
                prop_assert!(region.end <= memory.start || memory.end <= region.start);
            }
        }
    }
}
