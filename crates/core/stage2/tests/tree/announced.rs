//! What is taken away is shown an announcement of it, of the same VM.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_stage2::{Announcement, Ept, Leaf, Level, Mapped, Replacement, Tables};

use crate::common::granted::{MapsAny, ReplacesAny};
use crate::common::{World, role};
use crate::{READ, UNHURRIED, gfns, leaf};

const PAGES: u64 = Level::MIB2.pages();

/// Announcements that have a place of their own.
const PLACES: u64 = 16;

fn look(world: &World<Ept>, gfn: u64) -> Option<(Level, Leaf)> {
    world.root(0).translate(Gfn::new(gfn), &world.srcu.read_lock())
}

#[test]
fn only_what_was_announced_is_taken_away() {
    let world = World::<Ept>::new(64);
    let of = |ranges: &[std::ops::Range<u64>]| {
        world.stage2.begin_invalidation_of(|announce| {
            for range in ranges {
                announce(gfns(range.clone()));
            }
        })
    };
    let announced = of(&[8..16, 2 * PAGES..3 * PAGES, 16..20]);
    let is_announced = |range| world.stage2.is_announced(&announced, &gfns(range));
    for range in [8..16, 9..10, 16..20, 8..20, 15..17, 2 * PAGES..3 * PAGES, 0..0] {
        assert!(is_announced(range.clone()), "{range:?}");
    }
    for range in [7..9, 7..8, 19..21, 20..21, 8..3 * PAGES, PAGES..2 * PAGES, 0..u64::MAX] {
        assert!(!is_announced(range.clone()), "{range:?}");
    }
    let other = world.stage2.begin_invalidation(&gfns(30..40));
    assert!(!is_announced(30..40), "another has");
    drop(other);
    // Those beyond the places share one, and each has it.
    let many: Vec<_> = (0..PLACES + 2).map(|at| 100 + 2 * at).collect();
    let ranges: Vec<_> = many.iter().map(|&at| at..at + 1).collect();
    let beyond = of(&ranges);
    for range in ranges {
        assert!(world.stage2.is_announced(&beyond, &gfns(range)));
    }
    assert!(!is_announced(114..118), "it has a place for each of its own");
    drop(beyond);
    drop(announced);
    world.destroy();
}

/// Each that would take away more than was announced, or what was announced elsewhere, takes nothing.
#[test]
fn nothing_is_taken_away_that_was_not_announced() {
    type Way = fn(&World<Ept>, &Announcement);
    const WITH: Replacement =
        Replacement { old: Pfn::new(7), new: Pfn::new(8), same_contents: true };
    let ways: [Way; 6] = [
        |world, by| world.stage2.zap(by, gfns(0..8), Tables::Keep, UNHURRIED),
        |world, by| world.stage2.zap_role(role(0), by, gfns(0..8), Tables::Free, UNHURRIED),
        |world, by| world.stage2.zap_each(by, gfns(0..8), UNHURRIED, |_, _, _| ()),
        |world, by| world.stage2.replace_any(by, gfns(7..8), UNHURRIED, |_| Some(WITH), |_| ()),
        |world, by| {
            world.stage2.replace_any_owing(by, gfns(7..8), UNHURRIED, |_| Some(WITH), |_| ()).pay();
        },
        |world, by| world.stage2.allow_any_writes(by, Gfn::new(7), Pfn::new(7)),
    ];
    let (world, other) = (World::<Ept>::new(64), World::<Ept>::new(64));
    {
        let (section, seen) = (world.srcu.read_lock(), world.stage2.sample());
        let root = world.root(0);
        let mapped = root.map(Gfn::new(7), Level::PAGE, &leaf(7, READ), seen, &section);
        assert_eq!(mapped, Ok(Mapped::Installed));
    }
    let before = look(&world, 7);
    for way in ways {
        let refuses = |by: &Announcement| {
            let caught = catch_unwind(AssertUnwindSafe(|| way(&world, by)));
            let message = *caught.unwrap_err().downcast::<String>().unwrap();
            assert!(message.contains("was announced here"), "{message}");
            assert_eq!(look(&world, 7), before);
        };
        let all = gfns(0..u64::MAX);
        refuses(&world.stage2.begin_invalidation(&gfns(0..7)));
        // It has the place there that an invalidation has here, of which nothing is shown.
        let _own = world.stage2.begin_invalidation(&all);
        refuses(&other.stage2.begin_invalidation(&all));
    }
    other.destroy();
    world.destroy();
}

/// What was announced in a VM that is gone is not of another that has come to lie where it lay.
#[test]
fn an_announcement_that_outlives_its_vm_is_no_later_vms() {
    let mut left = Vec::new();
    for _ in 0..20 {
        let world = World::<Ept>::new(8);
        let page = gfns(0..1);
        // In the place that each of the earlier ones had.
        let announcement = world.stage2.begin_invalidation(&page).leave();
        assert!(left.iter().all(|earlier| !world.stage2.is_announced(earlier, &page)));
        assert!(world.stage2.is_announced(&announcement, &page));
        left.push(announcement);
        world.destroy();
    }
}
