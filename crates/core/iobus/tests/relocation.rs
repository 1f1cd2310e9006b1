//! Devices that move, from inside a section among other places.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Device, bus, bus_within, eventfd, range};
use mayfly_iobus::{Error, IoBus, IoRange, LastHit, Relocation, WriteHit};
use mayfly_srcu::{Callback, Limits, Section};

fn moved(from: IoRange, to: IoRange) -> Relocation {
    Relocation::Device { from, to }
}

/// Who answers at `address`.
fn at(bus: &IoBus<Device>, section: &impl Section, address: u64) -> Option<u64> {
    let hit = bus.find(section, &mut LastHit::default(), address, 1)?;
    hit.device.assert_alive();
    Some(hit.device.id)
}

#[test]
fn a_device_that_moves_from_inside_a_section_is_the_same_one_elsewhere_and_nobody_is_waited_for() {
    let living = Arc::default();
    let (domain, bus) = bus();
    let (here, there) = (range(0x1000, 0x100), range(0x10c0, 0x100));
    bus.register(here, Device::new(7, &living)).unwrap();
    let vcpu = domain.reader().unwrap();
    let section = vcpu.lock();
    let before = bus.find(&section, &mut LastHit::default(), 0x1000, 1).unwrap();
    let stats = domain.stats();
    bus.try_relocate(&[moved(here, there)]).unwrap();
    assert_eq!((at(&bus, &section, 0x10bf), at(&bus, &section, 0x11bf)), (None, Some(7)));
    let after = bus.find(&section, &mut LastHit::default(), 0x10c4, 1).unwrap();
    assert!(std::ptr::eq(before.device, after.device));
    assert_eq!(after.offset, 4);
    assert_eq!(domain.stats().grace_periods, stats.grace_periods);
    assert_eq!(domain.stats().deferred, stats.deferred + 1);
    drop(section);
    assert_eq!(bus.unregister(there).unwrap().id, 7);
    assert_eq!(bus.unregister(here).unwrap_err(), Error::NoDevice(here));
}

#[test]
fn bars_change_places_with_their_doorbells_in_one_change_or_not_at_all() {
    let living = Arc::default();
    let (domain, bus) = bus();
    let [one, two, aside] = [0x1000, 0x2000, 0x9000].map(|start| range(start, 0x1000));
    let [bell_one, bell_two] = [0x1010, 0x2010].map(|address| eventfd(address, 4, None));
    bus.register(one, Device::new(1, &living)).unwrap();
    bus.register(two, Device::new(2, &living)).unwrap();
    bus.register_eventfd(bell_one, Device::new(3, &living)).unwrap();
    let bell = Relocation::Eventfd { from: bell_one, to: bell_two };
    let swap = [moved(one, aside), moved(two, one), moved(aside, two), bell];
    let section = domain.read_lock();
    let in_the_way = [swap[0], swap[1], moved(aside, one)];
    let refused = Error::Overlap { range: one, with: one };
    assert_eq!(bus.try_relocate(&in_the_way), Err(refused));
    assert_eq!((at(&bus, &section, 0x1000), at(&bus, &section, 0x2000)), (Some(1), Some(2)));
    bus.try_relocate(&swap).unwrap();
    assert_eq!((at(&bus, &section, 0x1000), at(&bus, &section, 0x2000)), (Some(2), Some(1)));
    assert_eq!(at(&bus, &section, 0x9000), None);
    let write = |address| bus.find_write(&section, &mut LastHit::default(), address, 4, 0);
    assert!(matches!(write(0x1010), Some(WriteHit::Device(hit)) if hit.device.id == 2));
    assert!(matches!(write(0x2010), Some(WriteHit::Eventfd(device)) if device.id == 3));
}

#[test]
fn at_the_hard_bound_a_bus_keeps_one_old_version_and_refuses_to_move_anything_more() {
    let living = Arc::new(AtomicUsize::new(0));
    let limits = Limits { soft_count: 1, hard_count: 1, ..Limits::default() };
    let (domain, bus) = bus_within(limits);
    let place = |n: u64| range(n * 0x100, 0x100);
    bus.register(place(0), Device::new(7, &living)).unwrap();
    let vcpu = domain.reader().unwrap();
    let section = vcpu.lock();
    domain.try_call(Callback::try_new(|| ()).unwrap()).unwrap();
    let before = domain.stats();
    bus.try_relocate(&[moved(place(0), place(1))]).unwrap();
    assert_eq!(at(&bus, &section, 0x100), Some(7));
    for _ in 0..3 {
        assert_eq!(bus.try_relocate(&[moved(place(1), place(2))]), Err(Error::AtBound));
        assert_eq!(at(&bus, &section, 0x100), Some(7));
    }
    assert_eq!(Error::AtBound.errno(), 11);
    assert_eq!((domain.stats().sleeps, domain.stats().deferred), (before.sleeps, before.deferred));
    drop(section);
    domain.barrier();
    // What is left is deferred by whoever changes the bus next.
    drop(bus.relocate(&[]).unwrap().synchronize());
    domain.barrier();
    assert_eq!(domain.stats().callbacks, before.callbacks + 2);
    bus.try_relocate(&[moved(place(1), place(2))]).unwrap();
    assert_eq!(at(&bus, &vcpu.lock(), 0x200), Some(7));
    drop(bus);
    domain.barrier();
    assert_eq!(living.load(Ordering::Relaxed), 0);
}
