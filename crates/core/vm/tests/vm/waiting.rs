//! Who waits for whom. What is said to wait for nobody is called while somebody is inside for good: if it waited, the
//! test would not end, which is a failure too.

use std::sync::Arc;
use std::thread::{JoinHandle, spawn, yield_now};

use mayfly_memslot::{Flags, Region};
use mayfly_vm::{Access, Bus, Device, Exit, SlotZap};

use crate::common::{
    AnyDevice, Log, Order, Outcome, Recorder, Setup, Stop, Stopped, Stopping, TestVm, deleted,
    ends, eventfd, hva, joined, mmio_exit, range, read, region, same, vm,
};

const HERE: u64 = 0x1000;

/// A vCPU 0 of `vm` that is inside a device at [`HERE`], and the device.
fn inside_a_device(vm: &TestVm, order: &Order) -> (JoinHandle<Outcome>, Stopped, Arc<dyn Device>) {
    let (stop, stopped) = Stop::new(order);
    let device: AnyDevice = Arc::new(stop);
    vm.register_device(Bus::Mmio, range(HERE, 8), device.clone()).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let running = spawn(move || read(&mut vcpu, HERE, 2));
    stopped.wait();
    (running, stopped, device)
}

/// Starts `work`, and returns when it is asleep, waiting for readers of `vm`'s.
fn asleep<T: Send + 'static>(
    vm: &TestVm,
    work: impl FnOnce(&TestVm) -> T + Send + 'static,
) -> JoinHandle<T> {
    let sleeps = vm.srcu().stats().sleeps;
    let sleeper = vm.clone();
    let waiting = spawn(move || work(&sleeper));
    while vm.srcu().stats().sleeps == sleeps {
        assert!(!waiting.is_finished(), "it did not wait");
        yield_now();
    }
    waiting
}

#[test]
fn unregistering_a_device_waits_for_the_vcpu_that_is_blocked_in_it() {
    ends(|| {
        let vm = vm();
        let order = Order::default();
        let (running, stopped, device) = inside_a_device(&vm, &order);
        let noting = order.clone();
        let unregistering = asleep(&vm, move |vm| {
            let device = vm.unregister_device(Bus::Mmio, range(HERE, 8)).unwrap();
            noting.note("the device was given back");
            device
        });
        let mut other = vm.create_vcpu(1).unwrap();
        assert_eq!(read(&mut other, HERE, 2), mmio_exit(HERE, 2, false), "it is found no more");

        stopped.go_on();
        assert!(same(&joined(unregistering), &device));
        assert_eq!(joined(running), Outcome::Device(vec![1; 2]), "the access was complete");
        assert_eq!(order.take(), ["the vCPU went on", "the device was given back"]);
    });
}

#[test]
fn changing_a_slot_waits_for_the_vcpu_that_is_using_it_as_it_was() {
    ends(|| {
        let logged = Region { flags: Flags::LOG_DIRTY_PAGES, ..region(0, 1, 1) };
        let gone = mmio_exit(0x1000, 8, false);
        let changes = [
            (deleted(region(0, 1, 1)), gone.clone()),
            (region(0, 2, 1), gone),
            (logged, Outcome::Memory(hva(0, 0))),
        ];
        for slot_zap in [SlotZap::Range, SlotZap::AllRoots] {
            for (change, outcome) in changes.clone() {
                let setup = Setup::new(slot_zap);
                let vm = setup.vm();
                vm.set_memory_region(&region(0, 1, 1)).unwrap();
                let order = Order::default();
                let (stop, stopped) = Stop::new(&order);
                setup.memory.when_asked(move || stop.here());
                let mut vcpu = vm.create_vcpu(0).unwrap();
                let running = spawn(move || read(&mut vcpu, 0x1000, 8));
                stopped.wait();

                let noting = order.clone();
                let changing = asleep(&vm, move |vm| {
                    vm.set_memory_region(&change).unwrap();
                    noting.note("the slot was changed");
                });
                stopped.go_on();
                joined(changing);
                assert_eq!(joined(running), outcome, "the slot as it is now decides");
                assert_eq!(order.take(), ["the vCPU went on", "the slot was changed"]);
            }
        }
    });
}

