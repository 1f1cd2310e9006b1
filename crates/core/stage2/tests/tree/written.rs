//! The marks of leaves that may have been written: what keeps them, and who takes them.

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_stage2::{
    Arm, Ept, Error, Format, Leaf, Level, Mapped, Npt, Role, Slice, Sv39x4, Tables,
};

use crate::common::granted::MapsAny;
use crate::common::{Vcpu, World};
use crate::{READ, READ_WRITE, UNHURRIED, gfns, leaf};

const MARKED: u8 = Role::MARKED.get();

fn written(pfn: u64) -> Leaf {
    Leaf { written: true, ..leaf(pfn, READ_WRITE) }
}

fn map<F: Format>(
    world: &World<F>,
    vcpu: &Vcpu<F>,
    gfn: u64,
    level: Level,
    leaf: &Leaf,
) -> Result<Mapped, Error> {
    let section = world.srcu.read_lock();
    vcpu.root.map(Gfn::new(gfn), level, leaf, world.stage2.sample(), &section)
}

fn found<F: Format>(world: &World<F>, vcpu: &Vcpu<F>, gfn: u64) -> (Level, Leaf) {
    vcpu.root.translate(Gfn::new(gfn), &world.srcu.read_lock()).unwrap()
}

/// The frames whose marks are taken in `range`: first, and number.
fn taken<F: Format>(
    world: &World<F>,
    range: std::ops::Range<u64>,
    slice: Slice,
) -> Vec<(u64, u64)> {
    let mut taken = Vec::new();
    let take = |pfn: Pfn, count| taken.push((pfn.get(), count));
    world.stage2.take_written(gfns(range), slice, take);
    taken
}

fn keeps_and_gives<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(MARKED);
    for gfn in [3, 4, 7] {
        assert_eq!(
            map(&world, &vcpu, gfn, Level::PAGE, &written(0x100 + gfn)),
            Ok(Mapped::Installed)
        );
    }
    map(&world, &vcpu, 5, Level::PAGE, &leaf(0x105, READ)).unwrap();
    world.stage2.write_protect(gfns(3..4), UNHURRIED, |_, _| ());
    world.stage2.age(gfns(0..8), UNHURRIED, |_, _| ());
    map(&world, &vcpu, 3, Level::PAGE, &leaf(0x103, READ)).unwrap();
    let (_, kept) = found(&world, &vcpu, 3);
    assert!(kept.written && kept.permissions == READ, "{}: {kept:?}", F::NAME);
    assert_eq!(taken(&world, 0..7, UNHURRIED), [(0x103, 2)], "{}", F::NAME);
    for gfn in [3, 4] {
        let (_, left) = found(&world, &vcpu, gfn);
        assert!(!left.written && left.permissions == READ);
    }
    assert_eq!(taken(&world, 0..8, UNHURRIED), [(0x107, 1)]);
    assert_eq!(taken(&world, 0..8, UNHURRIED), []);
    drop(vcpu);
    world.destroy();
}

#[test]
fn a_mark_stays_whatever_becomes_of_the_rights_and_goes_with_the_right_to_write() {
    keeps_and_gives::<Arm<40>>();
    keeps_and_gives::<Ept>();
    keeps_and_gives::<Npt>();
    keeps_and_gives::<Sv39x4>();
}

#[test]
fn a_page_that_may_be_written_and_has_no_mark_gets_one_by_the_next_fault() {
    let world = World::<Arm<40>>::new(64);
    let vcpu = world.vcpu(MARKED);
    map(&world, &vcpu, 3, Level::PAGE, &leaf(3, READ_WRITE)).unwrap();
    assert_eq!(map(&world, &vcpu, 3, Level::PAGE, &written(3)), Ok(Mapped::Installed));
    assert_eq!(map(&world, &vcpu, 3, Level::PAGE, &written(3)), Ok(Mapped::Already));
    assert_eq!(map(&world, &vcpu, 3, Level::PAGE, &leaf(3, READ)), Ok(Mapped::Already));
    assert_eq!(taken(&world, 0..8, UNHURRIED), [(3, 1)]);
}

#[test]
fn all_marks_are_told_however_many_and_however_short_the_slices() {
    for entries in [1, 7, 1000] {
        let world = World::<Ept>::new(64);
        let vcpu = world.vcpu(MARKED);
        for gfn in 0..1024 {
            let page = Leaf { written: gfn % 4 != 3, ..leaf(0x1000 + gfn, READ_WRITE) };
            map(&world, &vcpu, gfn, Level::PAGE, &page).unwrap();
        }
        let slice = Slice { entries, ..UNHURRIED };
        let pages: Vec<u64> = taken(&world, 0..2048, slice)
            .into_iter()
            .flat_map(|(first, count)| first..first + count)
            .collect();
        let expected: Vec<u64> =
            (0..1024).filter(|gfn| gfn % 4 != 3).map(|gfn| 0x1000 + gfn).collect();
        assert_eq!(pages, expected);
    }
}

