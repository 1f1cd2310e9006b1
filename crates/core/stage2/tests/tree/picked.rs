//! Pages that are picked out of a range, and zapped.

use std::collections::BTreeSet;
use std::ops::Range;

use mayfly_platform::address::Gfn;
use mayfly_platform::tlb::Scope;
use mayfly_stage2::{Ept, Format, Level, Mapped};
use proptest::prelude::*;

use crate::common::World;
use crate::common::granted::MapsAny;
use crate::{READ_WRITE, UNHURRIED, entries, gfns, leaf};

const BLOCK: u64 = Level::MIB2.pages();

fn map<F: Format>(world: &World<F>, role: u8, gfn: u64, level: Level) {
    let (root, section) = (world.root(role), world.srcu.read_lock());
    let seen = world.stage2.sample();
    let mapped = root.map(Gfn::new(gfn), level, &leaf(gfn, READ_WRITE), seen, &section);
    assert_eq!(mapped, Ok(Mapped::Installed));
}

fn is_mapped<F: Format>(world: &World<F>, role: u8, gfn: u64) -> bool {
    world.root(role).translate(Gfn::new(gfn), &world.srcu.read_lock()).is_some()
}

/// The first of `picked` from a page on that follow each other.
fn next_of(picked: &BTreeSet<u64>, from: Gfn) -> Range<Gfn> {
    let Some(&first) = picked.range(from.get()..).next() else { return gfns(u64::MAX..u64::MAX) };
    let end = (first..=u64::MAX).find(|page| !picked.contains(page)).unwrap();
    gfns(first..end)
}

proptest! {
    #[test]
    fn exactly_the_pages_that_are_picked_go_whatever_the_slice(
        mapped in proptest::collection::btree_set(0..2 * BLOCK, 0..60),
        runs in proptest::collection::vec((0..2 * BLOCK, 1..40_u64), 0..6),
        range in (0..BLOCK, BLOCK..2 * BLOCK),
        at_once in 1..40_u32,
    ) {
        let world = World::<Ept>::new(64);
        let vcpus = [world.vcpu(0), world.vcpu(1)];
        for gfn in &mapped {
            map(&world, (gfn % 2) as u8, *gfn, Level::PAGE);
        }
        let picked: BTreeSet<u64> = runs.iter().flat_map(|(from, count)| *from..from + count).collect();
        let all = gfns(range.0..range.1);
        let announced = world.stage2.begin_invalidation(&all);
        world.stage2.zap_picked(&announced, all, entries(at_once), |gfn| next_of(&picked, gfn));
        drop(announced);
        for gfn in &mapped {
            let is_left = !(picked.contains(gfn) && (range.0..range.1).contains(gfn));
            prop_assert_eq!(is_mapped(&world, (gfn % 2) as u8, *gfn), is_left, "{:#x}", gfn);
        }
        drop(vcpus);
        world.destroy();
    }
}

#[test]
fn every_root_is_forgotten_as_a_whole_at_the_end_also_where_nothing_was_mapped() {
    let world = World::<Ept>::new(64);
    let vcpus = [world.vcpu(0), world.vcpu(1)];
    map(&world, 0, 5, Level::PAGE);
    world.platform.tlbs.take_issued();
    let all = gfns(0..BLOCK);
    let announced = world.stage2.begin_invalidation(&all);
    world.stage2.zap_picked(&announced, all, UNHURRIED, |gfn| gfn.max(Gfn::new(5))..Gfn::new(6));
    let issued = world.platform.tlbs.take_issued();
    assert_eq!(issued, vcpus.each_ref().map(|vcpu| (vcpu.vmid, Scope::All)));
    drop((announced, vcpus));
    world.destroy();
}

#[test]
fn a_block_goes_as_a_whole_and_a_table_stays() {
    let world = World::<Ept>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, 0, 0, Level::MIB2);
    map(&world, 0, BLOCK + 7, Level::PAGE);
    let frames = world.live();
    let all = gfns(0..2 * BLOCK);
    let picked = BTreeSet::from([3, BLOCK + 7]);
    let announced = world.stage2.begin_invalidation(&all);
    world.stage2.zap_picked(&announced, all, UNHURRIED, |gfn| next_of(&picked, gfn));
    assert!(!is_mapped(&world, 0, 0) && !is_mapped(&world, 0, BLOCK + 7));
    assert_eq!(world.live(), frames, "the table is about to be needed again");
    drop((announced, vcpu));
    world.destroy();
}

#[test]
#[should_panic(expected = "announced")]
fn pages_that_are_not_announced_are_refused() {
    let world = World::<Ept>::new(64);
    let announced = world.stage2.begin_invalidation(&gfns(0..1));
    world.stage2.zap_picked(&announced, gfns(0..2), UNHURRIED, |gfn| gfn..Gfn::new(2));
}
