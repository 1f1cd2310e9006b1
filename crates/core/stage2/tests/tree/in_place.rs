//! What is changed in place, and what goes by an absent entry: as the format asks.

use std::sync::{Arc, Mutex};

use mayfly_platform::address::Gfn;
use mayfly_stage2::{Arm, Ept, Format, Leaf, Level, Mapped, Npt, Permissions, Sv39x4};

use crate::common::World;
use crate::common::granted::MapsAny;
use crate::{READ, READ_WRITE, UNHURRIED, gfns, leaf};

/// What an observer finds at the moment when a change is invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    /// Nothing is invalidated.
    NotInvalidated,
    /// The entry is absent.
    Absent,
    /// The entry is the new one already.
    Changed,
}

use Meanwhile::{Absent, Changed, NotInvalidated};

/// What happens between two mappings at the same place, one after the other.
fn meanwhile<F: Format>(first: (Level, Leaf), second: (Level, Leaf)) -> Meanwhile {
    let world = Arc::new(World::<F>::new(64));
    let vcpu = world.vcpu(0);
    let map = |(level, leaf): (Level, Leaf)| {
        let section = world.srcu.read_lock();
        let mapped = vcpu.root.map(Gfn::new(0), level, &leaf, world.stage2.sample(), &section);
        assert!(matches!(mapped, Ok(Mapped::Installed | Mapped::Relaxed)), "{mapped:?}");
    };
    map(first);
    let found = Arc::new(Mutex::new(NotInvalidated));
    let hook = {
        let (world, found) = (Arc::clone(&world), Arc::clone(&found));
        move || {
            let root = world.root(0);
            let translated = root.translate(Gfn::new(0), &world.srcu.read_lock());
            *found.lock().unwrap() = if translated.is_none() { Absent } else { Changed };
        }
    };
    world.platform.tlbs.on_next_issue(hook);
    map(second);
    world.platform.tlbs.on_next_issue(|| ());
    drop(vcpu);
    Arc::into_inner(world).unwrap().destroy();
    *found.lock().unwrap()
}

/// What happens on Arm, and with EPT.
fn on_both(first: (Level, Leaf), second: (Level, Leaf)) -> [Meanwhile; 2] {
    [meanwhile::<Arm<40>>(first, second), meanwhile::<Ept>(first, second)]
}

fn aged<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    let used = Leaf { dirty: true, accessed: true, ..leaf(5, READ_WRITE) };
    let section = world.srcu.read_lock();
    let mapped =
        vcpu.root.map(Gfn::new(0), Level::PAGE, &used, world.stage2.sample(), &section).unwrap();
    assert_eq!(mapped, Mapped::Installed);
    world.stage2.age(gfns(0..1), UNHURRIED, |_, _| ());
    let (_, found) = vcpu.root.translate(Gfn::new(0), &section).unwrap();
    assert_eq!(found, Leaf { accessed: false, ..used });
    drop((section, vcpu));
    world.destroy();
}

#[test]
fn a_page_that_is_aged_loses_nothing_but_that_it_was_accessed() {
    aged::<Ept>();
    aged::<Npt>();
}

#[test]
fn a_block_is_split_by_way_of_an_absent_entry_on_arm_and_without_an_invalidation_by_ept() {
    let found = on_both((Level::MIB2, leaf(0, READ)), (Level::PAGE, leaf(0, READ_WRITE)));
    assert_eq!(found, [Absent, NotInvalidated]);
}

#[test]
fn a_table_gives_way_to_a_block_by_way_of_an_absent_entry_on_arm_and_in_place_by_ept() {
    let found = on_both((Level::PAGE, leaf(0, READ)), (Level::MIB2, leaf(0, READ)));
    assert_eq!(found, [Absent, Changed]);
}

#[test]
fn another_frame_comes_by_way_of_an_absent_entry_on_arm_and_in_place_by_ept() {
    let found = on_both((Level::PAGE, leaf(1, READ)), (Level::PAGE, leaf(2, READ)));
    assert_eq!(found, [Absent, Changed]);
}

#[test]
fn more_rights_come_in_place_and_without_an_invalidation() {
    let found = on_both((Level::PAGE, leaf(1, READ)), (Level::PAGE, leaf(1, READ_WRITE)));
    assert_eq!(found, [NotInvalidated, NotInvalidated]);
}

#[test]
fn who_maps_more_rights_is_told_that_tlbs_may_go_on_without_them_where_that_is_so() {
    fn check<F: Format>(relaxed: Mapped) {
        let world = World::<F>::new(64);
        let vcpu = world.vcpu(0);
        let map = |gfn, level, leaf| {
            let (section, seen) = (world.srcu.read_lock(), world.stage2.sample());
            vcpu.root.map(Gfn::new(gfn), level, &leaf, seen, &section).unwrap()
        };
        assert_eq!(map(0, Level::PAGE, leaf(1, READ)), Mapped::Installed, "nothing was there");
        assert_eq!(map(0, Level::PAGE, leaf(1, READ_WRITE)), relaxed);
        assert_eq!(map(0, Level::PAGE, leaf(1, READ_WRITE)), Mapped::Already);
        assert_eq!(map(0, Level::PAGE, leaf(2, READ)), Mapped::Installed, "it was invalidated");
        // A page of a block: the split goes without an invalidation where the format allows that.
        assert_eq!(map(512, Level::MIB2, leaf(512, READ)), Mapped::Installed);
        assert_eq!(map(513, Level::PAGE, leaf(513, READ_WRITE)), relaxed);
        let unused = Leaf { accessed: false, ..leaf(3, READ) };
        assert_eq!(map(1, Level::PAGE, unused), Mapped::Installed);
        assert_eq!(map(1, Level::PAGE, leaf(3, READ)), Mapped::Installed, "TLBs keep used ones");
        drop(vcpu);
        world.destroy();
    }
    check::<Arm<40>>(Mapped::Relaxed);
    check::<Sv39x4>(Mapped::Relaxed);
    check::<Ept>(Mapped::Installed);
    check::<Npt>(Mapped::Installed);
}

#[test]
fn other_rights_come_in_place_and_the_old_ones_are_invalidated() {
    let execute = Permissions::READ | Permissions::EXECUTE;
    let found = on_both((Level::PAGE, leaf(1, READ_WRITE)), (Level::PAGE, leaf(1, execute)));
    assert_eq!(found, [Changed, Changed]);
}