#[test]
fn marks_are_told_when_the_tlbs_have_forgotten_the_right_to_write() {
    let world = World::<Arm<40>>::new(64);
    let vcpu = world.vcpu(MARKED);
    map(&world, &vcpu, 9, Level::PAGE, &written(9)).unwrap();
    world.platform.tlbs.take_issued();
    let mut told = false;
    world.stage2.take_written(gfns(0..16), UNHURRIED, |_, _| {
        told = true;
        assert_eq!(world.platform.tlbs.take_issued().len(), 1);
        assert_eq!(found(&world, &vcpu, 9).1, leaf(9, READ));
    });
    assert!(told);
}

#[test]
fn a_block_takes_no_tables_place_where_marks_are_kept_and_does_elsewhere() {
    for role in [0, MARKED] {
        let world = World::<Arm<40>>::new(64);
        let vcpu = world.vcpu(role);
        map(&world, &vcpu, 0x203, Level::PAGE, &written(0x403)).unwrap();
        let mapped = map(&world, &vcpu, 0x200, Level::MIB2, &leaf(0x400, READ));
        let keeps = role == MARKED;
        assert_eq!(mapped, Ok(if keeps { Mapped::TooLarge } else { Mapped::Installed }));
        let pages = taken(&world, 0..0x400, UNHURRIED);
        assert_eq!(pages, if keeps { vec![(0x403, 1)] } else { Vec::new() });
    }
}

#[test]
fn the_pages_of_a_marked_block_are_marked() {
    let world = World::<Arm<40>>::new(64);
    let vcpu = world.vcpu(MARKED);
    let block = Leaf { written: true, ..leaf(0x400, READ) };
    map(&world, &vcpu, 0x200, Level::MIB2, &block).unwrap();
    map(&world, &vcpu, 0x205, Level::PAGE, &written(0x405)).unwrap();
    assert_eq!(found(&world, &vcpu, 0x206).0, Level::PAGE);
    let pages: u64 = taken(&world, 0..0x400, UNHURRIED).iter().map(|&(_, count)| count).sum();
    assert_eq!(pages, 512);
}

#[test]
fn depth_says_how_large_a_leaf_fits() {
    let world = World::<Arm<40>>::new(64);
    let vcpu = world.vcpu(0);
    let depth = |gfn| vcpu.root.depth(Gfn::new(gfn), &world.srcu.read_lock());
    assert_eq!(depth(0), Level::GIB1);
    map(&world, &vcpu, 0x200, Level::MIB2, &leaf(0x400, READ)).unwrap();
    assert_eq!(
        [depth(0x200), depth(0x400), depth(1 << 18)],
        [Level::MIB2, Level::MIB2, Level::GIB1]
    );
    map(&world, &vcpu, 0x403, Level::PAGE, &leaf(3, READ)).unwrap();
    assert_eq!([depth(0x403), depth(0x404)], [Level::PAGE; 2]);
    assert_eq!(depth(u64::MAX >> 12), Level::GIB1, "beyond what the format has");
}

#[test]
fn one_role_can_be_zapped_alone() {
    let world = World::<Arm<40>>::new(64);
    let vcpus = [0, MARKED].map(|role| world.vcpu(role));
    for vcpu in &vcpus {
        map(&world, vcpu, 3, Level::PAGE, &leaf(3, READ)).unwrap();
    }
    let invalidation = world.stage2.begin_invalidation(&gfns(0..8));
    world.stage2.zap_role(Role::MARKED, &invalidation, gfns(0..8), Tables::Free, UNHURRIED);
    drop(invalidation);
    let section = world.srcu.read_lock();
    let found = vcpus.each_ref().map(|vcpu| vcpu.root.translate(Gfn::new(3), &section).is_some());
    assert_eq!(found, [true, false]);
    let root = world.stage2.find_root(Role::MARKED, &section).unwrap();
    assert_eq!(root.top(), vcpus[1].root.top());
    assert!(world.stage2.find_root(Role::new(1).unwrap(), &section).is_none());
}

#[test]
fn all_that_is_mapped_is_told_once_for_each_root() {
    let world = World::<Ept>::new(64);
    let vcpus = [0, 1].map(|role| world.vcpu(role));
    for vcpu in &vcpus {
        map(&world, vcpu, 3, Level::PAGE, &leaf(3, READ)).unwrap();
        map(&world, vcpu, 4, Level::PAGE, &leaf(4, READ)).unwrap();
    }
    map(&world, &vcpus[0], 0x200, Level::MIB2, &leaf(0x200, READ)).unwrap();
    let mut told = Vec::new();
    let each = |pfn: Pfn, count| told.push((pfn.get(), count));
    world.stage2.each_mapped(gfns(0..0x1000), UNHURRIED, each);
    assert_eq!(told, [(3, 2), (0x200, 512), (3, 2)]);
}
