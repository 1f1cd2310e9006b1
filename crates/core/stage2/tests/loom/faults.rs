//! A fault beside an invalidation, or a change of memslots, of the same page.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};

use mayfly_platform::address::Pfn;
use mayfly_stage2::{Level, Mapped, Tables};

use super::model::{WHOLE, gfn, gfns, readable, writable};
use super::{InPlace, NEW, OLD, Vcpu, check, vm};
use crate::model::granted::ReplacesAny;

/// A fault of page 5 beside an invalidation of it, that takes `tables` out or not; `present` is whether the table above
/// the page is there before.
fn invalidate_beside(
    present: bool,
    tables: Tables,
    fault: impl FnOnce(&Vcpu<InPlace>, &AtomicU64) -> Mapped + Send + 'static,
) {
    let (vm, root) = vm::<InPlace>(2);
    let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
    let host = Arc::new(AtomicU64::new(OLD));
    if present {
        assert_eq!(here.map_page(6, &readable(1)), Mapped::Installed);
    }
    let fault = {
        let host = Arc::clone(&host);
        there.in_thread(move |vcpu| fault(vcpu, &host))
    };
    {
        let invalidation = vm.stage2.begin_invalidation(&gfns(4, 4));
        host.store(NEW, Ordering::Relaxed);
        vm.stage2.zap(&invalidation, gfns(4, 4), tables, WHOLE);
        assert_eq!(here.translate(5), None, "mapped while it is being invalidated");
    }
    let fault = fault.join().unwrap();
    match here.pfn(5) {
        Some(pfn) => assert_eq!((pfn, fault), (NEW, Mapped::Installed)),
        None => assert!(matches!(fault, Mapped::Installed | Mapped::Retry)),
    }
    drop((here, root));
    vm.end();
}

#[test]
fn a_fault_that_asked_before_an_invalidation_leaves_nothing_stale_behind() {
    for (present, tables) in [(false, Tables::Keep), (true, Tables::Keep), (true, Tables::Free)] {
        check(move || invalidate_beside(present, tables, |vcpu, host| vcpu.fault(5, host)));
    }
}

#[test]
fn a_fault_that_goes_the_short_way_leaves_nothing_stale_behind() {
    for tables in [Tables::Keep, Tables::Free] {
        check(move || invalidate_beside(true, tables, |vcpu, host| vcpu.fault_shortly(5, host)));
    }
}

#[test]
fn two_faults_of_which_one_goes_the_short_way_make_one_leaf() {
    check(|| {
        let (vm, root) = vm::<InPlace>(1);
        let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
        let host = Arc::new(AtomicU64::new(OLD));
        here.map_page(6, &readable(1));
        let fault = {
            let host = Arc::clone(&host);
            there.in_thread(move |vcpu| vcpu.fault_shortly(5, &host))
        };
        let outcomes = [here.fault(5, &host), fault.join().unwrap()];
        assert!(outcomes.contains(&Mapped::Installed) && outcomes.contains(&Mapped::Already));
        assert_eq!(here.pfn(5), Some(OLD));
        drop((here, root));
        vm.end();
    });
}

#[test]
fn a_fault_that_goes_the_short_way_takes_nothing_from_a_block_that_comes_meanwhile() {
    check(|| {
        let (vm, root) = vm::<InPlace>(2);
        let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
        let host = Arc::new(AtomicU64::new(OLD + 1));
        here.map_page(6, &readable(OLD + 2));
        let fault = {
            let host = Arc::clone(&host);
            there.in_thread(move |vcpu| vcpu.fault_shortly(5, &host))
        };
        let block = here.map(4, Level::MIB2, &readable(OLD), vm.stage2.sample());
        assert_eq!(block, Mapped::Installed);
        assert!(matches!(fault.join().unwrap(), Mapped::Installed | Mapped::Already));
        for page in 4..8 {
            assert_eq!(here.translate(page), Some((Level::MIB2, readable(OLD))));
        }
        drop((here, root));
        vm.end();
    });
}

#[test]
fn a_fault_that_found_a_memslot_leaves_nothing_behind_when_the_slot_is_gone() {
    for tables in [Tables::Keep, Tables::Free] {
        check(move || {
            let (vm, root) = vm::<InPlace>(2);
            let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
            let slot_is_there = Arc::new(AtomicU64::new(1));
            assert_eq!(here.map_page(6, &readable(1)), Mapped::Installed);
            let fault = {
                let slot_is_there = Arc::clone(&slot_is_there);
                there.in_thread(move |vcpu| {
                    let seen = vcpu.vm.stage2.sample();
                    if slot_is_there.load(Ordering::Relaxed) == 1 {
                        vcpu.map(5, Level::PAGE, &readable(OLD), seen);
                    }
                })
            };
            let delete = || slot_is_there.store(0, Ordering::Relaxed);
            let ((), zapping) = vm.stage2.change_slots_and_invalidate(&gfns(4, 4), delete);
            vm.stage2.zap(&zapping, gfns(4, 4), tables, WHOLE);
            drop(zapping);
            assert_eq!(here.translate(5), None);
            fault.join().unwrap();
            assert_eq!(here.translate(5), None);
            drop((here, root));
            vm.end();
        });
    }
}

