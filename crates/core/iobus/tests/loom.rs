//! The bus under loom: a vCPU that looks up while the bus is changed, in every interleaving and with every value that a
//! load may return.
//!
//! A device is a loom cell, which vCPUs read and its drop writes: loom fails the model if the two are not ordered.

#![cfg(mayfly_loom)]

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use mayfly_iobus::{Error, IoBus, IoRange, Ioeventfd, LastHit, Relocation, WriteHit};
use mayfly_platform::{Model, Platform};
use mayfly_srcu::{Config, ReadGuard, Reader, Srcu};

struct Device(UnsafeCell<u64>);

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Device {}

impl Device {
    fn new(id: u64) -> Self {
        Self(UnsafeCell::new(id))
    }

    fn id(&self) -> u64 {
        // SAFETY: loom checks it.
        self.0.with(|cell| unsafe { *cell })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: loom checks it.
        self.0.with_mut(|cell| unsafe { *cell = 0 });
    }
}

type Bus = Arc<IoBus<Device>>;

/// A bus with device 1 on [`HERE`].
fn bus() -> (Srcu, Bus) {
    let platform: std::sync::Arc<dyn Platform> = std::sync::Arc::new(Model::new());
    let domain = Srcu::try_new(std::sync::Arc::clone(&platform), Config::default()).unwrap();
    let bus = IoBus::try_new(&domain, platform).unwrap();
    bus.register(HERE, Device::new(1)).unwrap();
    (domain, Arc::new(bus))
}

const HERE: IoRange = IoRange { start: 0x10, len: 4 };
const THERE: IoRange = IoRange { start: 0x20, len: 4 };
/// Has two addresses in common with [`HERE`].
const ASIDE: IoRange = IoRange { start: 0x12, len: 4 };
const BELL: Ioeventfd = Ioeventfd { address: 0x10, len: 4, datamatch: None };

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound.get_or_insert(3);
    builder.check(model);
}

/// Who answers a read of the two addresses that [`HERE`] and [`ASIDE`] share.
fn shared(bus: &Bus, section: &ReadGuard<'_>) -> Option<u64> {
    Some(bus.find(section, &mut LastHit::default(), ASIDE.start, 2)?.device.id())
}

/// Who answers reads at both places. Each is a lookup in the version that is then present, in one section too.
fn both(bus: &Bus, section: &ReadGuard<'_>) -> [Option<u64>; 2] {
    let mut last = LastHit::default();
    [HERE, THERE].map(|at| Some(bus.find(section, &mut last, at.start, 4)?.device.id()))
}

/// A vCPU that looks at the bus in a section.
fn vcpu(bus: &Bus, reader: Reader, look: fn(&Bus, &ReadGuard<'_>)) -> JoinHandle<()> {
    let bus = Arc::clone(bus);
    thread::spawn(move || look(&bus, &reader.lock()))
}

#[test]
fn a_device_that_is_unregistered_is_given_back_when_no_vcpu_reads_it() {
    check(|| {
        let (domain, bus) = bus();
        let vcpu = vcpu(&bus, domain.reader().unwrap(), |bus, section| {
            assert!([[Some(1), None], [None, None]].contains(&both(bus, section)));
        });
        let device = bus.unregister(HERE).unwrap();
        assert_eq!(device.id(), 1);
        drop(device);
        vcpu.join().unwrap();
    });
}

#[test]
fn a_device_that_is_removed_and_deferred_is_dropped_when_no_vcpu_reads_it() {
    check(|| {
        let (domain, bus) = bus();
        let vcpu = vcpu(&bus, domain.reader().unwrap(), |bus, section| {
            assert!([[Some(1), None], [None, None]].contains(&both(bus, section)));
        });
        bus.remove(HERE).unwrap().defer_expedited();
        vcpu.join().unwrap();
        domain.barrier();
    });
}

#[test]
fn a_device_that_an_edit_puts_in_anothers_place_leaves_no_moment_without_either() {
    check(|| {
        let (domain, bus) = bus();
        let vcpu = vcpu(&bus, domain.reader().unwrap(), |bus, section| {
            let first = shared(bus, section).unwrap();
            let second = shared(bus, section).unwrap();
            assert!(first <= second && [1, 2].contains(&first));
        });
        let edit = bus.edit(|edit| {
            edit.remove(HERE)?;
            edit.insert(ASIDE, Device::new(2))?;
            Ok::<_, Error>(())
        });
        edit.unwrap().1.defer_expedited();
        vcpu.join().unwrap();
    });
}

#[test]
fn a_device_that_moves_answers_throughout_where_it_was_and_will_be() {
    check(|| {
        let (domain, bus) = bus();
        let reader = domain.reader().unwrap();
        let vcpu = vcpu(&bus, domain.reader().unwrap(), |bus, section| {
            assert_eq!(shared(bus, section), Some(1));
        });
        {
            // As a device does it: from inside a section.
            let section = reader.lock();
            bus.try_relocate(&[Relocation::Device { from: HERE, to: ASIDE }]).unwrap();
            assert_eq!(shared(&bus, &section), Some(1));
        }
        vcpu.join().unwrap();
        drop(bus.unregister(ASIDE).unwrap());
    });
}

#[test]
fn a_doorbell_that_is_taken_off_leaves_its_writes_to_the_device_around_it() {
    check(|| {
        let (domain, bus) = bus();
        bus.register_eventfd(BELL, Device::new(3)).unwrap();
        let vcpu = vcpu(&bus, domain.reader().unwrap(), |bus, section| {
            let write = bus.find_write(section, &mut LastHit::default(), HERE.start, 4, 0);
            match write.unwrap() {
                WriteHit::Eventfd(device) => assert_eq!(device.id(), 3),
                WriteHit::Device(hit) => assert_eq!(hit.device.id(), 1),
            }
        });
        drop(bus.unregister_eventfd(BELL).unwrap());
        vcpu.join().unwrap();
    });
}

#[test]
fn two_writers_lose_none_of_each_others_changes() {
    check(|| {
        let (domain, bus) = bus();
        let other = {
            let bus = Arc::clone(&bus);
            thread::spawn(move || {
                bus.register(THERE, Device::new(2)).unwrap();
            })
        };
        drop(bus.unregister(HERE).unwrap());
        other.join().unwrap();
        let reader = domain.reader().unwrap();
        assert_eq!(both(&bus, &reader.lock()), [None, Some(2)]);
    });
}
