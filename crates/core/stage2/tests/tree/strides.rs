//! How far apart invalidations by address may be, and what they may leave alone.

use std::sync::Arc;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::tlb::{Entries, Scope, Span};
use mayfly_stage2::{Arm, Entry, Ept, Format, Level, Mapped, Tables};

use crate::common::granted::MapsAny;
use crate::common::{Vcpu, World};
use crate::{READ, READ_WRITE, UNHURRIED, entries, leaf};

const BLOCK: u64 = Level::MIB2.pages();
const GIB: u64 = Level::GIB1.pages();

fn map<F: Format>(world: &World<F>, vcpu: &Vcpu<F>, gfn: u64, level: Level) {
    let (section, seen) = (world.srcu.read_lock(), world.stage2.sample());
    let mapped = vcpu.root.map(Gfn::new(gfn), level, &leaf(gfn, READ_WRITE), seen, &section);
    assert_eq!(mapped, Ok(Mapped::Installed));
}

/// What is invalidated where `range` is zapped.
fn zapped<F: Format>(world: &World<F>, range: std::ops::Range<u64>, tables: Tables) -> Vec<Scope> {
    world.platform.tlbs.take_issued();
    let gfns = Gfn::new(range.start)..Gfn::new(range.end);
    let announced = world.stage2.begin_invalidation(&gfns);
    world.stage2.zap(&announced, gfns, tables, UNHURRIED);
    world.platform.tlbs.take_issued().into_iter().map(|(_, scope)| scope).collect()
}

fn span(range: std::ops::Range<u64>, stride: u64, entries: Entries) -> Scope {
    Scope::Range(Span { gfns: Gfn::new(range.start)..Gfn::new(range.end), stride, entries })
}

/// What leaves of one size are called: where a block stays in TLBs that was split, it is not the one size that is there.
fn of_one_size<F: Format>() -> Entries {
    if F::NAME.starts_with("VMSA") { Entries::Leaves } else { Entries::LeavesOfAnySize }
}

fn blocks_take_one_invalidation_each_or_one_by_vmid_past_what_the_platform_says<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    for (max, expected) in [
        (512, span(0..128 * BLOCK, BLOCK, of_one_size::<F>())),
        (128, span(0..128 * BLOCK, BLOCK, of_one_size::<F>())),
        (127, Scope::All),
        (0, Scope::All),
    ] {
        (0..128).for_each(|block| map(&world, &vcpu, block * BLOCK, Level::MIB2));
        world.platform.set_max_by_address(max);
        let scopes = zapped(&world, 0..128 * BLOCK, Tables::Free);
        if let [Scope::Range(span)] = &scopes[..] {
            assert_eq!((span.count(), span.addresses().count()), (128, 128));
        }
        assert_eq!(scopes, [expected], "at most {max}");
    }
    drop(vcpu);
    world.destroy();
}

fn a_table_that_is_removed_goes_with_its_smallest_leaves_over_all_that_it_stood_for<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    let removed = |first, pages| {
        let scopes = zapped(&world, first..first + pages, Tables::Free);
        <[Scope; 1]>::try_from(scopes).expect("one invalidation")
    };
    // One page of it is mapped, and any may be remembered: nobody looks at the others.
    map(&world, &vcpu, 5, Level::PAGE);
    assert_eq!(removed(0, BLOCK), [span(0..BLOCK, 1, Entries::Any)]);
    // Blocks, and no smaller leaf.
    for block in [0, 3] {
        map(&world, &vcpu, GIB + block * BLOCK, Level::MIB2);
    }
    assert_eq!(removed(GIB, GIB), [span(GIB..2 * GIB, BLOCK, Entries::Any)]);
    // Blocks and a page: the pages of 1 GiB are too many.
    map(&world, &vcpu, GIB, Level::MIB2);
    map(&world, &vcpu, GIB + BLOCK, Level::PAGE);
    assert_eq!(removed(GIB, GIB), [Scope::All]);
    // A table that is left empty is remembered by walk caches all the same.
    map(&world, &vcpu, GIB, Level::MIB2);
    let _ = zapped(&world, GIB..2 * GIB, Tables::Keep);
    assert_eq!(removed(GIB, GIB), [span(GIB..2 * GIB, GIB, Entries::Any)]);
    drop(vcpu);
    world.destroy();
}

fn a_collapse_goes_with_the_pages_below_it<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, &vcpu, 7, Level::PAGE);
    world.platform.tlbs.take_issued();
    map(&world, &vcpu, 0, Level::MIB2);
    let issued = world.platform.tlbs.take_issued();
    assert_eq!(issued, [(vcpu.vmid, Scope::Range(Span::pages(Gfn::new(0)..Gfn::new(BLOCK))))]);
    drop(vcpu);
    world.destroy();
}

