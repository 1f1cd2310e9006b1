//! Which faults are refused: those that asked the host before, or while, it takes away what they would map.

use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_platform::address::Gfn;
use mayfly_stage2::{Ept, Grant, Level, Mapped, Permissions, Root, Seen, Tables};

use crate::common::granted::MapsAny;
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
    root.map_any_run(gfns(range.clone()), Level::PAGE, &leaf(range.start, READ), seen, &section)
        .unwrap()
}

/// Regions whose ends of invalidations are not told apart are so far apart.
const ALIKE: u64 = 64 * PAGES;

#[test]
fn a_fault_that_asked_the_host_before_an_invalidation_is_refused_after_it() {
    let world = World::<Ept>::new(64);
    map(&world, 1, Level::PAGE, world.stage2.sample());
    let seen = world.stage2.sample();
    drop(world.stage2.begin_invalidation(&gfns(7..8)));
    let frames = world.live();
    for (gfn, level) in [(7, Level::PAGE), (0, Level::MIB2), (0, Level::GIB1), (ALIKE, Level::PAGE)]
    {
        assert_eq!(map(&world, gfn, level, seen), Mapped::Retry, "{gfn:#x} at {level:?}");
    }
    assert_eq!(run(&world, 0..2 * PAGES, seen), Mapped::Retry);
    assert_eq!(world.live(), frames, "no table was made");
    assert_eq!(map(&world, 7, Level::PAGE, world.stage2.sample()), Mapped::Installed);
    world.destroy();
}

#[test]
fn the_short_way_maps_what_is_missing_in_a_table_and_leaves_all_else_alone() {
    let world = World::<Ept>::new(64);
    let short = |gfn: u64, pfn: u64, seen| {
        let section = world.srcu.read_lock();
        let root = world.stage2.root(role(0), &section).unwrap();
        let mapped = root.map_missing_page(Gfn::new(gfn), &leaf(pfn, READ), seen, &section);
        let found = root.translate(Gfn::new(gfn), &section);
        (mapped, found.map(|(level, leaf)| (level, leaf.pfn.get())))
    };
    let seen = world.stage2.sample();
    assert_eq!(short(7, 7, seen), (None, None), "there is no table");
    map(&world, 1, Level::PAGE, seen);
    map(&world, PAGES, Level::MIB2, seen);
    let page = |pfn| Some((Level::PAGE, pfn));
    assert_eq!(short(7, 7, seen), (Some(Mapped::Installed), page(7)));
    assert_eq!(short(7, 9, seen), (None, page(7)));
    assert_eq!(short(PAGES + 1, 9, seen), (None, Some((Level::MIB2, PAGES))));
    assert_eq!(short(8, 1 << 50, seen), (None, None), "no entry can name the frame");
    assert_eq!(short(Root::<Ept>::LIMIT.get() + 8, 8, seen), (None, None));
    drop(world.stage2.begin_invalidation(&gfns(8..9)));
    assert_eq!(short(8, 8, seen), (None, None), "the host was asked before");
    assert_eq!(short(8, 8, world.stage2.sample()), (Some(Mapped::Installed), page(8)));
    let announced = world.stage2.begin_invalidation(&gfns(9..10));
    assert_eq!(short(9, 9, world.stage2.sample()), (None, None), "the host is changing it");
    drop(announced);
    world.destroy();
}

