//! A flush, or caches that are turned off, and what comes meanwhile.

use std::sync::mpsc::channel;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use mayfly_memslot::PAGE_SIZE;
use mayfly_vm::{CacheOp, Reason};

use super::{gpa, pfn, tracked, turn, writes};
use crate::common::{Kept, Order, Setup, TestVcpu, hva, joined, top, translation, write};

#[test]
fn a_fault_that_cleaned_before_caches_went_off_is_refused() {
    let (setup, _vm, [mut one, mut two]) = tracked();
    turn(&mut one, CacheOp::On);
    let (done, was_done) = channel();
    setup.caches.at_next(move || {
        // It has not cleaned yet; but it has made up its mind that it needs no more than that.
        turn(&mut one, CacheOp::Off);
        done.send(top(&mut one)).unwrap();
    });
    write(&mut two, gpa(3), &[1]);
    assert_eq!(was_done.recv().unwrap(), top(&mut two));
    assert_eq!(setup.caches.take_cleaned(), [(pfn(3), 1); 2]);
    assert!(translation(&mut two, 0x13).unwrap().1.written);
}

/// Has `vcpu` turn its caches on, and is back when it is flushing; notes when it has flushed.
fn flush_slowly(setup: &Setup, order: &Order, mut vcpu: TestVcpu) -> JoinHandle<()> {
    let (begun, has_begun) = channel();
    let noting = order.clone();
    setup.caches.at_next(move || {
        begun.send(()).unwrap();
        // Long enough for whoever comes next to go on, if it did.
        sleep(Duration::from_millis(50));
        noting.note("flushed");
    });
    let flushing = spawn(move || turn(&mut vcpu, CacheOp::On));
    has_begun.recv().unwrap();
    flushing
}

#[test]
fn who_finds_that_another_flushes_waits_for_it() {
    let (setup, _vm, [mut one, mut two]) = tracked();
    writes(&mut one, &[3]);
    setup.caches.take();
    let order = Order::default();
    let flushing = flush_slowly(&setup, &order, one);
    turn(&mut two, CacheOp::On);
    order.note("on");
    joined(flushing);
    assert_eq!(order.take(), ["flushed", "on"]);
    assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(3), 1)]);
}

#[test]
fn so_does_the_host() {
    let (setup, vm, [mut one, _two]) = tracked();
    writes(&mut one, &[3]);
    let order = Order::default();
    let flushing = flush_slowly(&setup, &order, one);
    drop(vm.invalidate_start(hva(0, 0), 8 * PAGE_SIZE, Reason::Migrate));
    order.note("the host reads it");
    joined(flushing);
    assert_eq!(order.take(), ["flushed", "the host reads it"]);
}
