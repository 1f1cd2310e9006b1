//! Readers and writers at the same time.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use common::{Device, bus, eventfd, range};
use mayfly_iobus::{Error, LastHit, MAX_DEVICES, WriteHit};
use mayfly_platform::testing::threads::{Over, by};

/// How often something is done: `times`, or seldom under Miri, which is slow and finds a race however seldom it shows.
const fn times(times: u64) -> u64 {
    if cfg!(miri) { times.div_ceil(100) } else { times }
}

#[test]
fn readers_never_find_a_device_after_its_drop() {
    const DEVICES: u64 = if cfg!(miri) { 4 } else { 24 };
    let living = Arc::new(AtomicUsize::new(0));
    let (domain, bus) = bus::<Device>();
    let over = AtomicBool::new(false);
    let device = |n| Device::new(n, &living);
    thread::scope(|threads| {
        let _over = Over(&over);
        for _ in 0..2 {
            threads.spawn(|| {
                let reader = domain.reader().unwrap();
                let mut last = LastHit::default();
                let mut random = 88_172_645_463_325_252_u64;
                while !over.load(Ordering::Relaxed) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let (at, offset) = (random % DEVICES, random >> 32 & 7);
                    let section = reader.lock();
                    let read = bus.find(&section, &mut last, at * 8 + offset, 1);
                    let write = bus.find_write(&section, &mut last, at * 8, 4, 0);
                    for _ in 0..random % 8 {
                        if let Some(hit) = &read {
                            hit.device.assert_alive();
                            assert_eq!((hit.device.id, hit.offset), (at, offset));
                        }
                        match &write {
                            Some(WriteHit::Eventfd(device)) => {
                                device.assert_alive();
                                assert_eq!(device.id, DEVICES + at);
                            }
                            Some(WriteHit::Device(hit)) => hit.device.assert_alive(),
                            None => {}
                        }
                    }
                }
            });
        }
        for round in 0..times(400) {
            for n in 0..DEVICES {
                bus.register(range(n * 8, 8), device(n)).unwrap();
                bus.register_eventfd(eventfd(n * 8, 4, None), device(DEVICES + n)).unwrap();
            }
            for n in 0..DEVICES {
                let at = range(n * 8, 8);
                match round % 4 {
                    0 => assert_eq!(bus.unregister(at).unwrap().id, n),
                    1 => bus.remove(at).unwrap().defer(),
                    2 => bus.remove(at).unwrap().defer_expedited(),
                    _ => drop(bus.remove(at).unwrap().synchronize()),
                }
                let moved = bus.edit(|edit| {
                    edit.remove_eventfd(eventfd(n * 8, 4, None))?;
                    edit.insert_eventfd(eventfd(n * 8, 4, Some(0)), device(DEVICES + n))?;
                    edit.remove_eventfd(eventfd(n * 8, 4, Some(0)))
                });
                drop(moved.unwrap());
            }
        }
    });
    domain.barrier();
    assert_eq!(living.load(Ordering::Relaxed), 0);
}

#[test]
fn writers_on_several_threads_lose_none_of_each_others_changes() {
    let (domain, bus) = bus();
    thread::scope(|threads| {
        for writer in 0..4 {
            let bus = &bus;
            threads.spawn(move || {
                for n in 0..50 {
                    let at = range(n * 4 + writer, 1);
                    bus.register(at, writer).unwrap();
                    if n % 2 == 0 {
                        assert_eq!(bus.unregister(at), Ok(writer));
                    }
                }
            });
        }
    });
    let section = domain.read_lock();
    for address in 0..200 {
        let hit = bus.find(&section, &mut LastHit::default(), address, 1);
        let expected = (address / 4 % 2 == 1).then_some(address % 4);
        assert_eq!(hit.map(|hit| *hit.device), expected);
    }
}

#[test]
fn a_section_that_begins_after_the_registration_returned_finds_the_device() {
    const DEVICES: u64 = times(MAX_DEVICES as u64);
    let (domain, bus) = bus();
    // How many devices have been registered: the message that makes it "after".
    let registered = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            let reader = domain.reader().unwrap();
            let mut last = LastHit::default();
            let mut count = 0;
            while count < DEVICES {
                if over.load(Ordering::Acquire) && registered.load(Ordering::Relaxed) < DEVICES {
                    return;
                }
                count = registered.load(Ordering::Acquire);
                if let Some(newest) = count.checked_sub(1) {
                    let section = reader.lock();
                    let hit = bus.find(&section, &mut last, newest, 1);
                    assert_eq!(hit.map(|hit| *hit.device), Some(newest));
                }
            }
        });
        // Where it fails before the last one, for which the reader waits.
        let _over = Over(&over);
        for n in 0..DEVICES {
            bus.register(range(n, 1), n).unwrap();
            registered.store(n + 1, Ordering::Release);
        }
    });
}

#[test]
fn settling_waits_for_sections_that_may_have_missed_the_device() {
    let (domain, bus) = bus();
    for _ in 0..times(100) {
        let inside = AtomicBool::new(false);
        let leaving = AtomicBool::new(false);
        thread::scope(|threads| {
            let reader = threads.spawn(|| {
                let reader = domain.reader().unwrap();
                let section = reader.lock();
                inside.store(true, Ordering::Release);
                thread::yield_now();
                leaving.store(true, Ordering::Relaxed);
                drop(section);
            });
            by(&reader, || inside.load(Ordering::Acquire));
            bus.register(range(0, 1), ()).unwrap();
            bus.settle();
            assert!(leaving.load(Ordering::Relaxed));
        });
        bus.unregister(range(0, 1)).unwrap();
    }
}

#[test]
fn a_device_comes_back_only_when_the_sections_that_found_it_are_over() {
    let living = Arc::default();
    let (domain, bus) = bus();
    for n in 0..times(100) {
        bus.register(range(0, 1), Device::new(n, &living)).unwrap();
        let found = AtomicBool::new(false);
        let leaving = AtomicBool::new(false);
        thread::scope(|threads| {
            let reader = threads.spawn(|| {
                let reader = domain.reader().unwrap();
                let section = reader.lock();
                let hit = bus.find(&section, &mut LastHit::default(), 0, 1).unwrap();
                found.store(true, Ordering::Release);
                thread::yield_now();
                hit.device.assert_alive();
                leaving.store(true, Ordering::Relaxed);
                drop(section);
            });
            by(&reader, || found.load(Ordering::Acquire));
            let device = bus.unregister(range(0, 1)).unwrap();
            assert!(leaving.load(Ordering::Relaxed));
            assert_eq!(device.id, n);
        });
    }
}

#[test]
fn readers_see_an_edit_as_one_change() {
    let (domain, bus) = bus();
    let over = AtomicBool::new(false);
    bus.register(range(0, 2), ()).unwrap();
    thread::scope(|threads| {
        let _over = Over(&over);
        threads.spawn(|| {
            let reader = domain.reader().unwrap();
            while !over.load(Ordering::Relaxed) {
                let section = reader.lock();
                let hit = bus.find(&section, &mut LastHit::default(), 0, 1);
                assert!(hit.is_some(), "between the removal and the insertion");
            }
        });
        let mut len = 2;
        for _ in 0..times(1000) {
            let resized = bus.edit(|edit| {
                edit.remove(range(0, len))?;
                edit.insert(range(0, 3 - len), ())?;
                Ok::<_, Error>(())
            });
            resized.unwrap().1.defer();
            len = 3 - len;
        }
    });
}
