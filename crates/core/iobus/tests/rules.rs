//! What a bus accepts, finds, and gives back.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Device, bus, eventfd, range};
use mayfly_iobus::{Error, IoBus, LastHit, MAX_DEVICES, WriteHit};
use mayfly_srcu::Srcu;

/// What a lookup without a past finds: the device and the offset.
fn find(domain: &Srcu, bus: &IoBus<u32>, address: u64, len: u64) -> Option<(u32, u64)> {
    let section = domain.read_lock();
    let hit = bus.find(&section, &mut LastHit::default(), address, len)?;
    Some((*hit.device, hit.offset))
}

#[derive(Debug, PartialEq)]
enum Went {
    ToEventfd(u32),
    ToDevice(u32, u64),
    Nowhere,
}

fn write(domain: &Srcu, bus: &IoBus<u32>, address: u64, len: u64, value: u64) -> Went {
    let section = domain.read_lock();
    match bus.find_write(&section, &mut LastHit::default(), address, len, value) {
        Some(WriteHit::Eventfd(device)) => Went::ToEventfd(*device),
        Some(WriteHit::Device(hit)) => Went::ToDevice(*hit.device, hit.offset),
        None => Went::Nowhere,
    }
}

#[test]
fn an_access_is_a_devices_only_if_all_its_bytes_are() {
    let (domain, bus) = bus();
    bus.register(range(0x100, 0x10), 1).unwrap();
    bus.register(range(0x110, 0x10), 2).unwrap();
    assert_eq!(find(&domain, &bus, 0x100, 4), Some((1, 0)));
    assert_eq!(find(&domain, &bus, 0x10c, 4), Some((1, 0xc)));
    assert_eq!(find(&domain, &bus, 0x110, 0x10), Some((2, 0)));
    assert_eq!(find(&domain, &bus, 0x10d, 4), None, "from one device into the next");
    assert_eq!(find(&domain, &bus, 0x11d, 4), None, "past the last device");
    assert_eq!(find(&domain, &bus, 0xfe, 4), None, "into the first device");
    assert_eq!(find(&domain, &bus, 0x120, 1), None);
    assert_eq!(find(&domain, &bus, 0x100, 0), None, "no bytes at all");
}

#[test]
fn accesses_at_and_past_the_end_of_the_address_space_find_nothing_and_do_not_panic() {
    let (domain, bus) = bus();
    bus.register(range(u64::MAX - 8, 8), 1).unwrap();
    assert_eq!(find(&domain, &bus, u64::MAX - 1, 1), Some((1, 7)));
    for (address, len) in [(u64::MAX, 1), (u64::MAX, u64::MAX), (u64::MAX - 8, u64::MAX), (0, 0)] {
        assert_eq!(find(&domain, &bus, address, len), None);
        assert_eq!(write(&domain, &bus, address, len, u64::MAX), Went::Nowhere);
    }
}

#[test]
fn a_device_may_have_almost_the_whole_address_space() {
    let (domain, bus) = bus();
    bus.register(range(0, u64::MAX), 1).unwrap();
    assert_eq!(find(&domain, &bus, u64::MAX - 1, 1), Some((1, u64::MAX - 1)));
    assert_eq!(find(&domain, &bus, 0, u64::MAX), Some((1, 0)));
    assert_eq!(find(&domain, &bus, 1, u64::MAX), None);
}

#[test]
fn ranges_that_no_device_can_have_are_refused_by_name_and_the_device_comes_back() {
    let (_, bus) = bus();
    bus.register(range(0x100, 0x10), 0).unwrap();
    let overlap = |range| Error::Overlap { range, with: common::range(0x100, 0x10) };
    for (asked, error, errno) in [
        (range(0, 0), Error::ZeroLength(range(0, 0)), 22),
        (range(u64::MAX, 0), Error::ZeroLength(range(u64::MAX, 0)), 22),
        (range(u64::MAX, 1), Error::Overflow(range(u64::MAX, 1)), 22),
        (range(1, u64::MAX), Error::Overflow(range(1, u64::MAX)), 22),
        (range(0x100, 0x10), overlap(range(0x100, 0x10)), 17),
        (range(0xff, 2), overlap(range(0xff, 2)), 17),
        (range(0x10f, 1), overlap(range(0x10f, 1)), 17),
        (range(0, u64::MAX), overlap(range(0, u64::MAX)), 17),
    ] {
        let refused = bus.register(asked, 7).unwrap_err();
        assert_eq!((refused.error, refused.device), (error, 7));
        assert_eq!(error.errno(), errno);
        assert!(error.to_string().contains(&asked.to_string()), "{error} names {asked}");
    }
    bus.register(range(0x110, 1), 1).unwrap();
    bus.register(range(0xff, 1), 2).unwrap();
}

