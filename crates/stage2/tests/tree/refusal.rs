//! Which faults are refused: those that asked the host before, or while, it takes away what they would map.

use mayfly_platform::address::Gfn;
use mayfly_stage2::{Ept, Level, Mapped, Seen, Tables};

use crate::common::{World, role};
use crate::{READ, UNHURRIED, gfns, leaf};

const PAGES: u64 = Level::MIB2.pages();

fn map(world: &World<Ept>, gfn: u64, level: Level, seen: Seen) -> Mapped {
    let section = world.srcu.read_lock();
    let root = world.stage2.root(role(0), &section).unwrap();
    root.map(Gfn::new(gfn), level, &leaf(gfn, READ), seen, &section).unwrap()
}

fn run(world: &World<Ept>, range: std::ops::Range<u64>, seen: Seen) -> Mapped {
    let section = world.srcu.read_lock();
    let root = world.stage2.root(role(0), &section).unwrap();
    root.map_run(gfns(range.clone()), Level::PAGE, &leaf(range.start, READ), seen, &section)
        .unwrap()
}

#[test]
fn a_fault_that_asked_the_host_before_an_invalidation_is_refused_after_it() {
    let world = World::<Ept>::new(64);
    map(&world, 1, Level::PAGE, world.stage2.sample());
    let seen = world.stage2.sample();
    drop(world.stage2.begin_invalidation(&gfns(7..8)));
    let frames = world.live();
    for (gfn, level) in [(7, Level::PAGE), (0, Level::MIB2), (3 * PAGES, Level::PAGE)] {
        assert_eq!(map(&world, gfn, level, seen), Mapped::Retry);
    }
    assert_eq!(run(&world, 4 * PAGES..6 * PAGES, seen), Mapped::Retry);
    assert_eq!(world.live(), frames, "no table was made");
    assert_eq!(map(&world, 7, Level::PAGE, world.stage2.sample()), Mapped::Installed);
    world.destroy();
}

#[test]
fn a_fault_is_refused_where_an_invalidation_is_under_way_and_not_beside_it() {
    let world = World::<Ept>::new(64);
    let announced = world.stage2.begin_invalidation(&gfns(PAGES..PAGES + 8));
    let seen = world.stage2.sample();
    for (gfn, level, mapped) in [
        (PAGES, Level::PAGE, Mapped::Retry),
        (PAGES + 7, Level::PAGE, Mapped::Retry),
        (PAGES, Level::MIB2, Mapped::Retry),
        (0, Level::GIB1, Mapped::Retry),
        (PAGES - 1, Level::PAGE, Mapped::Installed),
        (PAGES + 8, Level::PAGE, Mapped::Installed),
        (0, Level::MIB2, Mapped::Installed),
    ] {
        assert_eq!(map(&world, gfn, level, seen), mapped, "{gfn:#x} at {level:?}");
    }
    drop(announced);
    world.destroy();
}

#[test]
fn a_fault_is_refused_until_the_last_of_several_invalidations_ends() {
    let world = World::<Ept>::new(64);
    let first = world.stage2.begin_invalidation(&gfns(0..4));
    let second = world.stage2.begin_invalidation(&gfns(2..8));
    for gfn in [0, 3, 7] {
        assert_eq!(map(&world, gfn, Level::PAGE, world.stage2.sample()), Mapped::Retry);
    }
    drop(first);
    assert_eq!(map(&world, 3, Level::PAGE, world.stage2.sample()), Mapped::Retry);
    drop(second);
    assert_eq!(map(&world, 3, Level::PAGE, world.stage2.sample()), Mapped::Installed);
    // The range of those that are over is nobody's.
    let third = world.stage2.begin_invalidation(&gfns(PAGES..PAGES + 1));
    assert_eq!(map(&world, 4, Level::PAGE, world.stage2.sample()), Mapped::Installed);
    drop(third);
    world.destroy();
}

#[test]
fn a_fault_that_found_the_slots_of_before_is_refused_after_they_changed() {
    let world = World::<Ept>::new(64);
    let seen = world.stage2.sample();
    let published = world.stage2.change_slots(|| {
        assert_eq!(map(&world, 0, Level::PAGE, seen), Mapped::Installed);
        "slots"
    });
    assert_eq!(published, "slots");
    assert_eq!(map(&world, 1, Level::PAGE, seen), Mapped::Retry);
    assert_eq!(map(&world, 1, Level::PAGE, world.stage2.sample()), Mapped::Installed);
    world.destroy();
}

#[test]
fn a_refused_fault_leaves_what_was_there() {
    let world = World::<Ept>::new(64);
    map(&world, 0, Level::MIB2, world.stage2.sample());
    let seen = world.stage2.sample();
    drop(world.stage2.begin_invalidation(&gfns(0..1)));
    let section = world.srcu.read_lock();
    let root = world.root(0);
    let other = leaf(8 * PAGES, READ);
    assert_eq!(root.map(Gfn::new(0), Level::MIB2, &other, seen, &section), Ok(Mapped::Retry));
    assert_eq!(root.translate(Gfn::new(9), &section), Some((Level::MIB2, leaf(0, READ))));
    drop((section, root));
    world.destroy();
}

#[test]
fn whoever_waits_for_an_invalidation_that_is_not_there_goes_on() {
    let world = World::<Ept>::new(64);
    world.stage2.wait_invalidation(&gfns(0..u64::MAX));
    let announced = world.stage2.begin_invalidation(&gfns(0..8));
    world.stage2.wait_invalidation(&gfns(8..9));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| world.stage2.wait_invalidation(&gfns(7..8)));
        world.stage2.zap(gfns(0..8), Tables::Free, UNHURRIED);
        drop(announced);
        waiter.join().unwrap();
    });
    world.destroy();
}
