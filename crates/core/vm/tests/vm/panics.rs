//! What others find of a vCPU whose guest has panicked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread::spawn;
use std::time::Duration;

use mayfly_memslot::Gfn;
use mayfly_stage2::Format;
use mayfly_vm::{Event, Guest, Requests, SlotZap, Translation};

use crate::common::{Setup, TestVcpu, deleted, joined, region, write};

/// A guest that panics where it is entered.
struct Panics;

impl<F: Format> Guest<F> for Panics {
    fn enter(&mut self, _translation: Translation<F>, _requests: &Requests) -> Event {
        panic!("as the test wants it");
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        &mut []
    }

    fn answered(&mut self) {}
}

fn panic_in_guest(vcpu: &mut TestVcpu) {
    assert!(catch_unwind(AssertUnwindSafe(|| vcpu.run(&mut Panics))).is_err());
}

#[test]
fn a_vcpu_whose_guest_has_panicked_is_outside_for_who_replaces_roots() {
    let setup = Setup::new(SlotZap::AllRoots);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&region(0, 0x10, 1)).unwrap();
    write(&mut vcpu, 0x1_0000, &[1]);
    panic_in_guest(&mut vcpu);
    let (done, is_done) = channel();
    let deleter = {
        let vm = vm.clone();
        spawn(move || {
            vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
            done.send(()).unwrap();
        })
    };
    // So long only where it waits for ever.
    is_done
        .recv_timeout(Duration::from_secs(60))
        .expect("nobody waits for a guest that is no more");
    joined(deleter);
    // And its vCPU can be run again.
    vm.set_memory_region(&region(1, 0x20, 1)).unwrap();
    write(&mut vcpu, 0x2_0000, &[1]);
}

#[test]
fn the_tables_of_a_vm_whose_guest_has_panicked_are_freed() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    panic_in_guest(&mut vcpu);
    vm.destroy();
    assert!(setup.reclaim());
    assert_eq!(setup.hardware.live(), 0);
}