#[test]
fn the_first_device_in_the_way_is_named() {
    let (_, bus) = bus();
    bus.register(range(0x20, 0x10), 0).unwrap();
    bus.register(range(0x10, 0x10), 0).unwrap();
    let error = bus.register(range(0x1f, 0x100), 0).unwrap_err().error;
    assert_eq!(error, Error::Overlap { range: range(0x1f, 0x100), with: range(0x10, 0x10) });
    assert_eq!(error.to_string(), "the range 0x1f+0x100 overlaps the device at 0x10+0x10");
}

#[test]
#[cfg_attr(miri, ignore = "a thousand devices take Miri minutes")]
fn a_full_bus_takes_no_device_more_until_one_has_left_and_still_takes_ioeventfds() {
    let (_, bus) = bus();
    let ranges: Vec<_> = (0..=MAX_DEVICES as u64).map(|n| range(n * 16, 16)).collect();
    let (one_too_many, ranges) = ranges.split_last().unwrap();
    let ((), replaced) =
        bus.edit(|edit| ranges.iter().try_for_each(|range| edit.insert(*range, 0))).unwrap();
    replaced.defer();
    let error = bus.register(*one_too_many, 1).unwrap_err().error;
    assert_eq!((error, error.errno()), (Error::Full(*one_too_many), 28));
    bus.register_eventfd(eventfd(0, 4, None), 2).unwrap();
    bus.unregister(ranges[500]).unwrap();
    bus.register(*one_too_many, 1).unwrap();
}

#[test]
fn only_exactly_what_was_registered_can_be_unregistered() {
    let (_, bus) = bus();
    bus.register(range(0x100, 0x10), 1).unwrap();
    bus.register_eventfd(eventfd(0x100, 4, Some(0)), 2).unwrap();
    for other in [range(0x100, 8), range(0x101, 0xf), range(0x100, 0), range(u64::MAX, u64::MAX)] {
        let error = bus.unregister(other).unwrap_err();
        assert_eq!((error, error.errno()), (Error::NoDevice(other), 2));
    }
    for other in [
        eventfd(0x100, 4, None),
        eventfd(0x100, 4, Some(1)),
        eventfd(0x100, 8, Some(0)),
        eventfd(0x100, 0, None),
        eventfd(u64::MAX, 3, None),
    ] {
        let error = bus.unregister_eventfd(other).unwrap_err();
        assert_eq!((error, error.errno()), (Error::NoEventfd(other), 2));
    }
    assert_eq!(bus.unregister(range(0x100, 0x10)), Ok(1));
    assert_eq!(bus.unregister_eventfd(eventfd(0x100, 4, Some(0))), Ok(2));
}

#[test]
fn ioeventfds_that_kvm_would_not_take_are_refused_by_name() {
    let (_, bus) = bus();
    for (asked, error) in [
        (eventfd(0, 3, None), Error::EventfdLength as fn(_) -> _),
        (eventfd(0, u32::MAX, Some(1)), Error::EventfdLength),
        (eventfd(0, 0, Some(1)), Error::EventfdDatamatchWithoutLength),
        (eventfd(u64::MAX, 1, None), Error::EventfdOverflow),
        (eventfd(u64::MAX - 7, 8, None), Error::EventfdOverflow),
    ] {
        let refused = bus.register_eventfd(asked, 7).unwrap_err();
        assert_eq!((refused.error, refused.device), (error(asked), 7));
        assert_eq!(refused.error.errno(), 22);
        assert!(refused.to_string().contains(&asked.to_string()), "{refused} names {asked}");
    }
    bus.register_eventfd(eventfd(u64::MAX, 0, None), 1).unwrap();
}

#[test]
fn ioeventfds_that_one_write_could_match_exclude_each_other() {
    let (_, bus) = bus();
    let four = |value| eventfd(0x100, 4, value);
    bus.register_eventfd(four(Some(1)), 0).unwrap();
    bus.register_eventfd(four(Some(2)), 0).unwrap();
    bus.register_eventfd(eventfd(0x100, 2, None), 0).unwrap();
    bus.register_eventfd(eventfd(0x102, 0, None), 0).unwrap();
    for (asked, with) in [
        (four(Some(2)), four(Some(2))),
        (four(None), four(Some(1))),
        (eventfd(0x100, 2, Some(9)), eventfd(0x100, 2, None)),
        (eventfd(0x100, 0, None), eventfd(0x100, 2, None)),
        (eventfd(0x102, 8, Some(9)), eventfd(0x102, 0, None)),
    ] {
        let error = bus.register_eventfd(asked, 0).unwrap_err().error;
        assert_eq!((error, error.errno()), (Error::Collision { eventfd: asked, with }, 17));
    }
}

