//! A guest that moves a device's BAR: the device moves itself, while the vCPU that asked for it waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use mayfly_iobus::{Error as BusError, IoRange, Relocation};
use mayfly_srcu::{Callback, Limits};
use mayfly_vm::{Bus, Config, Device, Error, SlotZap, Vm};

use crate::common::{
    AnyDevice, Kinds, Outcome, Over, Setup, TestVcpu, TestVm, eventfd, mmio_exit, range, read, vm,
    write,
};

const LEN: u64 = 0x1000;

/// A device with a BAR, which moves to the address that is written to it, and reads as 7.
struct Movable {
    /// Holds the device in turn, until that is unregistered.
    vm: TestVm,
    /// Where the BAR is; locked for as long as it moves.
    place: Mutex<IoRange>,
    /// What came of the last move.
    moved: Mutex<Result<(), Error>>,
}

impl Movable {
    fn at(vm: &TestVm, start: u64) -> Arc<Self> {
        let place = range(start, LEN);
        let (at, moved) = (Mutex::new(place), Mutex::new(Ok(())));
        let device = Arc::new(Self { vm: vm.clone(), place: at, moved });
        vm.register_device(Bus::Mmio, place, device.clone()).unwrap();
        device
    }

    fn unplug(&self) {
        let place = *self.place.lock().unwrap();
        self.vm.unregister_device(Bus::Mmio, place).unwrap();
    }
}

impl Device for Movable {
    fn read(&self, _vcpu: u32, _offset: u64, data: &mut [u8]) {
        data.fill(7);
    }

    fn write(&self, _vcpu: u32, _offset: u64, data: &[u8]) {
        let mut place = self.place.lock().unwrap();
        let to = range(u64::from_le_bytes(data.try_into().unwrap()), LEN);
        let moved = self.vm.relocate(Bus::Mmio, &[Relocation::Device { from: *place, to }]);
        if moved.is_ok() {
            *place = to;
        }
        *self.moved.lock().unwrap() = moved;
    }
}

/// A write of `start` to the BAR at `bar`.
fn move_bar(vcpu: &mut TestVcpu, bar: u64, start: u64) {
    let data = start.to_le_bytes();
    assert_eq!(write(vcpu, bar, &data), Outcome::Device(data.to_vec()));
}

#[test]
fn a_bar_that_its_device_moves_is_found_at_its_new_place_by_the_same_vcpus_next_access() {
    let vm = vm();
    let device = Movable::at(&vm, 0x10_0000);
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let stats = vm.srcu().stats();
    move_bar(&mut vcpu, 0x10_0000, 0x20_0000);
    assert_eq!(read(&mut vcpu, 0x20_0004, 4), Outcome::Device(vec![7; 4]));
    assert_eq!(read(&mut vcpu, 0x10_0004, 4), mmio_exit(0x10_0004, 4, false));
    let after = vm.srcu().stats();
    assert_eq!((after.grace_periods, after.sleeps), (stats.grace_periods, stats.sleeps));
    device.unplug();
}

#[test]
fn a_bar_that_cannot_be_moved_stays_where_it_is() {
    let vm = vm();
    let (device, other) = (Movable::at(&vm, 0x10_0000), Movable::at(&vm, 0x20_0000));
    let mut vcpu = vm.create_vcpu(0).unwrap();
    for (to, errno) in [(0x20_0fff, 17), (u64::MAX - 1, 22)] {
        move_bar(&mut vcpu, 0x10_0000, to);
        assert_eq!(device.moved.lock().unwrap().unwrap_err().errno(), errno);
        assert_eq!(read(&mut vcpu, 0x10_0000, 1), Outcome::Device(vec![7]));
    }
    let bell = eventfd(0x10_0000, 4, None);
    let missing = vm.relocate(Bus::Mmio, &[Relocation::Eventfd { from: bell, to: bell }]);
    assert_eq!(missing, Err(Error::Bus(BusError::NoEventfd(bell))));
    device.unplug();
    other.unplug();
}

