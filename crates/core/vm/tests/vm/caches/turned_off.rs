//! Guests that turn their caches off, or operate on them by set and way: what is cleaned for them, and what is trapped.

use mayfly_vm::{CacheCapabilities, CacheOp, CacheTraps, Caches, SlotZap};

use super::{
    DATA, ForcedFormat, create, create_in, gpa, pfn, toggle, tracked, traps, turn, writes,
};
use crate::common::{Kept, read, region, top, translation};

#[test]
fn who_turns_caches_off_reads_nothing_that_was_not_cleaned_since() {
    let (setup, _vm, [mut one, mut two]) = tracked();
    turn(&mut one, CacheOp::On);
    writes(&mut one, &[0, 1]);
    writes(&mut two, &[2]);
    read(&mut two, gpa(0), 1);
    assert_eq!(setup.caches.take_cleaned(), [(pfn(0), 1), (pfn(1), 1), (pfn(2), 1)]);
    turn(&mut one, CacheOp::Off);
    assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(2), 1)]);
    assert_eq!(top(&mut one), top(&mut two));
    assert_eq!([0x10, 0x11, 0x12].map(|gfn| translation(&mut two, gfn)), [None; 3]);
    for page in [1, 0, 2, 1] {
        read(&mut one, gpa(page), 1);
    }
    assert_eq!(setup.caches.take_cleaned(), [(pfn(1), 1), (pfn(0), 1), (pfn(2), 1)]);
    turn(&mut two, CacheOp::On);
    read(&mut two, gpa(1), 1);
    read(&mut two, gpa(2), 1);
    assert_eq!(setup.caches.take(), [], "cleaned for those who are off");
}

#[test]
fn a_vcpu_that_is_reset_has_its_caches_off() {
    let (setup, _vm, [mut one, mut two]) = tracked();
    turn(&mut one, CacheOp::On);
    writes(&mut one, &[0]);
    read(&mut two, gpa(0), 1);
    setup.caches.take();
    one.reset_caches();
    assert_eq!(top(&mut one), top(&mut two));
    read(&mut two, gpa(0), 1);
    assert_eq!(setup.caches.take_cleaned(), [(pfn(0), 1)]);
}

#[test]
fn a_vcpu_that_goes_on_as_another_one_has_its_caches_as_they_were_and_flushes_nothing() {
    let (setup, vm, [mut one, mut two]) = tracked();
    turn(&mut one, CacheOp::On);
    turn(&mut one, CacheOp::SetWay);
    writes(&mut two, &[0]);
    setup.caches.take();
    let mut third = vm.create_vcpu(2).unwrap();
    third.start_with_caches(one.guest_caches()).unwrap();
    assert_eq!(setup.caches.take(), [], "what is written past the caches is not its own");
    assert_eq!(top(&mut third), top(&mut one));
    assert_eq!(traps(&mut third), CacheTraps::Registers, "it may be about to turn them off");
    let mut fourth = vm.create_vcpu(3).unwrap();
    fourth.start_with_caches(two.guest_caches()).unwrap();
    assert_eq!(top(&mut fourth), top(&mut two));
    // The others' marks are where they were.
    turn(&mut fourth, CacheOp::On);
    assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(0), 1)]);
}

#[test]
fn set_and_way_has_everything_cleaned_once_for_all_that_is_mapped_since() {
    let (setup, _vm, [mut one, mut two]) = tracked();
    turn(&mut two, CacheOp::SetWay);
    turn(&mut one, CacheOp::On);
    writes(&mut one, &[0]);
    read(&mut two, gpa(0), 1);
    writes(&mut two, &[1]);
    turn(&mut two, CacheOp::SetWay);
    assert!(translation(&mut two, 0x11).is_some(), "its caches are off: it does nothing");
    setup.caches.take();
    setup.hardware.take_invalidations();
    turn(&mut one, CacheOp::SetWay);
    assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(1), 1)]);
    assert_ne!(setup.hardware.take_invalidations(), []);
    assert_eq!([0x10, 0x11].map(|gfn| translation(&mut two, gfn)), [None; 2]);
    assert!(translation(&mut one, 0x10).is_some());
    for _ in 0..3 {
        turn(&mut one, CacheOp::SetWay);
    }
    assert_eq!(setup.hardware.take_invalidations(), [], "nothing was mapped since");
    read(&mut two, gpa(0), 1);
    assert_eq!(setup.caches.take_cleaned(), [(pfn(0), 1)]);
}

#[test]
fn no_more_is_trapped_than_shows_when_caches_go_off_again() {
    for mode in [Caches::Reported, Caches::Tracked] {
        let (_setup, vm) = create(mode, DATA);
        let mut vcpu = vm.create_vcpu(0).unwrap();
        let mut after = |op| {
            toggle(&mut vcpu, op);
            traps(&mut vcpu)
        };
        assert_eq!(after(CacheOp::Off), CacheTraps::Registers);
        assert_eq!(after(CacheOp::On), CacheTraps::SetWay);
        assert_eq!(after(CacheOp::SetWay), CacheTraps::Registers);
        assert_eq!(after(CacheOp::On), CacheTraps::SetWay);
        assert_eq!(after(CacheOp::SetWay), CacheTraps::Registers);
        assert_eq!(after(CacheOp::Off), CacheTraps::Registers);
        let (_setup, vm) = create(mode, CacheCapabilities { fgt: true, ..DATA });
        let mut vcpu = vm.create_vcpu(0).unwrap();
        assert_eq!(traps(&mut vcpu), CacheTraps::Control);
        for op in [CacheOp::On, CacheOp::SetWay, CacheOp::Off] {
            toggle(&mut vcpu, op);
            assert_eq!(traps(&mut vcpu), CacheTraps::Control);
        }
    }
}

#[test]
fn with_fwb_all_vcpus_share_a_root_and_nothing_is_trapped_or_flushed() {
    let (setup, vm) = create_in::<ForcedFormat>(SlotZap::Range, Caches::Tracked, DATA);
    let mut vcpus = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
    vm.set_memory_region(&region(0, 0x10, 8)).unwrap();
    let [one, two] = &mut vcpus;
    writes(one, &[0, 1]);
    turn(one, CacheOp::On);
    assert_eq!(top(one), top(two));
    turn(one, CacheOp::Off);
    assert_eq!(traps(one), CacheTraps::None);
    assert_eq!(setup.caches.take(), []);
}

#[test]
fn turning_caches_on_and_off_takes_no_frames() {
    let (setup, vm) = create(Caches::Tracked, DATA);
    let mut vcpu = vm.create_vcpu(0).unwrap();
    setup.hardware.refuse_frames_after(0);
    for op in [CacheOp::On, CacheOp::SetWay, CacheOp::Off, CacheOp::On] {
        turn(&mut vcpu, op);
    }
    assert_eq!(setup.hardware.refuse_no_frames(), 0);
}
