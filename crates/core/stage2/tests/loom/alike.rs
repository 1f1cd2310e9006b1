//! Invalidations that look alike to a fault: of one word, of one block, of one place for ranges; and who waits for their ends.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};

use mayfly_stage2::{Level, Mapped, Tables};

use super::model::{WHOLE, gfns, readable};
use super::{InPlace, NEW, OLD, Vcpu, check, vm};

/// In models a region has two pages, and there are four words: page 13 has the word of page 5, and pages 4 and 6, of one
/// block, have one each. One range has a place of its own, and others share one.
const ALIKE: u64 = 13;

#[test]
fn a_block_that_was_asked_for_before_an_invalidation_of_one_of_its_pages_leaves_nothing_stale() {
    for page in [4, 6] {
        check(move || {
            let (vm, root) = vm::<InPlace>(2);
            let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
            let host = Arc::new(AtomicU64::new(OLD));
            let fault = {
                let host = Arc::clone(&host);
                there.in_thread(move |vcpu| {
                    let seen = vcpu.vm.stage2.sample();
                    let pfn = host.load(Ordering::Relaxed);
                    vcpu.map(4, Level::MIB2, &readable(pfn), seen)
                })
            };
            {
                let invalidation = vm.stage2.begin_invalidation(&gfns(page, 1));
                host.store(NEW, Ordering::Relaxed);
                vm.stage2.zap(&invalidation, gfns(page, 1), Tables::Keep, WHOLE);
                assert_eq!(here.translate(page), None, "mapped while it is being invalidated");
            }
            let fault = fault.join().unwrap();
            match here.pfn(page) {
                Some(pfn) => assert_eq!((pfn, fault), (NEW + page - 4, Mapped::Installed)),
                None => assert!(matches!(fault, Mapped::Installed | Mapped::Retry)),
            }
            drop((here, root));
            vm.end();
        });
    }
}

/// Of one word: one of them is announced with others, and its word stays marked, or gets a number, by the other's end.
#[test]
fn an_invalidation_that_looks_like_another_hides_nothing_of_it() {
    for (first, second, first_ends_first) in
        [(ALIKE, 5, true), (ALIKE, 5, false), (5, ALIKE, true), (5, ALIKE, false)]
    {
        check(move || {
            let (vm, root) = vm::<InPlace>(1);
            let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
            let host = Arc::new(AtomicU64::new(OLD));
            here.map_page(5, &readable(1));
            let fault = {
                let host = Arc::clone(&host);
                there.in_thread(move |vcpu| vcpu.fault(5, &host))
            };
            let invalidations =
                [first, second].map(|page| vm.stage2.begin_invalidation(&gfns(page, 1)));
            host.store(NEW, Ordering::Relaxed);
            let own = usize::from(first != 5);
            vm.stage2.zap(&invalidations[own], gfns(5, 1), Tables::Keep, WHOLE);
            assert_eq!(here.pfn(5), None);
            let [mut one, mut other] = invalidations.map(Some);
            let ends: [&mut Option<_>; 2] =
                if first_ends_first { [&mut one, &mut other] } else { [&mut other, &mut one] };
            for (end, number) in ends.into_iter().zip([0, 1]) {
                let own = (number == 0) == first_ends_first;
                drop(end.take());
                let page = if own { first } else { second };
                if page != 5 && number == 0 {
                    assert_eq!(here.pfn(5), None, "the one of this page has not ended");
                }
            }
            let fault = fault.join().unwrap();
            match here.pfn(5) {
                Some(pfn) => assert_eq!((pfn, fault), (NEW, Mapped::Installed)),
                None => assert!(matches!(fault, Mapped::Installed | Mapped::Retry)),
            }
            drop((here, root));
            vm.end();
        });
    }
}

#[test]
fn a_fault_is_refused_by_no_invalidation_of_another_word_and_by_one_that_looks_alike_at_its_end_alone()
 {
    for page in [7, ALIKE] {
        check(move || {
            let (vm, root) = vm::<InPlace>(1);
            let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
            here.map_page(6, &readable(1));
            let ended = Arc::new(AtomicU64::new(0));
            let fault = {
                let ended = Arc::clone(&ended);
                there.in_thread(move |vcpu| {
                    let mapped = vcpu.map_page(5, &readable(OLD));
                    (mapped, ended.load(Ordering::Relaxed) == 1)
                })
            };
            let invalidation = vm.stage2.begin_invalidation(&gfns(page, 1));
            vm.stage2.zap(&invalidation, gfns(page, 1), Tables::Keep, WHOLE);
            ended.store(1, Ordering::Relaxed);
            drop(invalidation);
            let (mapped, ended) = fault.join().unwrap();
            assert!(mapped == Mapped::Installed || page == ALIKE && ended, "{mapped:?}");
            drop((here, root));
            vm.end();
        });
    }
}

#[test]
fn whoever_waits_for_an_invalidation_is_woken_by_its_end_whatever_else_ends() {
    check(|| {
        let (vm, root) = vm::<InPlace>(1);
        let there = Vcpu::new(&vm, &root);
        let invalidation = vm.stage2.begin_invalidation(&gfns(5, 1));
        let over = Arc::new(AtomicU64::new(0));
        let waiter = {
            let over = Arc::clone(&over);
            there.in_thread(move |vcpu| {
                vcpu.vm.stage2.wait_invalidation(&gfns(4, 4));
                assert_eq!(over.load(Ordering::Relaxed), 1, "it has not ended");
            })
        };
        drop(vm.stage2.begin_invalidation(&gfns(ALIKE, 1)));
        over.store(1, Ordering::Relaxed);
        drop(invalidation);
        waiter.join().unwrap();
        drop(root);
        vm.end();
    });
}

#[test]
fn whoever_is_made_to_look_again_finds_that_the_wait_is_called_off() {
    check(|| {
        let (vm, root) = vm::<InPlace>(1);
        let there = Vcpu::new(&vm, &root);
        let invalidation = vm.stage2.begin_invalidation(&gfns(5, 1));
        let called_off = Arc::new(AtomicU64::new(0));
        let waiter = {
            let called_off = Arc::clone(&called_off);
            there.in_thread(move |vcpu| {
                let is_called_off = || called_off.load(Ordering::Relaxed) == 1;
                vcpu.vm.stage2.wait_invalidation_unless(&gfns(5, 1), is_called_off);
            })
        };
        drop(vm.stage2.begin_invalidation(&gfns(ALIKE, 1)));
        called_off.store(1, Ordering::Relaxed);
        vm.stage2.invalidation_waiters().look_again(&*vm.world);
        waiter.join().unwrap();
        drop((invalidation, root));
        vm.end();
    });
}
