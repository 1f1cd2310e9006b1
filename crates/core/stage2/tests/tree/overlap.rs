//! Operations that meet in the moment between a change and its invalidation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mayfly_platform::address::Gfn;
use mayfly_platform::observe::{Observer, Step, Ticket};
use mayfly_stage2::{Arm, Ept, Format, Level, Mapped, Reclaimer, Sv39x4, Tables};

use crate::common::granted::MapsAny;
use crate::common::{Platformed, World};
use crate::{READ, READ_WRITE, UNHURRIED, gfns, leaf};
use mayfly_platform::testing::threads::soon;

const PAGES: u64 = Level::MIB2.pages();

fn map<F: Format>(world: &World<F>, gfn: u64, level: Level) -> Mapped {
    let (stage2, section) = (&world.stage2, world.srcu.read_lock());
    let root = stage2.root(crate::common::role(0), &section).unwrap();
    root.map(Gfn::new(gfn), level, &leaf(gfn, READ_WRITE), stage2.sample(), &section).unwrap()
}

fn zap<F: Format>(world: &World<F>, range: std::ops::Range<u64>) {
    let announced = world.stage2.begin_invalidation(&gfns(range.clone()));
    world.stage2.zap(&announced, gfns(range), Tables::Free, UNHURRIED);
}

/// Has the TLB remember where `gfn` is mapped.
fn walk<F: Format>(world: &World<F>, gfn: u64) {
    let vcpu = world.vcpu(0);
    let (level, leaf) = vcpu.root.translate(Gfn::new(gfn), &world.srcu.read_lock()).unwrap();
    world.platform.tlbs.walk(vcpu.vmid, Gfn::new(gfn), level, &leaf);
}

/// Runs `first`, and `second` on another thread at the moment when `first` has changed entries, and is about to
/// invalidate.
fn in_between<F: Format>(
    world: &Arc<World<F>>,
    first: impl FnOnce(&World<F>),
    second: impl FnOnce(&World<F>) + Send + 'static,
) {
    let met = Arc::new(AtomicBool::new(false));
    let hook = {
        let (world, met) = (Arc::clone(world), Arc::clone(&met));
        move || {
            met.store(true, Ordering::Relaxed);
            std::thread::spawn(move || second(&world)).join().unwrap();
        }
    };
    world.platform.tlbs.on_next_issue(hook);
    first(world);
    assert!(met.load(Ordering::Relaxed), "nothing was invalidated");
}

fn end<F: Format>(world: Arc<World<F>>) {
    Arc::into_inner(world).unwrap().destroy();
}

fn a_zap_that_finds_another_not_invalidated_yet_invalidates_itself<F: Format>() {
    let world = Arc::new(World::<F>::new(64));
    let vcpu = world.vcpu(0);
    map(&world, 7, Level::PAGE);
    walk(&world, 7);
    in_between(
        &world,
        |world| zap(world, 0..PAGES),
        |world| {
            zap(world, 7..8);
            assert!(world.platform.tlbs.remembered().is_empty(), "the page is in use still");
        },
    );
    drop(vcpu);
    end(world);
}

fn a_write_protection_that_finds_another_not_invalidated_yet_invalidates_itself<F: Format>() {
    let world = Arc::new(World::<F>::new(64));
    let vcpu = world.vcpu(0);
    map(&world, 0, Level::MIB2);
    walk(&world, 7);
    in_between(
        &world,
        |world| world.stage2.write_protect(gfns(0..PAGES), UNHURRIED, |_, _| ()),
        |world| {
            world
                .stage2
                .write_protect(gfns(7..8), UNHURRIED, |_, _| panic!("it is not writable any more"));
            assert!(world.platform.tlbs.remembered().is_empty(), "the page is writable still");
        },
    );
    drop(vcpu);
    end(world);
}

