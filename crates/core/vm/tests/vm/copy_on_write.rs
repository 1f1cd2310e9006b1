//! Pages that get a frame of their own when they are written, and what other vCPUs find meanwhile.

use std::cell::RefCell;
use std::sync::Arc;
use std::thread::spawn;

use mayfly_memslot::PAGE_SIZE;
use mayfly_platform::Op;
use mayfly_vm::{Exit, Reason, Resolved, SlotZap};

use crate::common::changes::ChangesAny;
use crate::common::{Outcome, Setup, TestVcpu, TestVm, hva, joined, read, write};
use crate::notifier_in_place::{alias, at, found};

/// The frame of the first page of slot 0, and the one that it gets.
const OLD: u64 = 0x1_0000_0000 / PAGE_SIZE;
const OWN: u64 = 0x8888;

/// A VM that has the host memory of slot 0 at each of `places`, to be read until it is written, and has mapped nothing.
fn at_places(places: &[u64]) -> (Setup, TestVm, TestVcpu) {
    let setup = Setup::new(SlotZap::Range);
    setup.memory.set_writable(false);
    let vm = setup.vm();
    let vcpu = vm.create_vcpu(0).unwrap();
    for (index, &gfn) in (0..).zip(places) {
        vm.set_memory_region(&alias(index, gfn, 8)).unwrap();
    }
    (setup, vm, vcpu)
}

/// The first page gets a frame of its own.
fn copied(setup: &Setup, vm: &TestVm) {
    vm.copy_any_on_write(
        hva(0, 0),
        [OLD, OWN],
        || (),
        || {
            setup.memory.move_page(hva(0, 0), OWN);
        },
    );
}

#[test]
fn a_page_that_no_cpu_has_is_copied_and_then_found_and_no_tlb_is_asked() {
    let (setup, vm, mut vcpu) = at_places(&[0x10, 0x8000]);
    read(&mut vcpu, 0x11 * PAGE_SIZE, 1);
    setup.hardware.take_invalidations();
    let written = setup.hardware.charged(Op::EntriesWritten(1));
    let steps = RefCell::new(Vec::new());
    vm.copy_any_on_write(
        hva(0, 0),
        [OLD, OWN],
        || steps.borrow_mut().push("copied"),
        || steps.borrow_mut().push("found"),
    );
    assert_eq!(*steps.borrow(), ["copied", "found"]);
    assert_eq!(setup.hardware.take_invalidations(), []);
    assert_eq!(setup.hardware.charged(Op::EntriesWritten(1)), written);
    setup.memory.move_page(hva(0, 0), OWN);
    assert_eq!(write(&mut vcpu, 0x10 * PAGE_SIZE, &[1]), at(OWN), "the bracket is over");
}

#[test]
fn wherever_it_is_mapped_it_is_replaced_in_place_and_no_access_faults() {
    let places = [0x10, 0x8000, 0x9000, 0xa000, 0xb000, 0xc000];
    for mapped in [&places[..1], &places[1..2], &places[5..], &places[..], &[]] {
        let (setup, vm, mut vcpu) = at_places(&places);
        for gfn in mapped {
            assert_eq!(read(&mut vcpu, gfn * PAGE_SIZE, 1), at(OLD));
        }
        setup.memory.take_asked();
        copied(&setup, &vm);
        for gfn in places {
            let expected = mapped.contains(&gfn).then_some((OWN, true));
            assert_eq!(found(&mut vcpu, gfn), expected, "{gfn:#x} of {mapped:x?}");
        }
        for gfn in mapped {
            assert_eq!(write(&mut vcpu, gfn * PAGE_SIZE, &[1]), at(OWN));
        }
        assert_eq!(setup.memory.take_asked(), [], "{mapped:x?}");
    }
}

#[test]
fn a_fault_that_has_found_the_old_frame_is_refused() {
    let (setup, vm, mut vcpu) = at_places(&[0x10]);
    let setup = Arc::new(setup);
    let (host, told) = (setup.clone(), vm.clone());
    setup.memory.when_asked(move || copied(&host, &told));
    assert_eq!(read(&mut vcpu, 0x10 * PAGE_SIZE, 1), at(OWN));
    assert_eq!(setup.hardware.charged(Op::FaultRefused), 1);
}

#[test]
fn where_tlbs_may_remember_the_old_frame_they_forget_it_before_the_new_one_is_found() {
    let (setup, vm, mut vcpu) = at_places(&[0x10]);
    let setup = Arc::new(setup);
    assert_eq!(read(&mut vcpu, 0x10 * PAGE_SIZE, 1), at(OLD));
    setup.hardware.take_invalidations();
    let (host, told) = (setup.clone(), vm.clone());
    // Another change has just emptied the entry, and the TLBs have not heard of it.
    setup.hardware.at_next_invalidation(move || {
        let found = || assert_eq!(host.hardware.take_invalidations().len(), 1);
        told.copy_any_on_write(hva(0, 0), [OLD, OWN], || (), found);
    });
    drop(vm.invalidate_start(hva(0, 0), PAGE_SIZE, Reason::Migrate));
}

#[test]
fn a_host_that_changes_a_page_while_it_is_asked_is_asked_again_at_once() {
    let (setup, vm, mut vcpu) = at_places(&[0x10]);
    let setup = Arc::new(setup);
    let (host, told, mut is_first) = (setup.clone(), vm.clone(), true);
    setup.memory.when_asked(move || copied(&host, &told));
    setup
        .memory
        .set_kind(move |_, _, usual| Resolved { changed: std::mem::take(&mut is_first), ..usual });
    assert_eq!(write(&mut vcpu, 0x10 * PAGE_SIZE, &[1]), at(OWN));
    assert_eq!(setup.memory.take_asked(), [(hva(0, 0), true); 2]);
    assert_eq!(setup.hardware.charged(Op::FaultRefused), 0, "nothing was mapped in vain");
    assert_eq!(found(&mut vcpu, 0x10), Some((OWN, true)));
}

#[test]
fn a_vcpu_comes_out_though_the_host_changes_the_page_each_time() {
    let (setup, _vm, mut vcpu) = at_places(&[0x10]);
    let (kicker, mut asked) = (vcpu.kicker(), 0);
    setup.memory.set_kind(move |_, _, usual| {
        asked += 1;
        if asked == 100 {
            kicker.kick();
        }
        Resolved { changed: true, ..usual }
    });
    let writing = spawn(move || write(&mut vcpu, 0x10 * PAGE_SIZE, &[1]));
    assert_eq!(joined(writing), Outcome::Exit(Exit::Kicked));
    assert_eq!(setup.memory.take_asked().len(), 100);
}