/// A VM in whose domain one callback is as much as may be deferred.
fn tight_vm() -> TestVm {
    let limits = Limits { soft_count: 1, hard_count: 1, ..Limits::default() };
    let config = Setup::new(SlotZap::Range).config();
    let srcu = mayfly_srcu::Config { limits, ..config.srcu };
    Vm::create(Config::<Kinds> { srcu, ..config }).unwrap()
}

#[test]
fn at_the_hard_bound_a_device_moves_once_and_is_refused_then_and_never_waits() {
    let vm = tight_vm();
    let device = Movable::at(&vm, 0x10_0000);
    let (mut vcpu, mut other) = (vm.create_vcpu(0).unwrap(), vm.create_vcpu(1).unwrap());
    vm.srcu().barrier();
    // Somebody's section keeps what is deferred, and so keeps the bound reached.
    let section = vm.srcu().read_lock_owned();
    vm.srcu().try_call(Callback::try_new(|| ()).unwrap()).unwrap();
    let stats = vm.srcu().stats();
    move_bar(&mut vcpu, 0x10_0000, 0x20_0000);
    assert_eq!(*device.moved.lock().unwrap(), Ok(()));
    assert_eq!(read(&mut other, 0x20_0000, 1), Outcome::Device(vec![7]));
    move_bar(&mut other, 0x20_0000, 0x30_0000);
    let refused = device.moved.lock().unwrap().unwrap_err();
    assert_eq!((refused, refused.errno()), (Error::Bus(BusError::AtBound), 11));
    assert_eq!(read(&mut vcpu, 0x20_0000, 1), Outcome::Device(vec![7]));
    assert_eq!(vm.srcu().stats().sleeps, stats.sleeps);
    drop(section);
    // What a thread that handles no access does about it.
    vm.srcu().synchronize();
    move_bar(&mut vcpu, 0x20_0000, 0x30_0000);
    assert_eq!(*device.moved.lock().unwrap(), Ok(()));
    assert_eq!(read(&mut other, 0x30_0000, 1), Outcome::Device(vec![7]));
    device.unplug();
}

#[test]
fn a_bar_moves_under_vcpus_that_run_while_others_devices_come_and_go() {
    const PLACES: [u64; 3] = [0x10_0000, 0x20_0000, 0x30_0000];
    const MOVES: usize = if cfg!(miri) { 20 } else { 2000 };
    let vm = vm();
    let device = Movable::at(&vm, PLACES[0]);
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        let _over = Over(&over);
        threads.spawn(|| {
            // Finds the device wherever it looks, or nothing; and only the device's bytes.
            let mut vcpu = vm.create_vcpu(1).unwrap();
            while !over.load(Ordering::Relaxed) {
                for place in PLACES {
                    let found = read(&mut vcpu, place, 1);
                    assert!(
                        [Outcome::Device(vec![7]), mmio_exit(place, 1, false)].contains(&found)
                    );
                }
            }
        });
        threads.spawn(|| {
            // Waits for accesses that are being handled, those that move the BAR among them.
            let plugged: AnyDevice = device.clone();
            while !over.load(Ordering::Relaxed) {
                vm.register_device(Bus::Mmio, range(0x40_0000, 4), plugged.clone()).unwrap();
                vm.unregister_device(Bus::Mmio, range(0x40_0000, 4)).unwrap();
            }
        });
        let mut vcpu = vm.create_vcpu(0).unwrap();
        for (from, to) in (0..MOVES).map(|n| (PLACES[n % 3], PLACES[(n + 1) % 3])) {
            move_bar(&mut vcpu, from, to);
            assert_eq!(*device.moved.lock().unwrap(), Ok(()));
            assert_eq!(read(&mut vcpu, to, 1), Outcome::Device(vec![7]));
            assert_eq!(read(&mut vcpu, from, 1), mmio_exit(from, 1, false));
        }
    });
    device.unplug();
    let stats = vm.srcu().stats();
    assert!(stats.peak_deferred <= Limits::default().hard_count, "{stats:?}");
}
