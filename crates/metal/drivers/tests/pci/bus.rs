//! Functions that are found, and what is done with them.

use mayfly_drivers::DeviceType;
use mayfly_drivers::pci::{Bus, NotUsed, Prepared};
use proptest::prelude::*;

use crate::functions::{Fake, MEMORY_AND_MASTER, Machine, SILENT, windows};

/// Prepares the function at 2.0 of a bus that has it alone.
fn prepare(function: Fake) -> (Machine, Result<Prepared, NotUsed>) {
    let machine = Machine::with([((2, 0), function)]);
    let mut bus = Bus::new(machine.clone(), 0);
    let function = bus.function(2 << 3).expect("it is there");
    let prepared = bus.prepare(&function, &mut windows());
    (machine, prepared)
}

fn refused(function: Fake) -> NotUsed {
    let (machine, prepared) = prepare(function);
    assert_eq!(machine.command((2, 0)), SILENT);
    prepared.expect_err("it is refused")
}

#[test]
fn each_function_of_a_full_bus_is_found_once() {
    let many = |device| (0..8).map(move |function| ((device, function), Fake::virtio(0x1044)));
    let machine = Machine::with((0..32).flat_map(many));
    let count = || {
        let bus = Bus::new(machine.clone(), 0);
        (0..=255).filter(|place| bus.function(*place).is_some()).count()
    };
    assert_eq!(count(), 32, "each has one function, as it says");
    for ((_, function), fake) in machine.0.lock().unwrap().iter_mut() {
        // The first function of a device says whether there are more.
        fake.words[3] = if *function == 0 { 0x80_0000 } else { 0 };
    }
    assert_eq!(count(), 256);
    machine.0.lock().unwrap().remove(&(7, 0));
    machine.0.lock().unwrap().remove(&(8, 3));
    assert_eq!(count(), 247, "a device without its first function is none");
}

#[test]
fn what_a_function_is_stands_in_its_header() {
    let mut host = Fake::new(0x1b36, 8);
    host.words[2] = 0x0600_0000;
    let mut bridge = Fake::new(0x1af4, 0x1041);
    bridge.words[3] = 0x01_0000;
    let mut deaf = Fake::virtio(0x1042);
    deaf.words[0x3c / 4] = 0;
    let functions =
        [((0, 0), host), ((1, 0), bridge), ((2, 0), deaf), ((3, 0), Fake::virtio(0x1041))];
    let bus = Bus::new(Machine::with(functions), 0);
    let [host, bridge, deaf, card] = [0, 8, 16, 24].map(|place| bus.function(place).unwrap());
    assert!(host.is_host_bridge() && !host.is_bridge() && host.device_type().is_none());
    assert!(bridge.is_bridge() && bridge.device_type().is_none(), "a bridge has other registers");
    assert_eq!((deaf.device_type(), deaf.pin), (Some(DeviceType::Block), 0));
    assert_eq!((card.device_type(), card.pin), (Some(DeviceType::Network), 1));
    assert_eq!(card.at.to_string(), "00:03.0");
}

#[test]
fn a_device_gets_addresses_reaches_memory_and_sends_no_messages() {
    let mut function = Fake::virtio(0x1042);
    // As firmware may leave it: with a ROM that is on, and ports.
    function.words[0x30 / 4] = 0xfeb0_0001;
    (function.writable[0x30 / 4], function.writable[0x40 / 4]) = (u32::MAX, 1 << 31);
    function.words[1] |= 7;
    let (machine, prepared) = prepare(function);
    let prepared = prepared.unwrap();
    assert_eq!(machine.command((2, 0)), MEMORY_AND_MASTER);
    assert_eq!((machine.word((2, 0), 0x30), machine.word((2, 0), 0x40) >> 31), (0, 0));
    let bars = [0x14, 0x20, 0x24].map(|offset| machine.word((2, 0), offset));
    assert_eq!(bars, [0x1000_0000, 0xc, 0x80]);
    let mapped: Vec<_> = prepared.bars().map(|place| (place.cpu, place.bytes)).collect();
    assert_eq!(mapped, [(0x80_0000_0000, 0x4000)], "the BAR of the messages is not used");
    assert_eq!(prepared.interrupt(), 0x80_0000_1000);
}

#[test]
fn a_device_that_is_turned_off_has_no_registers_and_no_interrupt() {
    let machine = Machine::with([((2, 0), Fake::virtio(0x1042))]);
    let mut bus = Bus::new(machine.clone(), 0);
    let function = bus.function(2 << 3).unwrap();
    bus.prepare(&function, &mut windows()).unwrap();
    bus.silence(&function);
    assert_eq!(machine.command((2, 0)), SILENT);
}

#[test]
fn a_transitional_device_is_used_by_its_registers_of_1_0_and_one_without_them_is_not() {
    let both = Fake::virtio(0x1001).with_bar(0, 0x80, 1);
    assert!(prepare(both).1.is_ok());
    let legacy = || Fake::new(0x1af4, 0x1001).with_bar(0, 0x80, 1).with_bar(1, 0x1000, 0);
    assert_eq!(refused(legacy()), NotUsed::Legacy);
    assert_eq!(refused(legacy().with_capability(0x11, 1, &[1, 0x801])), NotUsed::Legacy);
    let mut without_list = legacy();
    without_list.words[1] = 0;
    assert_eq!(refused(without_list), NotUsed::Legacy);
    assert_eq!(refused(Fake::new(0x1af4, 0x1042)), NotUsed::Structures);
}

