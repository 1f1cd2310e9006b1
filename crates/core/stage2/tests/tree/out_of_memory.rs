//! Every allocation fails in turn: an error, nothing changed, nothing lost, and success when there is memory again.

use std::collections::BTreeMap;

use mayfly_platform::address::Gfn;
use mayfly_platform::memory::OutOfMemory;
use mayfly_stage2::{
    Arm, Config, Ept, Error, Format, Leaf, Level, Mapped, Npt, RootRef, Stage2, Sv39x4, Sv48x4,
};

use crate::common::granted::MapsAny;
use crate::common::{World, role};
use crate::heap;
use crate::{READ, READ_WRITE, gfns, leaf};

const PAGES: u64 = Level::MIB2.pages();
const GIB: u64 = Level::GIB1.pages();

/// What is mapped at the frames that these tests touch.
fn mapped<F: Format>(world: &World<F>) -> BTreeMap<u64, (Level, Leaf)> {
    let section = world.srcu.read_lock();
    let root = world.stage2.root(role(0), &section).unwrap();
    let around =
        [0, 1, 7, PAGES - 1, PAGES, PAGES + 1, 2 * PAGES, 3 * PAGES, GIB - 1, GIB, 2 * GIB];
    let found = |gfn| Some((gfn, root.translate(Gfn::new(gfn), &section)?));
    around.into_iter().filter_map(found).collect()
}

/// Has the allocations of `attempt` fail from the first on, from the second on, and so on, until it succeeds without
/// the next; each time in a world of its own, made by `before`. Returns how many times it failed.
fn fail_in_turn<F: Format>(
    before: impl Fn(&World<F>),
    attempt: impl Fn(&World<F>) -> Result<(), Error>,
    failing: impl Fn(&World<F>, usize, &dyn Fn() -> Result<(), Error>) -> Result<(), Error>,
) -> usize {
    for count in 0.. {
        let world = World::<F>::new(64);
        before(&world);
        let present = mapped(&world);
        let result = failing(&world, count, &|| attempt(&world));
        let failed = result.is_err();
        if failed {
            assert_eq!(result, Err(Error::OutOfMemory(OutOfMemory)));
            assert_eq!(mapped(&world), present);
            assert_eq!(attempt(&world), Ok(()), "when there is memory again");
        }
        world.destroy();
        if !failed {
            return count;
        }
    }
    unreachable!("it succeeds at last")
}

fn without_frames<F: Format>(
    world: &World<F>,
    count: usize,
    attempt: &dyn Fn() -> Result<(), Error>,
) -> Result<(), Error> {
    world.platform.arena.refuse_after(count);
    let result = attempt();
    world.platform.arena.refuse_none();
    result
}

fn without_heap<F: Format>(
    _: &World<F>,
    count: usize,
    attempt: &dyn Fn() -> Result<(), Error>,
) -> Result<(), Error> {
    heap::failing_after(count, attempt)
}

fn root<F: Format>(world: &World<F>) -> RootRef<F> {
    world.root(0)
}

fn map<F: Format>(world: &World<F>, gfn: u64, level: Level, what: Leaf) -> Result<(), Error> {
    let (root, section) = (root(world), world.srcu.read_lock());
    let mapped = root.map(Gfn::new(gfn), level, &what, world.stage2.sample(), &section)?;
    assert!(matches!(mapped, Mapped::Installed | Mapped::Relaxed), "{mapped:?}");
    Ok(())
}

/// Levels of tables below the root, for a page.
fn depth<F: Format>() -> usize {
    usize::from(F::TOP == Level::GIB512) + 2
}

fn a_page_needs_the_tables_on_its_way<F: Format>() {
    let before = |world: &World<F>| drop(root(world));
    let attempt = |world: &World<F>| map(world, 7, Level::PAGE, leaf(7, READ));
    assert_eq!(fail_in_turn(before, attempt, without_frames), depth::<F>());
}

fn a_page_in_a_block_needs_the_tables_of_its_split<F: Format>() {
    let before = |world: &World<F>| map(world, 0, Level::GIB1, leaf(0, READ)).unwrap();
    let attempt = |world: &World<F>| map(world, 7, Level::PAGE, leaf(7, READ_WRITE));
    let failed = fail_in_turn(before, attempt, |world, count, attempt| {
        let result = without_frames(world, count, attempt);
        if result.is_err() && count == 1 {
            // The block was split once: the guest sees no difference, but in the size.
            let section = world.srcu.read_lock();
            let half = root(world).translate(Gfn::new(PAGES + 1), &section);
            assert_eq!(half, Some((Level::MIB2, leaf(PAGES, READ))));
            drop(section);
            map(world, 0, Level::GIB1, leaf(0, READ)).unwrap();
        }
        result
    });
    assert_eq!(failed, 2);
}

