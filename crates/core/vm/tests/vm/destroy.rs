//! The end of a VM.

use std::sync::mpsc::channel;
use std::thread::spawn;

use mayfly_memslot::{Gfn, PAGE_SIZE};
use mayfly_platform::tlb::Scope;
use mayfly_stage2::{Format, Role, Slice};
use mayfly_vm::{Bus, Error, Event, Exit, Guest, Reason, Requests, SlotZap, Translation};

use crate::common::{
    AnyDevice, Order, Outcome, Setup, Sleeper, Stop, Stopping, TestFormat, TestVcpu, deleted,
    frames, hva, joined, range, read, region, top, write,
};

fn never_entered(vcpu: &mut TestVcpu) {
    struct Never;
    impl<F: Format> Guest<F> for Never {
        fn enter(&mut self, _translation: Translation<F>, _requests: &Requests) -> Event {
            panic!("the VM is gone")
        }
        fn forget(&mut self, _: Gfn) {}

        fn data(&mut self) -> &mut [u8] {
            unreachable!("it is never entered")
        }

        fn answered(&mut self) {}
    }
    for _ in 0..3 {
        assert_eq!(vcpu.run(&mut Never), Exit::Kicked);
    }
}

/// All-VMID invalidations since the last time, in the place of every other.
fn whole_invalidations(setup: &Setup) -> usize {
    let issued = setup.hardware.take_invalidations();
    assert!(issued.iter().all(|(_, scope)| *scope == Scope::All), "{issued:?}");
    issued.len()
}

#[test]
fn destroying_leaves_the_tables_to_the_reclaimer_which_waits_for_no_vcpu_that_is_outside() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpus = [0, 1, 2].map(|id| vm.create_vcpu(id).unwrap());
    vm.set_memory_region(&region(0, 0, 1 << 18)).unwrap();
    for gfn in (0..1 << 18).step_by(512) {
        write(&mut vcpus[gfn as usize / 512 % 3], gfn * PAGE_SIZE, &[1]);
    }
    let frames = setup.hardware.live();
    assert!(frames >= 512);
    let other = vm.clone();
    vm.destroy();
    assert_eq!((setup.hardware.live(), setup.reclaimer.frames()), (frames, frames));
    assert_eq!(setup.hardware.take_invalidations(), [], "it does nothing itself");
    other.wait_reclaimed();
    assert!(setup.reclaim());
    assert_eq!((setup.hardware.live(), setup.reclaimer.frames()), (0, 0));
    assert_eq!(whole_invalidations(&setup), 1);
    assert!(setup.reclaimer.peak_frames() >= frames);
    assert_eq!(setup.caches.take_cleaned(), []);
    vcpus.iter_mut().for_each(never_entered);
}

#[test]
fn every_live_root_is_invalidated_once_and_one_that_was_never_entered_not_at_all() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    read(&mut vcpu, 0, 1);
    // Another role's root, entered by nobody.
    drop(vm.stage2().root(Role::new(1).unwrap(), &vm.srcu().read_lock()).unwrap());
    vm.destroy();
    drop(vcpu);
    assert!(setup.reclaim());
    assert_eq!((whole_invalidations(&setup), setup.hardware.live()), (1, 0));
}

#[test]
fn destroying_waits_for_no_vcpu_in_the_guest_nor_in_a_device() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let order = Order::default();
    let (device, in_device) = Stop::new(&order);
    vm.register_device(Bus::Mmio, range(0x1000, 8), std::sync::Arc::new(device) as AnyDevice)
        .unwrap();
    let (guest, in_guest) = Stop::new(&order);
    let [mut one, mut two] = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
    let one = spawn(move || (read(&mut one, 0x1000, 1), one));
    let two = spawn(move || (two.run(&mut Stopping { stop: guest, access: None }), two));
    in_device.wait();
    in_guest.wait();
    let other = vm.clone();
    vm.destroy();
    order.note("destroyed");
    assert!(!setup.reclaim());
    in_device.go_on();
    let (outcome, _one) = joined(one);
    assert_eq!(outcome, Outcome::Exit(Exit::Kicked));
    assert!(!setup.reclaim(), "the other one is still in the guest");
    in_guest.go_on();
    let (exit, mut two) = joined(two);
    assert_eq!(exit, Exit::Halt);
    never_entered(&mut two);
    assert_eq!(order.take(), ["destroyed", "the vCPU went on", "the vCPU went on"]);
    assert!(setup.reclaim());
    other.wait_reclaimed();
    assert_eq!(setup.hardware.live(), 0);
}

#[test]
fn memory_is_taken_away_from_a_vcpu_that_has_not_come_out_of_a_destroyed_vm() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    write(&mut vcpu, 0, &[1]);
    let root = top(&mut vcpu);
    let mapped = || frames::walk::<TestFormat>(root, Gfn::new(0)).is_some();
    let (stop, stopped) = Stop::new(&Order::default());
    let running = spawn(move || drop((vcpu.run(&mut Stopping { stop, access: None }), vcpu)));
    stopped.wait();
    vm.clone().destroy();
    assert!(!setup.reclaim() && mapped());
    drop(vm.invalidate_start(hva(0, 0), PAGE_SIZE, Reason::Unmap));
    assert!(!mapped());
    assert_eq!(setup.hardware.take_invalidations().len(), 1);
    stopped.go_on();
    joined(running);
    assert!(setup.reclaim());
    assert_eq!((whole_invalidations(&setup), setup.hardware.live()), (1, 0));
}