fn blocks_that_come_back_together_go_by_one_invalidation_a_slice<F: Format>() {
    const BLOCKS: u64 = 70;
    let world = World::<F>::new(256);
    let vcpu = world.vcpu(0);
    for block in 0..BLOCKS {
        map(&world, &vcpu, block * BLOCK + 7, Level::PAGE);
    }
    let section = world.srcu.read_lock();
    let seen = world.stage2.sample();
    let granted = |block: u64| {
        let block = leaf(block * BLOCK, READ_WRITE);
        let gfn = Gfn::new(block.pfn.get());
        Some(vcpu.root.grant_any(gfn, Level::MIB2, &block, seen, &section))
    };
    let mut grants = (0..BLOCKS).map(granted);
    world.platform.tlbs.take_issued();
    assert_eq!(vcpu.root.collapse(entries(40), &mut grants), 64, "batches of 32");
    let first = world.platform.tlbs.take_issued().len();
    assert_eq!(
        vcpu.root.collapse(UNHURRIED, &mut grants),
        6,
        "the slice took no more than it used"
    );
    let second = world.platform.tlbs.take_issued().len();
    let (table, block) = (Entry::<F>::table(Pfn::new(1)), leaf(0, READ_WRITE));
    let block = Entry::leaf(Level::MIB2, &block);
    // Where TLBs are to forget a table before its block is there, each batch waits for them.
    let breaks = table.requires_break_before_make(Level::MIB2, block, false);
    assert_eq!((first, second), (if breaks { 2 } else { 1 }, 1));
    drop(section);
    drop(vcpu);
    world.destroy();
}

fn leaves_of_several_sizes_go_with_the_smallest_and_without_a_hint<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    world.platform.set_max_by_address(1024);
    map(&world, &vcpu, BLOCK - 1, Level::PAGE);
    map(&world, &vcpu, BLOCK, Level::MIB2);
    let scopes = zapped(&world, BLOCK - 1..2 * BLOCK, Tables::Keep);
    assert_eq!(scopes, [span(BLOCK - 1..2 * BLOCK, 1, Entries::LeavesOfAnySize)]);
    // Too many for less: everything goes.
    world.platform.set_max_by_address(512);
    map(&world, &vcpu, BLOCK - 1, Level::PAGE);
    map(&world, &vcpu, BLOCK, Level::MIB2);
    assert_eq!(zapped(&world, BLOCK - 1..2 * BLOCK, Tables::Keep), [Scope::All]);
    drop(vcpu);
    world.destroy();
}

in_formats! {
    blocks_take_one_invalidation_each_or_one_by_vmid_past_what_the_platform_says
    a_table_that_is_removed_goes_with_its_smallest_leaves_over_all_that_it_stood_for
    a_collapse_goes_with_the_pages_below_it
    blocks_that_come_back_together_go_by_one_invalidation_a_slice
    leaves_of_several_sizes_go_with_the_smallest_and_without_a_hint
}

#[test]
fn who_answers_for_anothers_changes_knows_neither_their_sizes_nor_their_tables() {
    fn check<F: Format>() {
        let world = Arc::new(World::<F>::new(64));
        let vcpu = world.vcpu(0);
        map(&world, &vcpu, 0, Level::MIB2);
        world.platform.tlbs.take_issued();
        // While the block that was zapped has not been forgotten yet, somebody else zaps the same.
        let beside = Arc::clone(&world);
        world.platform.tlbs.on_next_issue(move || {
            let scopes = zapped(&beside, 0..4, Tables::Keep);
            assert_eq!(scopes, [span(0..BLOCK, 1, Entries::Any)], "which finds nothing left");
        });
        let gfns = Gfn::new(0)..Gfn::new(BLOCK);
        world.zap(gfns, Tables::Keep, UNHURRIED);
        drop(vcpu);
        Arc::into_inner(world).unwrap().destroy();
    }
    check::<Arm<40>>();
    check::<Ept>();
}

#[test]
fn a_block_that_is_split_on_arm_goes_as_the_one_leaf_that_it_was() {
    let world = World::<Arm<40>>::new(64);
    let vcpu = world.vcpu(0);
    let (section, seen) = (world.srcu.read_lock(), world.stage2.sample());
    let root = &vcpu.root;
    root.map(Gfn::new(0), Level::MIB2, &leaf(0, READ), seen, &section).unwrap();
    root.map(Gfn::new(3), Level::PAGE, &leaf(3, READ_WRITE), seen, &section).unwrap();
    drop(section);
    let issued = world.platform.tlbs.take_issued();
    assert_eq!(issued, [(vcpu.vmid, span(0..BLOCK, BLOCK, Entries::Leaves))]);
    drop(vcpu);
    world.destroy();
}