#[test]
fn a_fault_is_refused_by_no_invalidation_that_ends_in_other_regions() {
    let world = World::<Ept>::new(1000);
    let seen = world.stage2.sample();
    // Two places, and nothing of what lies between.
    for _ in 0..1000 {
        drop(world.stage2.begin_invalidation_of(|announce| {
            announce(gfns(7..8));
            announce(gfns(9 * PAGES - 1..9 * PAGES + 1));
        }));
    }
    drop(world.stage2.change_slots_and_invalidate(&gfns(20 * PAGES..21 * PAGES), || ()));
    world.stage2.change_slots(&gfns(22 * PAGES..22 * PAGES + 3), || ());
    world.stage2.refuse_faults(&gfns(24 * PAGES..26 * PAGES));
    let regions = [0, 8, 9, 20, 22, 24, 25];
    for region in 0..200 {
        let gfn = region * PAGES + 3;
        let refused = regions.contains(&(region % 64));
        let mapped = if refused { Mapped::Retry } else { Mapped::Installed };
        assert_eq!(map(&world, gfn, Level::PAGE, seen), mapped, "region {region}");
        assert_eq!(
            map(&world, region * PAGES + 4, Level::PAGE, world.stage2.sample()),
            Mapped::Installed
        );
    }
    assert_eq!(run(&world, 64 * PAGES + PAGES..64 * PAGES + 8 * PAGES, seen), Mapped::Installed);
    assert_eq!(run(&world, 64 * PAGES + PAGES..64 * PAGES + 9 * PAGES, seen), Mapped::Retry);
    world.destroy();
}

#[test]
fn what_takes_more_than_there_are_words_is_found_in_all_of_them() {
    let world = World::<Ept>::new(200);
    let seen = world.stage2.sample();
    drop(world.stage2.begin_invalidation(&gfns(PAGES..65 * PAGES)));
    for region in 0..100 {
        assert_eq!(map(&world, region * PAGES, Level::PAGE, seen), Mapped::Retry);
    }
    let seen = world.stage2.sample();
    let announced = world.stage2.begin_invalidation(&gfns(PAGES..u64::MAX));
    assert_eq!(map(&world, 0, Level::PAGE, seen), Mapped::Installed, "it lies beside");
    assert_eq!(map(&world, 1000 * PAGES, Level::PAGE, seen), Mapped::Retry);
    drop(announced);
    assert_eq!(map(&world, 1, Level::PAGE, seen), Mapped::Retry);
    world.destroy();
}

/// As many as have a place for their range, and more.
#[test]
fn however_many_invalidations_are_under_way_a_fault_is_refused_in_the_range_of_each() {
    const PLACES: u64 = 16;
    let world = World::<Ept>::new(1000);
    // Two a region.
    let range = |number: u64| number * (PAGES / 2)..number * (PAGES / 2) + 8;
    for count in [PLACES - 1, PLACES, PLACES + 1, PLACES + 5] {
        let mut announced: Vec<_> = (0..count)
            .map(|number| world.stage2.begin_invalidation(&gfns(range(number))))
            .collect();
        // In any order.
        announced.reverse();
        announced.rotate_left(3);
        while !announced.is_empty() {
            let seen = world.stage2.sample();
            let mut refused = 0;
            for number in 0..count {
                let inside = range(number).start + 3;
                refused += u64::from(map(&world, inside, Level::PAGE, seen) == Mapped::Retry);
                if number < PLACES {
                    let beside = range(number).end + count;
                    assert_ne!(map(&world, beside, Level::PAGE, seen), Mapped::Retry);
                }
            }
            assert!(refused >= announced.len() as u64);
            if count <= PLACES {
                assert_eq!(refused, announced.len() as u64);
            }
            announced.pop();
        }
        world.zap(gfns(0..u64::MAX), Tables::Keep, UNHURRIED);
    }
    world.destroy();
}

#[test]
fn an_invalidation_that_was_left_is_ended_by_its_announcement() {
    let world = World::<Ept>::new(64);
    let [first, second] =
        [0..8, 4..12].map(|range| world.stage2.begin_invalidation(&gfns(range)).leave());
    world.stage2.end_invalidation(first).unwrap();
    for (gfn, mapped) in [(3, Mapped::Installed), (4, Mapped::Retry), (11, Mapped::Retry)] {
        assert_eq!(map(&world, gfn, Level::PAGE, world.stage2.sample()), mapped, "{gfn}");
    }
    world.stage2.end_invalidation(second).unwrap();
    assert_eq!(map(&world, 4, Level::PAGE, world.stage2.sample()), Mapped::Installed);
    world.destroy();
}