#[test]
fn a_fault_by_a_new_memslot_puts_nothing_where_the_old_one_is_still_to_be_zapped() {
    check(|| {
        let (vm, root) = vm::<InPlace>(1);
        let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
        let slot = Arc::new(AtomicU64::new(OLD));
        here.map_page(5, &readable(OLD));
        let fault = {
            let slot = Arc::clone(&slot);
            there.in_thread(move |vcpu| {
                let seen = vcpu.vm.stage2.sample();
                let pfn = slot.load(Ordering::Acquire);
                vcpu.map(5, Level::PAGE, &readable(pfn), seen)
            })
        };
        let publish = || slot.store(NEW, Ordering::Release);
        let ((), zapping) = vm.stage2.change_slots_and_invalidate(&gfns(5, 1), publish);
        assert_ne!(here.pfn(5), Some(NEW));
        vm.stage2.zap(&zapping, gfns(5, 1), Tables::Keep, WHOLE);
        assert_eq!(here.pfn(5), None);
        drop(zapping);
        let fault = fault.join().unwrap();
        assert_eq!(here.pfn(5), (fault == Mapped::Installed).then_some(NEW));
        drop((here, root));
        vm.end();
    });
}

/// A section that began before has no part in the order of these two, so this is about their own fences.
#[test]
fn a_fault_that_is_not_found_at_work_is_refused() {
    for slots in [false, true] {
        check(move || {
            let (vm, root) = vm::<InPlace>(1);
            let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
            here.map_page(5, &readable(OLD));
            let seen = vm.stage2.sample();
            let fault = there.in_thread(move |vcpu| vcpu.map(5, Level::PAGE, &writable(OLD), seen));
            let section = here.reader.lock();
            let _invalidation = if slots {
                vm.stage2.change_slots(&gfns(5, 1), || ());
                None
            } else {
                Some(vm.stage2.begin_invalidation(&gfns(5, 1)))
            };
            let found = root.translate(gfn(5), &section);
            drop(section);
            let fault = fault.join().unwrap();
            if found == Some((Level::PAGE, readable(OLD))) {
                assert_eq!(fault, Mapped::Retry);
            }
            drop((here, root));
        });
    }
}

#[test]
fn a_right_that_is_given_back_is_not_given_behind_who_takes_it_away() {
    check(|| {
        let (vm, root) = vm::<InPlace>(1);
        let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
        here.map_page(5, &readable(OLD));
        let given = there.in_thread(|vcpu| {
            let own = vcpu.vm.stage2.begin_invalidation(&gfns(5, 1));
            vcpu.vm.stage2.allow_any_writes(&own, gfn(5), Pfn::new(OLD));
        });
        {
            let _other = vm.stage2.begin_invalidation(&gfns(5, 1));
            vm.stage2.write_protect(gfns(5, 1), WHOLE, |_, _| ());
            // Absent where it is just frozen.
            let found = here.translate(5);
            assert!(found.is_none_or(|(_, leaf)| leaf == readable(OLD)), "{found:?}");
        }
        given.join().unwrap();
        drop((here, root));
        vm.end();
    });
}

#[test]
fn a_fault_that_waits_for_an_invalidation_sees_its_end() {
    check(|| {
        let (vm, root) = vm::<InPlace>(4);
        let (here, there) = (Vcpu::new(&vm, &root), Vcpu::new(&vm, &root));
        let host = Arc::new(AtomicU64::new(OLD));
        let waiter = {
            let host = Arc::clone(&host);
            there.in_thread(move |vcpu| {
                while vcpu.fault(5, &host) == Mapped::Retry {
                    vcpu.vm.stage2.wait_invalidation(&gfns(5, 1));
                }
            })
        };
        {
            let invalidation = vm.stage2.begin_invalidation(&gfns(5, 1));
            host.store(NEW, Ordering::Relaxed);
            vm.stage2.zap(&invalidation, gfns(5, 1), Tables::Keep, WHOLE);
        }
        waiter.join().unwrap();
        assert!(matches!(here.pfn(5), None | Some(NEW)));
        drop((here, root));
        vm.end();
    });
}