#[test]
fn a_reclaimer_that_is_served_frees_everything_when_the_vcpus_have_come_out() {
    let setup = Setup::new(SlotZap::AllRoots);
    let reclaimer = setup.reclaimer.clone();
    let serving = spawn(move || reclaimer.serve(Slice::default()));
    for _ in 0..10 {
        let vm = setup.vm();
        vm.set_memory_region(&region(0, 0, 1 << 18)).unwrap();
        let (entered, entries) = channel();
        let running: Vec<_> = (0..3)
            .map(|id| {
                let (mut vcpu, entered) = (vm.create_vcpu(id).unwrap(), entered.clone());
                spawn(move || {
                    write(&mut vcpu, u64::from(id) << 21, &[1]);
                    (vcpu.run(&mut Sleeper(entered)), vcpu)
                })
            })
            .collect();
        for _ in &running {
            entries.recv().unwrap();
        }
        let other = vm.clone();
        vm.destroy();
        let vcpus: Vec<_> = running.into_iter().map(joined).collect();
        assert!(vcpus.iter().all(|(exit, _)| *exit == Exit::Kicked));
        other.wait_reclaimed();
        assert_eq!(setup.hardware.live(), 0);
        assert_eq!(whole_invalidations(&setup), 1);
    }
    setup.reclaimer.stop();
    joined(serving);
}

#[test]
fn a_destroyed_vm_can_still_be_changed_and_gets_no_vcpu() {
    for slot_zap in [SlotZap::Range, SlotZap::AllRoots] {
        let setup = Setup::new(slot_zap);
        let vm = setup.vm();
        let mut vcpu = vm.create_vcpu(0).unwrap();
        vm.set_memory_region(&region(0, 0, 4)).unwrap();
        read(&mut vcpu, 0, 1);
        vm.clone().destroy();
        vm.clone().destroy();
        vm.set_memory_region(&region(1, 0x10, 4)).unwrap();
        vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
        drop(vm.invalidate_start(hva(1, 0), PAGE_SIZE, Reason::Unmap));
        assert_eq!(vm.age(hva(1, 0), PAGE_SIZE), 0);
        let refused = vm.create_vcpu(1).map(|_| ()).unwrap_err();
        assert_eq!(refused, Error::Stage2(mayfly_stage2::Error::Destroyed));
        assert_eq!(vm.vcpu_count(), 1);
        never_entered(&mut vcpu);
        assert!(setup.reclaim());
        vm.wait_reclaimed();
        assert_eq!(setup.hardware.live(), 0);
    }
}

#[test]
fn a_vm_that_is_only_dropped_is_reclaimed_too() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    write(&mut vcpu, 0, &[1]);
    drop(vm);
    assert_eq!(write(&mut vcpu, 0x1000, &[1]), Outcome::Memory(hva(0, 0x1000)), "its vCPU runs on");
    drop(vcpu);
    assert!(setup.reclaim());
    assert_eq!((whole_invalidations(&setup), setup.hardware.live()), (1, 0));
}

#[test]
fn roots_that_were_replaced_are_reclaimed_with_the_vm() {
    let setup = Setup::new(SlotZap::AllRoots);
    let vm = setup.vm();
    let mut vcpus = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
    for _ in 0..3 {
        vm.set_memory_region(&region(0, 0, 4)).unwrap();
        // The other one stays on the root that it has.
        write(&mut vcpus[0], 0, &[1]);
        vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
    }
    vm.destroy();
    drop(vcpus);
    assert!(setup.reclaim());
    assert_eq!(setup.hardware.live(), 0);
    // Three that were entered, and the last one, which was not.
    assert_eq!(whole_invalidations(&setup), 3);
}

/// Safe code may close the roots of a VM that goes on.
#[test]
fn a_slot_is_zapped_in_the_root_that_a_vcpu_is_in_though_no_root_is_made_any_more() {
    let setup = Setup::new(SlotZap::AllRoots);
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 0x10, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    write(&mut vcpu, 0x1_0000, &[1]);
    let root = top(&mut vcpu);
    let mapped = || frames::walk::<TestFormat>(root, Gfn::new(0x10)).is_some();
    let (stop, stopped) = Stop::new(&Order::default());
    let running = spawn(move || {
        let exit = vcpu.run(&mut Stopping { stop, access: None });
        (exit, vcpu)
    });
    stopped.wait();
    vm.stage2().retire();
    assert!(mapped());
    vm.set_memory_region(&deleted(region(0, 0x10, 4))).unwrap();
    let is_mapped = mapped();
    stopped.go_on();
    drop(joined(running));
    assert!(!is_mapped);
}