#[test]
fn a_grant_that_is_forgotten_maps_nothing_and_one_that_is_kept_too_long_is_refused() {
    let world = World::<Ept>::new(64);
    let (root, section) = (world.root(0), world.srcu.read_lock());
    let grant = |pfn| {
        let (seen, what) = (world.stage2.sample(), leaf(pfn, READ));
        root.grant_any(Gfn::new(7), Level::PAGE, &what, seen, &section)
    };
    // Nothing is done when it is dropped, and so nothing is missed when it is forgotten.
    assert!(!std::mem::needs_drop::<Grant<'_, Ept>>());
    let _ = grant(5);
    assert_eq!(root.translate(Gfn::new(7), &section), None);
    let kept = grant(6);
    drop(world.stage2.begin_invalidation(&gfns(7..8)));
    assert_eq!(kept.map(), Ok(Mapped::Retry));
    assert_eq!(root.translate(Gfn::new(7), &section), None);
    drop((section, root));
    world.destroy();
}

#[test]
fn a_part_of_a_grant_is_mapped_where_it_lies_and_has_no_more_rights() {
    let world = World::<Ept>::new(64);
    let (root, section) = (world.root(0), world.srcu.read_lock());
    let (gfn, what) = (Gfn::new(5 * PAGES + 3), leaf(9 * PAGES, READ));
    let mut grant = root.grant_any(gfn, Level::MIB2, &what, world.stage2.sample(), &section);
    assert_eq!(grant.part(Level::PAGE, Permissions::all()).map(), Ok(Mapped::Installed));
    let (level, page) = root.translate(gfn, &section).unwrap();
    assert_eq!((level, page.pfn.get(), page.permissions), (Level::PAGE, 9 * PAGES + 3, READ));
    assert_eq!(root.translate(Gfn::new(gfn.get() + 1), &section), None);
    // A part of more than there is, is all of it.
    assert_eq!(grant.part(Level::GIB1, READ).map(), Ok(Mapped::Installed));
    let (level, block) = root.translate(gfn, &section).unwrap();
    assert_eq!((level, block.pfn.get()), (Level::MIB2, 9 * PAGES));
    drop((section, root));
    world.destroy();
}

#[test]
fn an_announcement_that_another_vm_is_told_to_end_is_given_back_and_ends_in_its_own() {
    let (world, other) = (World::<Ept>::new(64), World::<Ept>::new(64));
    let announcement = world.stage2.begin_invalidation(&gfns(0..8)).leave();
    let back = other.stage2.end_invalidation(announcement).unwrap_err();
    assert!(world.stage2.is_invalidating(&gfns(0..8)), "it has not ended");
    world.stage2.end_invalidation(back).unwrap();
    assert!(!world.stage2.is_invalidating(&gfns(0..8)));
    world.destroy();
    other.destroy();
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
    let published = world.stage2.change_slots(&gfns(0..PAGES), || {
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

/// Others may end as often as they like.
#[test]
fn whoever_waits_for_an_invalidation_waits_for_that_one() {
    let world = World::<Ept>::new(64);
    let announced = world.stage2.begin_invalidation(&gfns(0..8));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            world.stage2.wait_invalidation(&gfns(7..8));
            assert!(over.load(Ordering::SeqCst), "it has not ended");
        });
        for _ in 0..1000 {
            drop(world.stage2.begin_invalidation(&gfns(7 + ALIKE..8 + ALIKE)));
        }
        over.store(true, Ordering::SeqCst);
        drop(announced);
        waiter.join().unwrap();
    });
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
        world.stage2.zap(&announced, gfns(0..8), Tables::Free, UNHURRIED);
        drop(announced);
        waiter.join().unwrap();
    });
    world.destroy();
}

#[test]
fn nobody_waits_for_an_invalidation_of_nothing() {
    let world = World::<Ept>::new(64);
    let announced = world.stage2.begin_invalidation(&gfns(0..u64::MAX));
    for page in [512, 0, 1, u64::MAX] {
        world.stage2.wait_invalidation(&gfns(page..page));
    }
    drop(announced);
    world.destroy();
}
