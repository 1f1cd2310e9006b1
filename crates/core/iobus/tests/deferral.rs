//! What becomes of what an edit replaced: how many grace periods it takes, and what counts against which bound.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Device, bus, bus_within, range};
use mayfly_iobus::{IoBus, Replaced};
use mayfly_srcu::{Callback, Limits, Srcu};

const MANY: u64 = if cfg!(miri) { 20 } else { 500 };

/// A bus of [`MANY`] devices, and what removing all of them at once replaced.
fn emptied(bus: &IoBus<Device>, living: &Arc<AtomicUsize>) -> Replaced<Device> {
    for n in 0..MANY {
        bus.register(range(n, 1), Device::new(n, living)).unwrap();
    }
    bus.domain().barrier();
    assert_eq!(living.load(Ordering::Relaxed), MANY as usize);
    let ((), replaced) =
        bus.edit(|edit| (0..MANY).try_for_each(|n| edit.remove(range(n, 1)))).unwrap();
    replaced
}

/// Bounds of which a single callback reaches the hard one.
const TIGHT: Limits = Limits { soft_count: 1, hard_count: 1, ..bytes(1 << 20, 16 << 20) };

const fn bytes(soft_bytes: usize, hard_bytes: usize) -> Limits {
    Limits { soft_count: 1 << 10, soft_bytes, hard_count: 1 << 14, hard_bytes }
}

/// Brings the domain to its hard bound, if that is [`TIGHT`], until a grace period.
fn fill(domain: &Srcu) {
    domain.try_call(Callback::try_new(|| ()).unwrap()).unwrap();
}

#[test]
fn many_devices_that_are_deferred_expedited_are_one_grace_period() {
    let living = Arc::default();
    let (domain, bus) = bus();
    let reader = domain.reader().unwrap();
    let replaced = emptied(&bus, &living);
    let before = domain.stats().grace_periods;
    replaced.defer_expedited();
    assert_eq!(living.load(Ordering::Relaxed), 0);
    assert_eq!(domain.stats().grace_periods - before, 1);
    drop(reader);
}

#[test]
fn many_devices_that_are_dropped_at_the_hard_bound_wait_for_one_grace_period() {
    let living = Arc::default();
    let (domain, bus) = bus_within(TIGHT);
    let reader = domain.reader().unwrap();
    let replaced = emptied(&bus, &living);
    fill(&domain);
    let before = domain.stats();
    drop(replaced);
    assert_eq!(living.load(Ordering::Relaxed), 0);
    let after = domain.stats();
    assert_eq!(after.calls_at_bound - before.calls_at_bound, 1);
    assert_eq!(after.grace_periods - before.grace_periods, 1);
    drop(reader);
}

#[test]
fn what_is_deferred_from_inside_a_section_comes_back_at_the_hard_bound_and_waits_for_nobody() {
    let living = Arc::default();
    let (domain, bus) = bus_within(TIGHT);
    let reader = domain.reader().unwrap();
    let replaced = emptied(&bus, &living);
    let section = reader.lock();
    fill(&domain);
    let sleeps = domain.stats().sleeps;
    let replaced = replaced.try_defer().unwrap_err();
    let replaced = replaced.try_defer().unwrap_err();
    assert_eq!(living.load(Ordering::Relaxed), MANY as usize);
    assert_eq!(domain.stats().sleeps, sleeps);
    drop(section);
    domain.barrier();
    replaced.try_defer().unwrap();
    assert_eq!(domain.stats().deferred, 1);
    domain.barrier();
    assert_eq!(living.load(Ordering::Relaxed), 0);
}

#[test]
fn devices_that_came_back_at_the_hard_bound_can_be_had_in_the_order_in_which_they_were_removed() {
    let living = Arc::default();
    let (domain, bus) = bus_within(TIGHT);
    let _reader = domain.reader().unwrap();
    let replaced = emptied(&bus, &living);
    fill(&domain);
    let devices = replaced.try_defer().unwrap_err().synchronize();
    assert!(devices.map(|device| device.id).eq(0..MANY));
}

#[test]
fn removed_devices_count_against_the_byte_bounds_as_large_as_they_are() {
    type Large = [u8; 4096];
    const LARGE: usize = size_of::<Large>();
    let (domain, bus) = bus_within::<Large>(bytes(100 * LARGE, 1000 * LARGE));
    let reader = domain.reader().unwrap();
    let put = |n| bus.register(range(n, 1), [0; LARGE]).unwrap();
    (0..200).for_each(put);
    domain.barrier();
    let remove = |from: u64, to: u64| {
        let removed = bus.edit(|edit| (from..to).try_for_each(|n| edit.remove(range(n, 1))));
        removed.unwrap().1
    };
    // While a reader is inside, all of it stays.
    let section = reader.lock();
    let before = domain.stats();
    remove(0, 50).defer();
    let deferred = domain.stats().deferred_bytes - before.deferred_bytes;
    assert!((50 * LARGE..60 * LARGE).contains(&deferred), "{deferred}");
    assert_eq!(domain.stats().grace_periods, before.grace_periods);
    // The soft bound is one of bytes, for there are two callbacks.
    remove(50, 150).defer();
    assert_eq!(domain.stats().deferred, before.deferred + 2);
    assert_eq!(domain.stats().grace_periods, before.grace_periods + 1);
    drop(section);
    domain.barrier();
    assert_eq!(domain.stats().deferred_bytes, 0);
}
