//! vCPUs that are outside their guests, and are not run again: no table is kept for them.

use std::sync::Arc;

use mayfly_memslot::PAGE_SIZE;
use mayfly_stage2::{Format, Reclaimer, Slice};
use mayfly_vm::{Exit, SlotZap};

use crate::common::{
    Order, Setup, Stop, Stopping, TestVm, deleted, joined, mmio_exit, read, region, soon, write,
};

/// Tables that may await reclaim before who deletes a slot helps: those of not quite four sets of roots.
const BOUND: usize = 64;

fn bounded() -> Setup {
    let mut setup = Setup::new(SlotZap::AllRoots);
    setup.reclaimer = Arc::new(Reclaimer::new(setup.hardware.clone(), BOUND));
    setup
}

/// 32 MiB, a page in each 2 MiB of which is used.
const PAGES: u64 = 1 << 13;

fn pages() -> impl Iterator<Item = u64> {
    (0..PAGES).step_by(512)
}

/// Frames that are the tables of present roots.
fn present(vm: &TestVm, setup: &Setup) -> usize {
    vm.stage2().frames() - setup.reclaimer.frames()
}

#[test]
fn a_thousand_deletions_with_eight_parked_vcpus_keep_no_more_than_the_bound_and_one_set_of_roots() {
    let setup = bounded();
    let vm = setup.vm();
    let mut parked = [0, 1, 2, 3, 4, 5, 6, 7].map(|id| vm.create_vcpu(id).unwrap());
    let mut running = vm.create_vcpu(8).unwrap();
    // This one has never run.
    let _idle = vm.create_vcpu(9).unwrap();
    let mut largest = 0;
    for round in 0..1000 {
        vm.set_memory_region(&region(0, 0, PAGES)).unwrap();
        // Each is parked on another root: it has halted, or was kicked, or its caller has its exit.
        let vcpu = parked.get_mut(round).unwrap_or(&mut running);
        for page in pages() {
            write(vcpu, page * PAGE_SIZE, &[1]);
        }
        match round {
            2 => {
                vm.kick(2);
                assert_eq!(vcpu.run(&mut Never), Exit::Kicked);
            }
            3 => assert_eq!(read(vcpu, 1 << 32, 1), mmio_exit(1 << 32, 1, false)),
            _ => {}
        }
        largest = largest.max(present(&vm, &setup));
        vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
    }
    assert!(largest > pages().count(), "{largest}");
    let peak = setup.reclaimer.peak_frames();
    assert!(peak <= BOUND + largest, "{peak} frames, where one set of roots takes {largest}");
    assert!(setup.hardware.live() <= BOUND + largest);
    assert!(setup.reclaim());
    assert_eq!(setup.hardware.live(), present(&vm, &setup));
    for vcpu in &mut parked {
        vm.set_memory_region(&region(0, 0, PAGES)).unwrap();
        write(vcpu, 0, &[1]);
        vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
    }
}

/// A guest that is not entered.
struct Never;

impl<F: Format> mayfly_vm::Guest<F> for Never {
    fn enter(&mut self, _: mayfly_vm::Translation<F>, _: &mayfly_vm::Requests) -> mayfly_vm::Event {
        panic!("it was kicked")
    }

    fn forget(&mut self, _: mayfly_memslot::Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        unreachable!("it is never entered")
    }

    fn answered(&mut self) {}
}

#[test]
fn a_vcpu_that_stays_in_its_guest_on_the_present_root_keeps_no_older_one() {
    let setup = bounded();
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 0, 1)).unwrap();
    vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let (stop, stopped) = Stop::new(&Order::default());
    let running = std::thread::spawn(move || vcpu.run(&mut Stopping { stop, access: None }));
    stopped.wait();
    assert!(setup.reclaim());
    vm.clone().destroy();
    assert!(!setup.reclaim(), "it is in its guest on this one");
    stopped.go_on();
    joined(running);
    assert!(setup.reclaim());
    assert_eq!(setup.hardware.live(), 0);
}

#[test]
fn a_vm_destroyed_with_parked_vcpus_gives_its_tables_back_though_none_is_run() {
    let setup = bounded();
    let serving = {
        let reclaimer = setup.reclaimer.clone();
        std::thread::spawn(move || reclaimer.serve(Slice::default()))
    };
    for slots in 1..4 {
        let vm = setup.vm();
        let mut parked = [0, 1, 2].map(|id| vm.create_vcpu(id).unwrap());
        for slot in 0..slots {
            vm.set_memory_region(&region(slot, 0, PAGES)).unwrap();
            for page in pages() {
                write(&mut parked[usize::from(slot)], page * PAGE_SIZE, &[1]);
            }
            vm.set_memory_region(&deleted(region(slot, 0, 0))).unwrap();
        }
        vm.clone().destroy();
        vm.wait_reclaimed();
        assert_eq!(setup.hardware.live(), 0);
        for vcpu in &mut parked {
            assert_eq!(vcpu.run(&mut Never), Exit::Kicked);
        }
    }
    setup.reclaimer.stop();
    joined(serving);
}

#[test]
fn a_reclaimer_that_waits_for_a_vcpu_in_its_guest_sleeps_until_it_comes_out() {
    let setup = bounded();
    let serving = {
        let reclaimer = setup.reclaimer.clone();
        std::thread::spawn(move || reclaimer.serve(Slice::default()))
    };
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let (stop, stopped) = Stop::new(&Order::default());
    let running = std::thread::spawn(move || vcpu.run(&mut Stopping { stop, access: None }));
    stopped.wait();
    vm.destroy();
    // Long enough for a look every millisecond to be many.
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(setup.reclaimer.turns() < 20, "{}", setup.reclaimer.turns());
    assert!(setup.hardware.live() > 0);
    stopped.go_on();
    soon(|| setup.hardware.live() == 0);
    joined(running);
    setup.reclaimer.stop();
    joined(serving);
}
