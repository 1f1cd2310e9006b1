//! Blocks that are split before anybody writes to them.

use mayfly_platform::address::Gfn;
use mayfly_stage2::{Error, Format, Leaf, Level, Mapped, Role};

use crate::common::World;
use crate::common::granted::MapsAny;
use crate::{READ, READ_WRITE, UNHURRIED, gfns, leaf};

const PAGES: u64 = Level::MIB2.pages();
/// Blocks that are split at a time.
const BATCH: u64 = 32;

fn map<F: Format>(world: &World<F>, gfn: u64, level: Level, what: Leaf) {
    let (root, section) = (world.root(0), world.srcu.read_lock());
    let mapped = root.map(Gfn::new(gfn), level, &what, world.stage2.sample(), &section).unwrap();
    assert_eq!(mapped, Mapped::Installed);
}

fn look<F: Format>(world: &World<F>, gfn: u64) -> Option<(Level, u64)> {
    let (root, section) = (world.root(0), world.srcu.read_lock());
    let (level, leaf) = root.translate(Gfn::new(gfn), &section)?;
    Some((level, leaf.pfn.get() + gfn % level.pages()))
}

/// Whether a block has to be absent, and forgotten, before its pages come.
fn breaks<F: Format>() -> bool {
    F::NAME.starts_with("VMSA")
}

fn a_range_is_split_with_one_invalidation_for_so_many_blocks<F: Format>() {
    let world = World::<F>::new(256);
    let vcpu = world.vcpu(0);
    let blocks = BATCH + 8;
    for block in 0..blocks {
        let rights = if block % 2 == 0 { READ } else { READ_WRITE };
        map(&world, block * PAGES, Level::MIB2, leaf(0x10_0000 + block * PAGES, rights));
    }
    world.platform.tlbs.take_issued();
    // The last one juts out.
    world.stage2.split_blocks(gfns(0..blocks * PAGES - 5), UNHURRIED).unwrap();
    let invalidations = world.platform.tlbs.take_issued().len();
    assert_eq!(invalidations, if breaks::<F>() { 2 } else { 0 });
    for page in (0..blocks * PAGES).step_by(101) {
        assert_eq!(look(&world, page), Some((Level::PAGE, 0x10_0000 + page)));
    }
    world.stage2.split_blocks(gfns(0..blocks * PAGES), UNHURRIED).unwrap();
    assert_eq!(world.platform.tlbs.take_issued(), []);
    drop(vcpu);
    world.destroy();
}

fn what_is_absent_or_small_already_is_left_and_what_is_large_is_split_to_the_end<F: Format>() {
    let world = World::<F>::new(1024);
    let vcpu = world.vcpu(0);
    map(&world, 3, Level::PAGE, leaf(0x55, READ));
    map(&world, 1 << 18, Level::GIB1, leaf(1 << 20, READ));
    world.stage2.split_blocks(gfns(0..1 << 20), UNHURRIED).unwrap();
    assert_eq!((look(&world, 3), look(&world, 4)), (Some((Level::PAGE, 0x55)), None));
    for page in (1 << 18..1 << 19).step_by(997) {
        assert_eq!(look(&world, page), Some((Level::PAGE, page + (3 << 18))));
    }
    drop(vcpu);
    world.destroy();
}

fn without_memory_blocks_stay_and_can_be_used<F: Format>() {
    let world = World::<F>::new(8 + (1 << F::ROOT_ORDER));
    let vcpu = world.vcpu(0);
    for block in 0..16 {
        map(&world, block * PAGES, Level::MIB2, leaf(0x10_0000 + block * PAGES, READ));
    }
    let all = gfns(0..16 * PAGES);
    let split = world.stage2.split_blocks(all.clone(), UNHURRIED);
    assert!(matches!(split, Err(Error::OutOfMemory(_))), "{split:?}");
    let levels: Vec<_> = (0..16).map(|block| look(&world, block * PAGES).unwrap()).collect();
    for (block, (_, pfn)) in (0..).zip(&levels) {
        assert_eq!(*pfn, 0x10_0000 + block * PAGES);
    }
    let split = levels.iter().filter(|(level, _)| *level == Level::PAGE).count();
    assert!(0 < split && split < 16, "{split}");
    world.zap(all, mayfly_stage2::Tables::Free, UNHURRIED);
    drop(vcpu);
    world.destroy();
}

fn pages_are_found_and_blocks_are_not<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, 0, Level::MIB2, leaf(0x10_0000, READ));
    map(&world, PAGES + 7, Level::PAGE, leaf(0x55, READ));
    let mut left = gfns(0..4 * PAGES);
    let found = world.stage2.find_page(Role::MAIN, &mut left, UNHURRIED);
    assert_eq!((found, left.start), (Some(Gfn::new(PAGES + 7)), Gfn::new(PAGES + 8)));
    assert_eq!(world.stage2.find_page(Role::MAIN, &mut left, UNHURRIED), None);
    assert!(left.is_empty());
    let mut none = gfns(0..1);
    assert_eq!(world.stage2.find_page(Role::new(1).unwrap(), &mut none, UNHURRIED), None);
    assert!(none.is_empty(), "there is no such root");
    drop(vcpu);
    world.destroy();
}

in_formats! {
    a_range_is_split_with_one_invalidation_for_so_many_blocks
    what_is_absent_or_small_already_is_left_and_what_is_large_is_split_to_the_end
    without_memory_blocks_stay_and_can_be_used
    pages_are_found_and_blocks_are_not
}