#[test]
fn a_write_goes_to_the_ioeventfd_that_it_matches_before_the_device_around_it() {
    let (domain, bus) = bus();
    bus.register(range(0x100, 0x10), 1).unwrap();
    bus.register_eventfd(eventfd(0x104, 4, Some(7)), 2).unwrap();
    bus.register_eventfd(eventfd(0x104, 2, None), 3).unwrap();
    bus.register_eventfd(eventfd(0x108, 0, None), 4).unwrap();
    bus.register_eventfd(eventfd(0x200, 1, Some(0)), 5).unwrap();
    assert_eq!(write(&domain, &bus, 0x104, 4, 7), Went::ToEventfd(2));
    assert_eq!(write(&domain, &bus, 0x104, 4, 0xff_0000_0007), Went::ToEventfd(2), "low 4 bytes");
    assert_eq!(write(&domain, &bus, 0x104, 4, 8), Went::ToDevice(1, 4));
    assert_eq!(write(&domain, &bus, 0x104, 2, 8), Went::ToEventfd(3));
    assert_eq!(write(&domain, &bus, 0x104, 1, 7), Went::ToDevice(1, 4));
    for len in [0, 1, 3, 8, 100, u64::MAX] {
        assert_eq!(write(&domain, &bus, 0x108, len, 0), Went::ToEventfd(4));
    }
    assert_eq!(write(&domain, &bus, 0x109, 1, 0), Went::ToDevice(1, 9));
    assert_eq!(write(&domain, &bus, 0x200, 1, 0), Went::ToEventfd(5), "outside of every device");
    assert_eq!(write(&domain, &bus, 0x200, 1, 1), Went::Nowhere);
    assert_eq!(find(&domain, &bus, 0x104, 2), Some((1, 4)), "a read is never an ioeventfd's");
    assert_eq!(find(&domain, &bus, 0x200, 1), None);
}

#[test]
fn a_datamatch_that_does_not_fit_its_length_is_accepted_and_never_matches() {
    let (domain, bus) = bus();
    bus.register_eventfd(eventfd(0, 1, Some(0x101)), 1).unwrap();
    assert_eq!(write(&domain, &bus, 0, 1, 0x101), Went::Nowhere);
}

#[test]
fn a_last_hit_is_right_whatever_has_changed_since() {
    let (domain, bus) = bus();
    let other = common::bus().1;
    let mut last = LastHit::default();
    bus.register(range(0x100, 0x10), 1).unwrap();
    bus.register(range(0x200, 0x10), 2).unwrap();
    let section = domain.read_lock();
    assert_eq!(*bus.find(&section, &mut last, 0x200, 1).unwrap().device, 2);
    drop(section);
    assert_eq!(bus.unregister(range(0x200, 0x10)), Ok(2));
    let section = domain.read_lock();
    assert!(bus.find(&section, &mut last, 0x200, 1).is_none());
    assert_eq!(*bus.find(&section, &mut last, 0x100, 1).unwrap().device, 1);
    drop(section);
    bus.register(range(0, 0x10), 3).unwrap();
    let section = domain.read_lock();
    assert_eq!(*bus.find(&section, &mut last, 0x100, 1).unwrap().device, 1);
    other.register(range(0x100, 0x10), 4).unwrap();
    let section = other.domain().read_lock();
    assert_eq!(*other.find(&section, &mut last, 0x100, 1).unwrap().device, 4);
}