fn the_rest_of_a_zapped_block_is_mapped_only_when_tlbs_have_forgotten_it<F: Format>() {
    let world = Arc::new(World::<F>::new(64));
    let vcpu = world.vcpu(0);
    map(&world, 0, Level::MIB2);
    let mapped = Arc::new(AtomicBool::new(false));
    let hook = {
        let (world, mapped) = (Arc::clone(&world), Arc::clone(&mapped));
        move || {
            let waits = world.platform.frozen_waits();
            let platform = Arc::clone(&world.platform);
            let fault = {
                let mapped = Arc::clone(&mapped);
                move || {
                    while map(&world, 9, Level::PAGE) == Mapped::Retry {}
                    mapped.store(true, Ordering::SeqCst);
                }
            };
            let faulting = std::thread::spawn(fault);
            while platform.frozen_waits() == waits {
                assert!(!faulting.is_finished(), "a page beside a block in the TLBs");
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    };
    world.platform.tlbs.on_next_issue(hook);
    zap(&world, 7..8);
    soon(|| mapped.load(Ordering::SeqCst) && Arc::strong_count(&world) == 1);
    let section = world.srcu.read_lock();
    assert_eq!(vcpu.root.translate(Gfn::new(7), &section), None);
    assert_eq!(
        vcpu.root.translate(Gfn::new(9), &section),
        Some((Level::PAGE, leaf(9, READ_WRITE)))
    );
    drop(section);
    drop(vcpu);
    end(world);
}

fn a_zapped_leaf_is_told_of_when_tlbs_have_forgotten_it<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    for gfn in 0..200 {
        map(&world, gfn, Level::PAGE);
        walk(&world, gfn);
    }
    map(&world, PAGES, Level::MIB2);
    walk(&world, PAGES + 9);
    let announced = world.stage2.begin_invalidation(&gfns(0..PAGES + 10));
    let mut told = 0;
    world.stage2.zap_each(&announced, gfns(0..PAGES + 10), UNHURRIED, |gfn, level, _| {
        let of = gfns(gfn.get()..gfn.get() + level.pages());
        let remembered = world.platform.tlbs.remembered();
        assert!(remembered.keys().all(|(_, gfn)| !of.contains(gfn)), "{gfn} is in use still");
        told += 1;
    });
    assert_eq!(told, 201);
    drop((announced, vcpu));
    world.destroy();
}

fn a_fault_in_a_range_that_is_taken_away_makes_no_table<F: Format>() {
    let world = Arc::new(World::<F>::new(64));
    let vcpu = world.vcpu(0);
    map(&world, 0, Level::MIB2);
    let frames = world.live();
    in_between(
        &world,
        |world| zap(world, 0..PAGES),
        move |world| {
            assert_eq!(map(world, 7, Level::PAGE), Mapped::Retry);
            assert_eq!(world.live(), frames);
        },
    );
    assert_eq!(map(&world, 7, Level::PAGE), Mapped::Installed);
    drop(vcpu);
    end(world);
}

fn who_finds_nothing_to_take_from_what_a_fault_has_moved_invalidates_what_was_there<F: Format>() {
    let world = Arc::new(World::<F>::new(64));
    let vcpu = world.vcpu(0);
    map(&world, 7, Level::PAGE);
    walk(&world, 7);
    in_between(
        &world,
        |world| {
            let (seen, section) = (world.stage2.sample(), world.srcu.read_lock());
            let moved = leaf(99, READ);
            let mapped = vcpu.root.map(Gfn::new(7), Level::PAGE, &moved, seen, &section);
            assert_eq!(mapped, Ok(Mapped::Installed));
        },
        |world| {
            world
                .stage2
                .write_protect(gfns(7..8), UNHURRIED, |_, _| panic!("it is not writable any more"));
            assert!(world.platform.tlbs.remembered().is_empty(), "the page is writable still");
        },
    );
    drop(vcpu);
    end(world);
}

#[test]
fn who_finds_nothing_to_take_from_what_a_fault_has_moved_invalidates_what_was_there_ept() {
    who_finds_nothing_to_take_from_what_a_fault_has_moved_invalidates_what_was_there::<Ept>();
}

#[test]
fn who_finds_nothing_to_take_from_what_a_fault_has_moved_invalidates_what_was_there_sv39x4() {
    who_finds_nothing_to_take_from_what_a_fault_has_moved_invalidates_what_was_there::<Sv39x4>();
}

type Act = Box<dyn FnOnce() + Send>;

/// Does something once, before the next entry is changed.
#[derive(Clone, Default)]
struct Before(Arc<Mutex<Option<Act>>>);

impl Observer for Before {
    fn begin(&self) -> Ticket {
        let what = self.0.lock().unwrap().take();
        if let Some(what) = what {
            what();
        }
        Ticket(0)
    }

    fn end(&self, _begun: Ticket, _step: Step) {}
}

fn a_fault_that_an_invalidation_overtakes_makes_no_table<F: Format>() {
    let (platform, before) = (Platformed::new(64), Before::default());
    assert!(platform.observer.set(Box::new(before.clone())).is_ok());
    let world = Arc::new(World::<F>::on(platform, Reclaimer::<F>::BOUND));
    let vcpu = world.vcpu(0);
    // The tables above are there.
    map(&world, PAGES, Level::PAGE);
    let frames = world.live();
    *before.0.lock().unwrap() = Some({
        let world = Arc::clone(&world);
        Box::new(move || drop(world.stage2.begin_invalidation(&gfns(0..PAGES))))
    });
    assert_eq!(map(&world, 7, Level::PAGE), Mapped::Retry);
    assert_eq!(world.live(), frames);
    assert_eq!(map(&world, 7, Level::PAGE), Mapped::Installed);

    // Nor does it take anything away.
    *before.0.lock().unwrap() = Some({
        let world = Arc::clone(&world);
        Box::new(move || drop(world.stage2.begin_invalidation(&gfns(0..PAGES))))
    });
    let (seen, section) = (world.stage2.sample(), world.srcu.read_lock());
    let moved = vcpu.root.map(Gfn::new(7), Level::PAGE, &leaf(99, READ), seen, &section);
    assert_eq!(moved, Ok(Mapped::Retry));
    let found = vcpu.root.translate(Gfn::new(7), &section);
    assert_eq!(found, Some((Level::PAGE, leaf(7, READ_WRITE))));
    drop(section);
    drop(vcpu);
    end(world);
}

/// A fault that is inside a table which gives way to a block puts nothing there, where it would be lost.
#[test]
fn a_fault_in_a_table_that_gives_way_meanwhile_starts_again() {
    let (platform, before) = (Platformed::new(64), Before::default());
    assert!(platform.observer.set(Box::new(before.clone())).is_ok());
    let world = Arc::new(World::<Ept>::on(platform, Reclaimer::<Ept>::BOUND));
    let vcpu = world.vcpu(0);
    map(&world, 5 * PAGES, Level::PAGE);
    *before.0.lock().unwrap() = Some({
        let world = Arc::clone(&world);
        Box::new(move || assert_eq!(map(&world, 0, Level::GIB1), Mapped::Installed))
    });
    assert_eq!(map(&world, PAGES + 7, Level::PAGE), Mapped::Already);
    drop(vcpu);
    end(world);
}

/// A zap that comes to an entry which a fault has frozen, and is about to fill, takes away what comes of it.
#[test]
fn a_zap_waits_for_an_entry_that_a_fault_is_changing() {
    let world = Arc::new(World::<Arm<40>>::new(64));
    let vcpu = world.vcpu(0);
    map(&world, 7, Level::PAGE);
    let zapped = Arc::new(AtomicBool::new(false));
    let hook = {
        let (world, zapped) = (Arc::clone(&world), Arc::clone(&zapped));
        move || {
            let waits = world.platform.frozen_waits();
            let platform = Arc::clone(&world.platform);
            let zap = {
                let zapped = Arc::clone(&zapped);
                move || {
                    zap(&world, 7..8);
                    zapped.store(true, Ordering::SeqCst);
                }
            };
            let zapping = std::thread::spawn(zap);
            while platform.frozen_waits() == waits {
                assert!(!zapping.is_finished(), "it did not wait");
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    };
    world.platform.tlbs.on_next_issue(hook);
    let section = world.srcu.read_lock();
    // Another frame: Arm has the entry absent until the TLBs have forgotten the first.
    let seen = world.stage2.sample();
    let mapped = vcpu.root.map(Gfn::new(7), Level::PAGE, &leaf(99, READ_WRITE), seen, &section);
    assert_eq!(mapped, Ok(Mapped::Installed));
    drop(section);
    soon(|| zapped.load(Ordering::SeqCst) && Arc::strong_count(&world) == 1);
    assert_eq!(vcpu.root.translate(Gfn::new(7), &world.srcu.read_lock()), None);
    drop(vcpu);
    end(world);
}

in_formats! {
    a_zap_that_finds_another_not_invalidated_yet_invalidates_itself
    a_write_protection_that_finds_another_not_invalidated_yet_invalidates_itself
    the_rest_of_a_zapped_block_is_mapped_only_when_tlbs_have_forgotten_it
    a_zapped_leaf_is_told_of_when_tlbs_have_forgotten_it
    a_fault_in_a_range_that_is_taken_away_makes_no_table
    a_fault_that_an_invalidation_overtakes_makes_no_table
}