#[test]
fn what_takes_nothing_away_waits_for_no_vcpu_inside_a_device() {
    ends(|| {
        let vm = vm();
        let order = Order::default();
        let (running, stopped, _device) = inside_a_device(&vm, &order);
        let log = Log::default();

        for index in 0..100 {
            let at = 0x10_0000 + index * 0x10;
            vm.register_device(Bus::Mmio, range(at, 8), Recorder::device(7, &log)).unwrap();
            let on = eventfd(at, 4, Some(1));
            vm.register_eventfd(Bus::Mmio, on, Recorder::device(8, &log)).unwrap();
            let slot = u16::try_from(index).unwrap();
            vm.set_memory_region(&region(slot, 0x1000 + index, 1)).unwrap();
        }
        let mut vcpu = vm.create_vcpu(1).unwrap();
        assert_eq!(read(&mut vcpu, 0x10_0630, 8), Outcome::Device(vec![7; 8]));
        assert_eq!(read(&mut vcpu, 0x106_3000, 8), Outcome::Memory(hva(99, 0)));
        assert!(vm.kick(0));
        assert!(vm.kick(1));
        drop(vcpu);
        let srcu = vm.srcu().clone();
        assert!(srcu.stats().deferred > 0, "what was replaced is still there");
        assert_eq!(srcu.stats().sleeps, 0, "nobody waited");
        vm.destroy();

        order.note("all was done");
        stopped.go_on();
        assert_eq!(joined(running), Outcome::Exit(Exit::Kicked));
        assert_eq!(order.take(), ["all was done", "the vCPU went on"]);
    });
}

/// A device that creates a slot would wait for who waits for it.
#[test]
fn creating_a_slot_does_not_wait_for_who_deletes_another_and_waits_for_a_vcpu() {
    ends(|| {
        let vm = vm();
        let order = Order::default();
        vm.set_memory_region(&region(0, 0x1000, 1)).unwrap();
        let (running, stopped, _device) = inside_a_device(&vm, &order);
        let deleting = asleep(&vm, |vm| vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap());
        vm.set_memory_region(&region(1, 0x2000, 1)).unwrap();
        order.note("the slot is there");
        stopped.go_on();
        joined(deleting);
        joined(running);
        assert_eq!(order.take(), ["the slot is there", "the vCPU went on"]);
    });
}

#[test]
fn nothing_waits_for_a_vcpu_in_the_guest() {
    ends(|| {
        let vm = vm();
        let order = Order::default();
        let log = Log::default();
        let (stop, stopped) = Stop::new(&order);
        let mut vcpu = vm.create_vcpu(0).unwrap();
        let access = Access::data(region(0, 1, 1).gpa, 8, false);
        let mut guest = Stopping { stop, access: Some(access) };
        vm.set_memory_region(&region(0, 1, 1)).unwrap();
        vm.register_device(Bus::Mmio, range(0x10_0000, 8), Recorder::device(1, &log)).unwrap();
        let running = spawn(move || vcpu.run(&mut guest));
        stopped.wait();

        vm.unregister_device(Bus::Mmio, range(0x10_0000, 8)).unwrap();
        vm.set_memory_region(&region(0, 2, 1)).unwrap();
        vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
        assert_eq!(vm.srcu().stats().sleeps, 0);
        order.note("the slot is gone");
        stopped.go_on();
        assert_eq!(joined(running), Exit::Mmio(access), "it finds what there is now");
        assert_eq!(order.take(), ["the slot is gone", "the vCPU went on"]);
    });
}

#[test]
fn vms_of_a_platform_do_not_wait_for_each_others_vcpus() {
    ends(|| {
        let setup = Setup::new(SlotZap::AllRoots);
        let vm = setup.vm();
        let order = Order::default();
        let (running, stopped, _device) = inside_a_device(&vm, &order);
        let other = setup.vm();
        other.set_memory_region(&region(0, 0, 1)).unwrap();
        other.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
        assert_eq!(other.srcu().stats().sleeps, 0);
        other.destroy();
        stopped.go_on();
        joined(running);
    });
}
