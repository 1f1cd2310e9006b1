//! Devices that come and go.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_iobus::{IoRange, Ioeventfd};
use mayfly_memslot::Gpa;
use mayfly_vm::{Bus, Device};

use crate::Storm;
use crate::random::Random;
use crate::tally::{Tally, What};

/// Places for devices.
const PLACES: u64 = 16;
/// What an ioeventfd matches.
const MATCH: u64 = 7;
/// A device that was given back is kept until so many others were: an access that comes too late finds it poisoned, not
/// freed.
const KEPT: usize = 256;

const ALIVE: u64 = 0xa11_fe11;

/// Where the devices of place `place` answer.
pub(crate) fn range(place: u64) -> IoRange {
    IoRange { start: 0xd000_0000 + place * 0x100, len: 8 }
}

/// Somewhere in a place; and a value to write there, which may be one that an ioeventfd matches.
pub(crate) fn target(random: &mut Random) -> (Gpa, u64) {
    (Gpa::new(range(random.below(PLACES)).start), MATCH + random.below(2))
}

/// A device that knows whether it may still be called.
pub(crate) struct Mortal {
    alive: AtomicU64,
    given_back: AtomicBool,
    calls: AtomicU64,
    tally: Arc<Tally>,
}

impl Mortal {
    pub(crate) fn new(tally: &Arc<Tally>) -> Arc<Self> {
        Arc::new(Self {
            alive: AtomicU64::new(ALIVE),
            given_back: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            tally: tally.clone(),
        })
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Nobody may call it from now on.
    pub(crate) fn give_back(&self) {
        self.given_back.store(true, Ordering::Release);
    }

    fn check(&self) {
        assert_eq!(self.alive.load(Ordering::Relaxed), ALIVE, "a device is used after its drop");
        assert!(
            !self.given_back.load(Ordering::Acquire),
            "a device is used after it was given back"
        );
    }

    /// A call, now and then a long one.
    fn call(&self) {
        self.check();
        self.tally.add(What::DeviceCalled, 1);
        if self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(16) {
            std::thread::yield_now();
        }
        self.check();
    }
}

impl Device for Mortal {
    fn read(&self, _vcpu: u32, _offset: u64, data: &mut [u8]) {
        self.call();
        data.fill(0);
    }

    fn write(&self, _vcpu: u32, _offset: u64, _data: &[u8]) {
        self.call();
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        let alive = self.alive.swap(0xdead_dead, Ordering::Relaxed);
        assert_eq!(alive, ALIVE, "a device is dropped twice");
    }
}

/// Puts devices and ioeventfds on the bus and takes them off, until the storm is over.
pub(crate) fn come_and_go(storm: &Storm, random: &mut Random) {
    let mut places: Vec<[Option<Arc<Mortal>>; 2]> = vec![[None, None]; PLACES as usize];
    let mut kept = VecDeque::new();
    while !storm.tally.is_over() {
        let place = random.below(PLACES);
        let eventfd = random.once_in(2);
        let here = &mut places[place as usize][usize::from(eventfd)];
        if let Some(device) = here.take() {
            unregister(storm, place, eventfd, &device);
            storm.tally.add(What::Unregistered, 1);
            kept.push_back(device);
            kept.drain(..kept.len().saturating_sub(KEPT));
        } else {
            let device = Mortal::new(&storm.tally);
            register(storm, place, eventfd, &device);
            storm.tally.add(What::Registered, 1);
            *here = Some(device);
        }
    }
}

fn register(storm: &Storm, place: u64, eventfd: bool, device: &Arc<Mortal>) {
    let registered = |again: bool| {
        let result = if eventfd {
            storm.vm.register_eventfd(Bus::Mmio, on(place), device.clone())
        } else {
            storm.vm.register_device(Bus::Mmio, range(place), device.clone())
        };
        assert_eq!(result.is_err(), again, "a place is taken once");
    };
    registered(false);
    registered(true);
}

fn unregister(storm: &Storm, place: u64, eventfd: bool, device: &Arc<Mortal>) {
    let unregistered = if eventfd {
        storm.vm.unregister_eventfd(Bus::Mmio, on(place))
    } else {
        storm.vm.unregister_device(Bus::Mmio, range(place))
    };
    device.give_back();
    drop(unregistered.expect("it was registered"));
    assert_eq!(Arc::strong_count(device), 1, "the bus has let go of it");
}

fn on(place: u64) -> Ioeventfd {
    Ioeventfd { address: range(place).start, len: 4, datamatch: Some(MATCH) }
}
