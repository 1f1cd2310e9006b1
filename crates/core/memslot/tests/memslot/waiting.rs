use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_memslot::{Gfn, Region};

use crate::common::{LOG, MAIN, generation, region, slots};
use mayfly_platform::testing::threads::by;

#[test]
fn creating_a_slot_waits_for_nobody_and_starts_no_grace_period() {
    let (domain, slots) = slots();
    let vcpu = domain.reader().unwrap();
    let section = vcpu.lock();
    let old = slots.load(MAIN, &section);
    let before = domain.stats().grace_periods;
    slots.set(&region(0, 16, 4, 100)).unwrap();
    assert_eq!(domain.stats().grace_periods, before);
    assert_eq!(domain.stats().deferred, 1);
    // The section that was there before still has what it loaded; it may load again, and finds the slot.
    assert!(old.find(Gfn::new(16)).is_none());
    assert!(slots.load(MAIN, &section).find(Gfn::new(16)).is_some());
}

#[test]
fn deleting_moving_and_switching_the_log_return_when_the_readers_of_before_have_left() {
    let slot = region(0, 16, 4, 100);
    let moved = region(0, 64, 4, 100);
    for change in [Region { size: 0, ..slot }, moved, Region { flags: LOG, ..slot }] {
        let (domain, slots) = slots();
        slots.set(&slot).unwrap();
        let vcpu = domain.reader().unwrap();
        let returned = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let section = vcpu.lock();
            let old = slots.load(MAIN, &section);
            let writer = scope.spawn(|| {
                slots.set(&change).unwrap().unwrap();
                returned.store(true, Ordering::SeqCst);
            });
            by(&writer, || generation(&slots, &domain) != old.generation());
            // It is published; give the writer every chance to return too early.
            for _ in 0..1000 {
                assert!(!returned.load(Ordering::SeqCst));
                std::thread::yield_now();
            }
            assert_eq!(old.find(Gfn::new(17)).unwrap().id(), slot.slot);
            drop(section);
        });
        assert!(returned.load(Ordering::SeqCst));
    }
}

#[test]
fn one_writers_wait_holds_up_no_other() {
    let (domain, slots) = slots();
    slots.set(&region(0, 16, 4, 100)).unwrap();
    let vcpu = domain.reader().unwrap();
    let section = vcpu.lock();
    let before = generation(&slots, &domain);
    std::thread::scope(|scope| {
        let deleting = scope.spawn(|| slots.set(&region(0, 0, 0, 0)).unwrap().unwrap());
        by(&deleting, || generation(&slots, &domain) != before);
        // The delete waits for this thread's section, and this thread does not wait for the delete.
        slots.set(&region(1, 16, 4, 200)).unwrap().unwrap();
        drop(section);
    });
}

#[test]
fn the_caller_of_apply_chooses_when_the_old_snapshot_goes() {
    let (domain, slots) = slots();
    let created = slots.apply(&region(0, 16, 4, 100)).unwrap().unwrap();
    assert_eq!(created.retired.synchronize_expedited().len(), 0);
    let deleted = slots.apply(&region(0, 0, 0, 0)).unwrap().unwrap();
    let _vcpu = domain.reader().unwrap();
    let before = domain.stats();
    deleted.retired.defer();
    assert_eq!(domain.stats().grace_periods, before.grace_periods);
    assert_eq!(domain.stats().deferred, before.deferred + 1);
    domain.barrier();
    assert_eq!(domain.stats().deferred, 0);
}

#[test]
fn a_prepared_change_is_found_when_it_is_published_and_comes_to_nothing_otherwise() {
    let (domain, slots) = slots();
    let slot = region(0, 16, 4, 100);
    let found = || slots.load(MAIN, &domain.read_lock()).slot(slot.slot).is_some();
    let before = generation(&slots, &domain);
    let prepared = slots.prepare(&slot).unwrap().unwrap();
    assert_eq!(prepared.edit().after().unwrap().base(), Gfn::new(16));
    assert!(!found());
    drop(prepared);
    assert!(!found() && generation(&slots, &domain) == before);
    let prepared = slots.prepare(&slot).unwrap().unwrap();
    let made = prepared.publish();
    assert!(found() && generation(&slots, &domain) == made.generation);
    assert!(slots.prepare(&slot).unwrap().is_none(), "the slot is so already");
}