#[test]
fn an_edit_publishes_all_of_its_changes_or_none() {
    let (domain, bus) = bus();
    bus.register(range(0, 0x10), 1).unwrap();
    let failed = bus.edit(|edit| {
        edit.remove(range(0, 0x10))?;
        edit.insert(range(0, 8), 2)?;
        edit.insert_eventfd(eventfd(4, 4, None), 3)?;
        edit.insert(range(7, 1), 4)?;
        Ok::<_, Error>(())
    });
    let overlap = Error::Overlap { range: range(7, 1), with: range(0, 8) };
    assert_eq!(failed.unwrap_err(), overlap);
    assert_eq!(find(&domain, &bus, 0xc, 4), Some((1, 0xc)));
    assert_eq!(write(&domain, &bus, 4, 4, 0), Went::ToDevice(1, 4));

    let (answer, replaced) = bus
        .edit(|edit| {
            edit.remove(range(0, 0x10))?;
            edit.insert(range(0, 8), 2)?;
            edit.insert_eventfd(eventfd(4, 4, None), 3)?;
            assert_eq!(edit.insert(range(7, 1), 4), Err(overlap));
            edit.insert(range(8, 8), 5)?;
            edit.remove(range(0, 8))?;
            Ok::<_, Error>("done")
        })
        .unwrap();
    assert_eq!(answer, "done");
    assert_eq!(find(&domain, &bus, 0, 4), None);
    assert_eq!(find(&domain, &bus, 0xc, 4), Some((5, 4)));
    assert_eq!(write(&domain, &bus, 4, 4, 0), Went::ToEventfd(3));
    assert_eq!(replaced.synchronize_expedited().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_panic_in_an_edit_leaves_the_bus_as_it_was() {
    let living = Arc::default();
    let (_, bus) = bus();
    bus.register(range(0, 1), Device::new(1, &living)).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = bus.edit(|edit| -> Result<(), Error> {
            edit.remove(range(0, 1))?;
            edit.insert(range(0, 1), Device::new(2, &living))?;
            std::panic::resume_unwind(Box::new("no memory of this"));
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(living.load(Ordering::Relaxed), 1);
    assert_eq!(bus.unregister(range(0, 1)).unwrap().id, 1);
}

#[test]
fn no_device_is_lost_however_it_leaves() {
    let living = Arc::new(AtomicUsize::new(0));
    let (domain, bus) = bus();
    let mut added = 0..;
    let mut add = || {
        let n = added.next().unwrap();
        bus.register(range(n, 1), Device::new(n, &living)).unwrap();
        range(n, 1)
    };
    add();
    bus.register_eventfd(eventfd(0, 4, None), Device::new(0, &living)).unwrap();
    let (first, second, third, fourth, fifth) = (add(), add(), add(), add(), add());
    assert_eq!(bus.unregister(first).unwrap().id, 1);
    assert_eq!(living.load(Ordering::Relaxed), 6);
    drop(bus.remove(second).unwrap());
    bus.remove(third).unwrap().defer();
    bus.remove(fourth).unwrap().defer_expedited();
    drop(bus.remove(fifth).unwrap().synchronize());
    domain.barrier();
    assert_eq!(living.load(Ordering::Relaxed), 2, "a device and an ioeventfd are left");
    drop(bus);
    assert_eq!(living.load(Ordering::Relaxed), 0);
}

#[test]
fn a_device_may_use_the_domain_and_the_bus_while_it_is_dropped() {
    struct Nosy(Arc<IoBus<Arc<u32>>>);
    impl Drop for Nosy {
        fn drop(&mut self) {
            self.0.settle();
            self.0.register(range(0, 1), Arc::new(0)).unwrap();
            self.0.unregister(range(0, 1)).unwrap();
        }
    }
    let (domain, inner) = bus();
    let inner = Arc::new(inner);
    let platform = common::host();
    let outer = IoBus::try_new(&domain, platform).unwrap();
    outer.register(range(0, 1), Nosy(Arc::clone(&inner))).unwrap();
    outer.register(range(1, 1), Nosy(Arc::clone(&inner))).unwrap();
    assert!(outer.register(range(1, 1), Nosy(Arc::clone(&inner))).is_err());
    drop(outer.unregister(range(0, 1)).unwrap());
    drop(outer);
    assert_eq!(Arc::strong_count(&inner), 1);
}

#[test]
fn registering_starts_no_grace_period_and_unregistering_with_no_reader_inside_does_not_sleep() {
    let (domain, bus) = bus();
    let _outside = domain.reader().unwrap();
    for n in 0..100 {
        bus.register(range(n, 1), n).unwrap();
    }
    assert_eq!(domain.stats().grace_periods, 0);
    assert_eq!(domain.stats().deferred, 100, "old versions are left to later");
    for n in 0..100 {
        assert_eq!(bus.unregister(range(n, 1)), Ok(n));
    }
    assert_eq!(domain.stats().grace_periods, 100);
    assert_eq!(domain.stats().sleeps, 0);
    assert_eq!(domain.stats().deferred, 0, "and ride along with whoever waits");
}

#[test]
fn a_section_that_was_open_before_keeps_what_it_found() {
    let living = Arc::default();
    let (domain, bus) = bus();
    bus.register(range(0, 1), Device::new(1, &living)).unwrap();
    let reader = domain.reader().unwrap();
    let section = reader.lock();
    let found = bus.find(&section, &mut LastHit::default(), 0, 1).unwrap();
    bus.remove(range(0, 1)).unwrap().defer();
    std::mem::forget(bus.edit(|_| Ok::<_, Error>(())).unwrap());
    found.device.assert_alive();
    assert_eq!(found.device.id, 1);
    assert!(bus.find(&section, &mut LastHit::default(), 0, 1).is_none());
    drop(section);
    domain.barrier();
    assert_eq!(living.load(Ordering::Relaxed), 0);
}