#[test]
fn registers_that_are_not_in_a_bar_of_memory_are_refused() {
    let with = |bar, offset, bytes| {
        Fake::new(0x1af4, 0x1042)
            .with_bar(0, 0x40, 1)
            .with_bar(4, 1 << 34, 0xc)
            .with_structure(3, 4, 0x1000, 0x1000)
            .with_structure(2, 4, 0x3000, 0x1000)
            .with_structure(1, bar, offset, bytes)
    };
    assert!(prepare(with(4, 0, 56)).1.is_ok());
    for (bar, offset, bytes) in [
        // In ports, in the upper half of a BAR, in no BAR.
        (0, 0, 56),
        (5, 0, 56),
        (6, 0, 56),
        (255, 0, 56),
        // Too short, not aligned, and beyond what 32 bits say.
        (4, 0, 55),
        (4, 2, 56),
        (4, 0xffff_fff0, 0xffff_fff0),
    ] {
        assert_eq!(
            refused(with(bar, offset, bytes)),
            NotUsed::Structures,
            "{bar} {offset:#x} {bytes:#x}"
        );
    }
}

#[test]
fn the_first_structure_in_memory_counts() {
    // QEMU: `modern-pio-notify=on`, whose notifications can be sent by ports, too.
    let function = Fake::new(0x1af4, 0x1042)
        .with_bar(2, 4, 1)
        .with_bar(4, 0x4000, 0xc)
        .with_structure(2, 2, 0, 4)
        .with_structure(1, 4, 0, 0x1000)
        .with_structure(3, 4, 0x1000, 0x1000)
        .with_structure(2, 4, 0x3000, 0x1000)
        .with_structure(3, 4, 0x2000, 0x1000);
    assert_eq!(prepare(function).1.unwrap().interrupt() & 0xffff, 0x1000);
}

#[test]
fn structures_may_be_in_three_bars_and_no_more() {
    let with = |bars: [u32; 4]| {
        let mut function = Fake::new(0x1af4, 0x1041);
        for (kind, bar) in (1..).zip(bars) {
            function =
                function.with_bar(bar as usize, 0x1000, 0).with_structure(kind, bar, 0, 0x1000);
        }
        function
    };
    let mapped = prepare(with([3, 5, 3, 1])).1.unwrap().bars().count();
    assert_eq!(mapped, 3);
    assert_eq!(refused(with([3, 5, 2, 1])), NotUsed::Scattered);
}

#[test]
fn a_bar_of_no_kind_or_of_no_size_that_fits_is_refused() {
    let with = |number, bytes, kind| Fake::virtio(0x1041).with_bar(number, bytes, kind);
    assert_eq!(refused(with(0, 0x1000, 2)), NotUsed::Bar(0), "below 1 MiB");
    assert_eq!(refused(with(0, 0x1000, 6)), NotUsed::Bar(0));
    let mut last = Fake::virtio(0x1041);
    (last.words[6 + 3], last.writable[6 + 3]) = (4, 0xffff_f000);
    last.words[4 + 4] = 0;
    last.writable[4 + 4] = 0;
    assert_eq!(refused(last), NotUsed::Bar(5), "its upper half would be behind the last");
    assert_eq!(refused(with(2, 1 << 42, 4)), NotUsed::NoRoom(2));
    let mut holes = Fake::virtio(0x1041);
    holes.writable[4] = 0xff0f_f000;
    assert_eq!(refused(holes), NotUsed::Bar(0), "its size is not a power of two");
}

#[test]
fn a_list_of_capabilities_that_leads_back_ends() {
    let mut back = Fake::virtio(0x1041);
    back.words[0x40 / 4] = back.words[0x40 / 4] & !0xff00 | 0x4000;
    assert_eq!(refused(back), NotUsed::Capabilities);
    let mut header = Fake::virtio(0x1041);
    header.words[0x34 / 4] = 0x10;
    assert_eq!(refused(header), NotUsed::Capabilities);
}

proptest! {
    /// Whatever a function says: it is prepared or refused, and what is to be mapped is in the windows.
    #[test]
    fn any_configuration_is_prepared_or_refused(
        device in prop::sample::select(vec![0x1001_u16, 0x1041]),
        changes in prop::collection::vec((1..64_usize, any::<u32>(), any::<bool>()), 0..40),
    ) {
        let mut function = Fake::virtio(device);
        for (word, value, is_mask) in changes {
            let words = if is_mask { &mut function.writable } else { &mut function.words };
            words[word] = value;
        }
        // It stays a device with a list.
        function.words[1] |= 1 << 20;
        function.words[3] = 0;
        let (machine, prepared) = prepare(function);
        if let Ok(prepared) = prepared {
            for place in prepared.bars() {
                let is_low = 0x1000_0000 <= place.cpu && place.cpu + place.bytes <= 0x3eff_0000;
                let is_high = 0x80_0000_0000 <= place.cpu && place.cpu + place.bytes <= 0x100_0000_0000;
                prop_assert!(is_low || is_high, "{place:x?}");
            }
            let holds = |at: u64| prepared.bars().any(|bar| (bar.cpu..bar.cpu + bar.bytes).contains(&at));
            prop_assert!(holds(prepared.interrupt()));
        } else {
            let writable = machine.0.lock().unwrap()[&(2, 0)].writable[1];
            prop_assert_eq!(machine.command((2, 0)) & writable & MEMORY_AND_MASTER, 0);
        }
    }
}
