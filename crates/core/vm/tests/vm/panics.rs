//! What others find where a guest, or code of a caller's under the sequence's lock, has panicked.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread::spawn;
use std::time::Duration;

use mayfly_memslot::Gfn;
use mayfly_stage2::{Arm, Format, Stage2};
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

fn panics(call: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
}

#[test]
fn an_invalidation_has_ended_that_was_begun_with_a_change_of_slots_that_panics() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let gfns = Gfn::new(0)..Gfn::new(4);
    panics(|| drop(vm.stage2().change_slots_and_invalidate(&gfns, || panic!("as it should"))));
    assert!(!vm.stage2().is_invalidating(&gfns), "slots could not be changed any more");
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
}

#[test]
fn what_was_announced_before_a_panic_is_announced_no_more() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let (gfns, beside) = (Gfn::new(0)..Gfn::new(4), Gfn::new(8)..Gfn::new(9));
    let begin = || {
        drop(vm.stage2().begin_invalidation_of(|announce| {
            announce(gfns.clone());
            panic!("as it should");
        }));
    };
    panics(begin);
    // In the same word of the sequence, so that places are looked at.
    let _beside = vm.stage2().begin_invalidation(&beside);
    assert!(!vm.stage2().is_invalidating(&gfns), "faults would wait for an end that never comes");
}

/// Debug builds find it: the sequence's lock would be waited for by the thread that holds it.
#[test]
#[cfg(debug_assertions)]
fn code_that_runs_under_the_sequences_lock_cannot_call_the_sequence() {
    type Call = fn(&Stage2<Arm<40>>);
    const PAGE: Range<Gfn> = Gfn::new(0)..Gfn::new(1);
    let inner: [Call; 5] = [
        |stage2| drop(stage2.begin_invalidation(&PAGE)),
        |stage2| stage2.refuse_faults(&PAGE),
        |stage2| stage2.change_slots(&PAGE, || ()),
        |stage2| drop(stage2.change_slots_and_invalidate(&PAGE, || ())),
        |stage2| drop(stage2.begin_invalidation_of(|_| ())),
    ];
    for call in inner {
        let setup = Setup::new(SlotZap::Range);
        let vm = setup.vm();
        let stage2 = vm.stage2();
        panics(|| drop(stage2.begin_invalidation_of(|_| call(stage2))));
        panics(|| stage2.change_slots(&PAGE, || call(stage2)));
        panics(|| drop(stage2.change_slots_and_invalidate(&PAGE, || call(stage2))));
        assert!(!stage2.is_invalidating(&PAGE));
        vm.set_memory_region(&region(0, 0, 4)).unwrap();
    }
}