fn a_block_over_pages_needs_nothing<F: Format>() {
    let before = |world: &World<F>| map(world, 7, Level::PAGE, leaf(7, READ)).unwrap();
    let attempt = |world: &World<F>| map(world, 0, Level::MIB2, leaf(0, READ));
    assert_eq!(fail_in_turn(before, attempt, without_frames), 0);
}

fn a_run_keeps_what_it_mapped_before_the_error<F: Format>() {
    let range = PAGES - 3..3 * PAGES + 2;
    for count in 0..depth::<F>() + 3 {
        let world = World::<F>::new(64);
        let root = root(&world);
        let section = world.srcu.read_lock();
        let run = || {
            let (what, seen) = (leaf(range.start, READ), world.stage2.sample());
            root.map_any_run(gfns(range.clone()), Level::PAGE, &what, seen, &section)
        };
        world.platform.arena.refuse_after(count);
        assert_eq!(run(), Err(Error::OutOfMemory(OutOfMemory)));
        let found = |gfn: u64| root.translate(Gfn::new(gfn), &section);
        let done = range.clone().take_while(|gfn| found(*gfn).is_some()).count() as u64;
        // Pages at the front, then a whole table at a time.
        let tables = (count + 1).saturating_sub(depth::<F>()) as u64;
        assert_eq!(done, if tables == 0 { 0 } else { 3 + (tables - 1) * PAGES });
        assert!((range.start + done..range.end).all(|gfn| found(gfn).is_none()));
        world.platform.arena.refuse_none();
        assert_eq!(run(), Ok(Mapped::Installed));
        assert!(range.clone().all(|gfn| found(gfn) == Some((Level::PAGE, leaf(gfn, READ)))));
        drop((section, root));
        world.destroy();
    }
}

fn a_root_needs_a_frame_and_memory<F: Format>() {
    let attempt = |world: &World<F>| world.stage2.root(role(1), &world.srcu.read_lock()).map(drop);
    assert_eq!(fail_in_turn(|_| (), attempt, without_frames), 1);
    // And to remember which vCPU was last on it, on each CPU.
    assert_eq!(fail_in_turn(|_| (), attempt, without_heap), 2);
}

fn roots_are_replaced_all_or_none<F: Format>() {
    let before = |world: &World<F>| {
        for number in 0..3 {
            drop(world.root(number));
        }
        map(world, 7, Level::PAGE, leaf(7, READ)).unwrap();
    };
    let tops = |world: &World<F>| [0, 1, 2].map(|number| world.root(number).top());
    let attempt = |world: &World<F>| {
        let old = tops(world);
        let result = world.stage2.replace_roots();
        let replaced = result.is_ok();
        drop(result?);
        assert!(old.iter().zip(tops(world)).all(|(old, new)| (*old != new) == replaced));
        Ok(())
    };
    assert_eq!(fail_in_turn(before, attempt, without_frames), 3);
    assert_eq!(fail_in_turn(before, attempt, without_heap), 2 * 3);
}

#[test]
fn a_vm_needs_memory() {
    let world = World::<Ept>::new(8);
    for count in 0.. {
        let config = Config {
            mmu: world.platform.clone(),
            vmids: world.vmids.clone(),
            reclaimer: world.reclaimer.clone(),
            max_frames: usize::MAX,
        };
        let vm = heap::failing_after(count, || Stage2::<Ept>::try_new(config, &world.srcu));
        let Some(error) = vm.err() else {
            assert_eq!(count, 2, "the word that those who wait sleep on, and the rest");
            break;
        };
        assert_eq!(error, Error::OutOfMemory(OutOfMemory));
    }
    world.destroy();
}

macro_rules! in_every_format {
    ($($rule:ident)*) => {
        $(
            #[test]
            fn $rule() {
                super::$rule::<Arm<40>>();
                super::$rule::<Arm<48>>();
                super::$rule::<Ept>();
                super::$rule::<Npt>();
                super::$rule::<Sv39x4>();
                super::$rule::<Sv48x4>();
            }
        )*
    };
}

mod in_every_format {
    use super::*;

    in_every_format! {
        a_page_needs_the_tables_on_its_way
        a_page_in_a_block_needs_the_tables_of_its_split
        a_block_over_pages_needs_nothing
        a_run_keeps_what_it_mapped_before_the_error
        a_root_needs_a_frame_and_memory
        roots_are_replaced_all_or_none
    }
}
