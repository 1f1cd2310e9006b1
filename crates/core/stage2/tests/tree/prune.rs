//! Tables that a zap has emptied, and had no room for in the graveyard.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use mayfly_stage2::{Ept, Level, Mapped, Reclaimed, Slice, Tables};

use crate::common::granted::MapsAny;
use crate::common::{World, role};
use crate::{READ_WRITE, UNHURRIED, entries, gfns, leaf};
use mayfly_platform::testing::threads::Over;

/// Tables that may be buried at a time; and those that there are.
const BOUND: u64 = 4096;
const TABLES: u64 = BOUND + 1500;
const PER_TABLE: u64 = 512;

/// Maps the first page of each of so many tables.
fn fill(world: &World<Ept>) {
    (0..TABLES).for_each(|table| assert_eq!(map(world, table * PER_TABLE), Mapped::Installed));
}

fn map(world: &World<Ept>, gfn: u64) -> Mapped {
    let section = world.srcu.read_lock();
    let root = world.stage2.find_root(role(0), &section).unwrap();
    let (what, seen) = (leaf(gfn, READ_WRITE), world.stage2.sample());
    root.map(gfns(gfn..gfn + 1).start, Level::PAGE, &what, seen, &section).unwrap()
}

fn is_mapped(world: &World<Ept>, gfn: u64) -> bool {
    let section = world.srcu.read_lock();
    let root = world.stage2.find_root(role(0), &section).unwrap();
    root.translate(gfns(gfn..gfn + 1).start, &section).is_some()
}

/// Zaps everything as a host does, while `world` has a reader who does not leave: nobody waits for him.
fn zap(world: &World<Ept>) {
    let all = gfns(0..u64::MAX);
    let invalidation = world.stage2.begin_invalidation(&all);
    world.stage2.zap(&invalidation, all, Tables::Free, UNHURRIED);
    drop(invalidation);
    assert!((0..TABLES).all(|table| !is_mapped(world, table * PER_TABLE)), "all is zapped");
}

/// Reclaims until there is no more to do at once.
fn reclaim(world: &World<Ept>, slice: Slice) -> Reclaimed {
    loop {
        match world.reclaimer.run_slice(slice) {
            Reclaimed::More => {}
            last => return last,
        }
    }
}

#[test]
fn nobody_waits_for_a_reader_to_zap_and_what_hangs_is_taken_out_when_he_is_gone() {
    for slice in [UNHURRIED, entries(700)] {
        let world = World::<Ept>::new(10_000);
        let root = world.root(0);
        let reader = world.srcu.reader().unwrap();
        let held = reader.lock();
        fill(&world);
        let before = world.live();
        zap(&world);
        assert_eq!(world.live(), before, "the reader may be in any of them");
        assert_eq!(reclaim(&world, slice), Reclaimed::Waits);
        // One that hangs is found, and used again.
        assert_eq!(map(&world, (TABLES - 1) * PER_TABLE + 7), Mapped::Installed);
        assert_eq!(world.live(), before);

        drop(held);
        assert_eq!(reclaim(&world, slice), Reclaimed::All);
        world.zap(gfns(1..1), Tables::Keep, UNHURRIED);
        assert!(is_mapped(&world, (TABLES - 1) * PER_TABLE + 7), "what is mapped stays");
        assert_eq!(world.live(), 4, "the tables on the way to it");
        drop(root);
        world.destroy();
    }
}

/// At the moment when a table is out of the tree, and TLBs have not forgotten it.
#[test]
fn no_fault_makes_anything_where_a_table_is_taken_out_until_tlbs_have_forgotten_it() {
    let world = Arc::new(World::<Ept>::new(10_000));
    let vcpu = world.vcpu(0);
    let reader = world.srcu.reader().unwrap();
    let held = reader.lock();
    fill(&world);
    zap(&world);
    assert_eq!(reclaim(&world, UNHURRIED), Reclaimed::Waits);
    drop(held);
    let last = (TABLES - 1) * PER_TABLE;
    let met = Arc::new(Mutex::new(None));
    world.platform.tlbs.on_next_issue({
        let (world, met) = (Arc::clone(&world), Arc::clone(&met));
        move || *met.lock().unwrap() = Some(map(&world, last))
    });
    assert_eq!(reclaim(&world, UNHURRIED), Reclaimed::All);
    assert_eq!(met.lock().unwrap().take(), Some(Mapped::Retry));
    assert_eq!(map(&world, last), Mapped::Installed);
    assert!(is_mapped(&world, last));
    drop(vcpu);
    Arc::into_inner(world).unwrap().destroy();
}

#[test]
fn a_root_that_is_retired_keeps_no_hanging_tables() {
    let world = World::<Ept>::new(10_000);
    let root = world.root(0);
    let reader = world.srcu.reader().unwrap();
    let held = reader.lock();
    fill(&world);
    zap(&world);
    world.stage2.retire();
    drop(root);
    assert_eq!(reclaim(&world, UNHURRIED), Reclaimed::Waits);
    drop(held);
    world.destroy();
}

#[test]
fn hanging_tables_go_with_the_reclaimer() {
    let world = World::<Ept>::new(10_000);
    drop(world.root(0));
    let reader = world.srcu.reader().unwrap();
    let held = reader.lock();
    fill(&world);
    zap(&world);
    drop(held);
    let platform = world.platform.clone();
    drop((reader, world));
    assert_eq!(platform.arena.live(), 0);
}

/// Guests fault everywhere while tables are zapped and taken out: what is mapped when nobody takes anything away is
/// found, and at the end every frame comes back.
#[test]
fn faults_go_on_while_tables_are_taken_out() {
    let world = World::<Ept>::new(30_000);
    let root = world.root(0);
    let over = AtomicBool::new(false);
    let goes_on = || !over.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        for first in 0..2 {
            let world = &world;
            scope.spawn(move || {
                let mut table = first;
                while goes_on() {
                    while map(world, table % TABLES * PER_TABLE + first) == Mapped::Retry {
                        std::thread::yield_now();
                    }
                    table += 7;
                }
            });
        }
        scope.spawn(|| {
            while goes_on() {
                world.reclaimer.run_slice(entries(5000));
            }
        });
        let _over = Over(&over);
        for _ in 0..2 {
            let reader = world.srcu.reader().unwrap();
            let held = reader.lock();
            fill_again(&world);
            let all = gfns(0..u64::MAX);
            let invalidation = world.stage2.begin_invalidation(&all);
            world.stage2.zap(&invalidation, all, Tables::Free, UNHURRIED);
            drop(invalidation);
            drop(held);
        }
    });
    drop(root);
    world.destroy();
}

/// As [`fill`], beside others who map and take out.
fn fill_again(world: &World<Ept>) {
    for table in 0..TABLES {
        while map(world, table * PER_TABLE + 2) == Mapped::Retry {
            std::thread::yield_now();
        }
    }
}
