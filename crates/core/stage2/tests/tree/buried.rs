//! Tables that faults have buried, where nobody zaps.

use std::sync::Arc;
use std::thread;

use mayfly_stage2::{Ept, Level, Mapped, Reclaimed};

use crate::common::granted::MapsAny;
use crate::common::{World, role};
use crate::{READ, READ_WRITE, UNHURRIED, gfns, leaf};
use mayfly_platform::testing::threads::{joined, soon};

/// Tables that may be buried at a time.
const BOUND: u64 = 4096;
const PER_TABLE: u64 = 512;

/// Maps the page, or the block, at the beginning of table `table`'s part of the guest.
fn map(world: &World<Ept>, table: u64, level: Level) -> Mapped {
    let section = world.srcu.read_lock();
    let root = world.stage2.find_root(role(0), &section).unwrap();
    let gfn = table * PER_TABLE;
    let rights = if level == Level::PAGE { READ } else { READ_WRITE };
    let (what, seen) = (leaf(gfn, rights), world.stage2.sample());
    root.map(gfns(gfn..gfn + 1).start, level, &what, seen, &section).unwrap()
}

/// A page in a table of its own, and then the block in the table's place.
fn collapse(world: &World<Ept>, table: u64) -> Mapped {
    assert_eq!(map(world, table, Level::PAGE), Mapped::Installed);
    map(world, table, Level::MIB2)
}

#[test]
fn collapsing_goes_on_past_the_graveyards_bound_where_nobody_else_frees_what_it_buries() {
    let world = World::<Ept>::new(200);
    drop(world.root(0));
    for table in 0..2 * BOUND {
        assert_eq!(collapse(&world, table), Mapped::Installed, "table {table}");
        if world.live() > 100 {
            while world.reclaimer.run_slice(UNHURRIED) == Reclaimed::More {}
        }
    }
    while world.reclaimer.run_slice(UNHURRIED) == Reclaimed::More {}
    assert_eq!(world.live() as u64, 2 + 2 * BOUND / PER_TABLE, "no table of pages is left");
    world.destroy();
}

#[test]
fn what_a_reader_may_be_in_is_freed_when_he_has_left() {
    let world = World::<Ept>::new(10_000);
    drop(world.root(0));
    let reader = world.srcu.reader().unwrap();
    let held = reader.lock();
    for table in 0..BOUND {
        assert_eq!(collapse(&world, table), Mapped::Installed);
    }
    assert_eq!(collapse(&world, BOUND), Mapped::TooLarge, "so many are kept for him");
    assert_eq!(world.reclaimer.run_slice(UNHURRIED), Reclaimed::Waits);
    // The root that was noted goes; its VM's buried tables are not forgotten.
    world.stage2.replace_roots().unwrap().finish();
    while world.reclaimer.run_slice(UNHURRIED) == Reclaimed::More {}
    assert!(world.live() as u64 > BOUND);
    drop(held);
    while world.reclaimer.run_slice(UNHURRIED) != Reclaimed::All {}
    assert_eq!(world.live(), 1);
    assert_eq!(collapse(&world, 0), Mapped::Installed);
    world.destroy();
}

#[test]
fn a_reclaimer_that_is_served_hears_of_what_faults_bury() {
    let world = World::<Ept>::new(10_000);
    drop(world.root(0));
    let reclaimer = Arc::clone(&world.reclaimer);
    let server = thread::spawn(move || reclaimer.serve(UNHURRIED));
    for table in 0..100 {
        assert_eq!(collapse(&world, table), Mapped::Installed);
    }
    soon(|| world.live() <= 3);
    world.reclaimer.stop();
    joined(server);
    world.destroy();
}
