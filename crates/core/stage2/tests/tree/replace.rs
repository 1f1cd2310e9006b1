//! Another frame, or more rights, in the place of a page's.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mayfly_platform::Op;
use mayfly_platform::address::{Gfn, Pfn};
use mayfly_stage2::{Arm, Format, Leaf, Level, Mapped, Permissions, Replacement, Role, Tables};

use crate::common::granted::{MapsAny, ReplacesAny};
use crate::common::{Vcpu, World};
use crate::{READ, READ_WRITE, UNHURRIED, gfns, leaf};
use mayfly_platform::testing::threads::soon;

const PAGES: u64 = Level::MIB2.pages();
const PAGE: u64 = 7;
const OLD: u64 = 0x1007;
const NEW: u64 = 0x2222;

fn map_in<F: Format>(world: &World<F>, role: u8, gfn: u64, level: Level, what: Leaf) -> Mapped {
    let (root, section) = (world.root(role), world.srcu.read_lock());
    root.map(Gfn::new(gfn), level, &what, world.stage2.sample(), &section).unwrap()
}

fn map<F: Format>(world: &World<F>, gfn: u64, level: Level, what: Leaf) -> Mapped {
    map_in(world, 0, gfn, level, what)
}

/// What a page is mapped to: at which level, its own frame, and what is allowed.
type Found = Option<(Level, u64, Permissions)>;

/// What the page is mapped to under role `role`, as a page.
fn look<F: Format>(world: &World<F>, role: u8, gfn: u64) -> Found {
    let (root, section) = (world.root(role), world.srcu.read_lock());
    let (level, leaf) = root.translate(Gfn::new(gfn), &section)?;
    Some((level, leaf.pfn.get() + gfn % level.pages(), leaf.permissions))
}

/// Has the TLB remember where the page is mapped.
fn walk<F: Format>(world: &World<F>, vcpu: &Vcpu<F>, gfn: u64) {
    let (level, leaf) = vcpu.root.translate(Gfn::new(gfn), &world.srcu.read_lock()).unwrap();
    world.platform.tlbs.walk(vcpu.vmid, Gfn::new(gfn), level, &leaf);
}

fn page() -> Range<Gfn> {
    gfns(PAGE..PAGE + 1)
}

fn merge() -> Replacement {
    Replacement { old: Pfn::new(OLD), new: Pfn::new(NEW), same_contents: true }
}

/// Replaces the page inside an invalidation. Returns how often the new frame was to be prepared.
fn replace<F: Format>(world: &World<F>, with: &Replacement) -> usize {
    let announced = world.stage2.begin_invalidation(&page());
    let mut prepared = 0;
    world.stage2.replace_any(&announced, page(), UNHURRIED, |_| Some(*with), |_| prepared += 1);
    prepared
}

fn allow_writes<F: Format>(world: &World<F>, pfn: u64) {
    let announced = world.stage2.begin_invalidation(&page());
    world.stage2.allow_any_writes(&announced, Gfn::new(PAGE), Pfn::new(pfn));
}

/// What is found of the page at each invalidation that `change` comes to, before it takes effect.
fn at_invalidations<F: Format>(
    world: &Arc<World<F>>,
    change: impl FnOnce(&World<F>),
) -> Vec<Found> {
    fn watch<F: Format>(world: &Arc<World<F>>, found: &Arc<Mutex<Vec<Found>>>) {
        let (again, noted) = (Arc::clone(world), Arc::clone(found));
        world.platform.tlbs.on_next_issue(move || {
            noted.lock().unwrap().push(look(&again, 0, PAGE));
            watch(&again, &noted);
        });
    }
    let found = Arc::new(Mutex::new(Vec::new()));
    watch(world, &found);
    change(world);
    world.platform.tlbs.forget_hook();
    let found = found.lock().unwrap();
    found.clone()
}

fn end<F: Format>(world: Arc<World<F>>) {
    Arc::into_inner(world).unwrap().destroy();
}

fn a_merged_page_is_readable_throughout<F: Format>() {
    let world = Arc::new(World::<F>::new(64));
    let vcpu = world.vcpu(0);
    map(&world, PAGE, Level::PAGE, leaf(OLD, READ));
    walk(&world, &vcpu, PAGE);
    let found = at_invalidations(&world, |world| assert_eq!(replace(world, &merge()), 1));
    let merged = Some((Level::PAGE, NEW, READ));
    assert_eq!(found, [merged], "one invalidation, and no absent entry before it");
    assert_eq!(look(&world, 0, PAGE), merged);
    assert!(world.platform.tlbs.remembered().is_empty(), "the old frame is in use still");
    drop(vcpu);
    end(world);
}

fn a_broken_page_is_readable_throughout_and_writable_when_the_old_frame_is_forgotten<F: Format>() {
    let world = Arc::new(World::<F>::new(64));
    let vcpu = world.vcpu(0);
    map(&world, PAGE, Level::PAGE, leaf(OLD, READ));
    walk(&world, &vcpu, PAGE);
    let found = at_invalidations(&world, |world| {
        replace(world, &merge());
        allow_writes(world, NEW);
    });
    assert_eq!(found, [Some((Level::PAGE, NEW, READ))], "readable, and by nobody writable yet");
    assert_eq!(look(&world, 0, PAGE), Some((Level::PAGE, NEW, READ_WRITE)));
    assert!(world.platform.tlbs.remembered().is_empty());
    drop(vcpu);
    end(world);
}

fn what_would_be_noticed_is_not_done_in_place<F: Format>() {
    for (rights, same_contents) in [(READ_WRITE, true), (READ, false)] {
        let world = Arc::new(World::<F>::new(64));
        let vcpu = world.vcpu(0);
        map(&world, PAGE, Level::PAGE, leaf(OLD, rights));
        walk(&world, &vcpu, PAGE);
        let with = Replacement { same_contents, ..merge() };
        let found = at_invalidations(&world, |world| assert_eq!(replace(world, &with), 0));
        assert_eq!((found, look(&world, 0, PAGE)), (vec![None], None), "{rights:?}");
        assert!(world.platform.tlbs.remembered().is_empty());
        drop(vcpu);
        end(world);
    }
}

fn an_absent_page_stays_absent_and_costs_nothing<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, PAGE + 1, Level::PAGE, leaf(OLD, READ));
    assert_eq!(replace(&world, &merge()), 0);
    allow_writes(&world, NEW);
    assert_eq!(look(&world, 0, PAGE), None);
    assert_eq!(world.platform.tlbs.take_issued(), []);
    assert_eq!(world.platform.charged(Op::EntriesWritten(0)), 0);
    drop(vcpu);
    world.destroy();
}

fn a_page_of_another_frame_is_zapped<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, PAGE, Level::PAGE, leaf(OLD + 1, READ));
    walk(&world, &vcpu, PAGE);
    assert_eq!(replace(&world, &merge()), 0);
    assert_eq!(look(&world, 0, PAGE), None);
    assert!(world.platform.tlbs.remembered().is_empty());
    drop(vcpu);
    world.destroy();
}

fn what_has_the_new_frame_already_is_left_alone<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, PAGE, Level::PAGE, leaf(NEW, READ_WRITE));
    assert_eq!(replace(&world, &merge()), 0);
    assert_eq!(look(&world, 0, PAGE), Some((Level::PAGE, NEW, READ_WRITE)));
    assert_eq!(world.platform.tlbs.take_issued(), []);
    drop(vcpu);
    world.destroy();
}

fn a_page_is_replaced_in_every_root_and_prepared_for_each<F: Format>() {
    let world = World::<F>::new(64);
    let vcpus = [world.vcpu(0), world.vcpu(1)];
    for (role, vcpu) in (0..).zip(&vcpus) {
        map_in(&world, role, PAGE, Level::PAGE, leaf(OLD, READ));
        walk(&world, vcpu, PAGE);
    }
    world.platform.tlbs.take_issued();
    assert_eq!(replace(&world, &merge()), 2);
    assert_eq!(world.platform.tlbs.take_issued().len(), 2, "one for each root");
    assert_eq!([0, 1].map(|role| look(&world, role, PAGE)), [Some((Level::PAGE, NEW, READ)); 2]);
    assert!(world.platform.tlbs.remembered().is_empty());
    drop(vcpus);
    world.destroy();
}

fn pages_of_a_run_are_invalidated_together<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    for gfn in 0..100 {
        map(&world, gfn, Level::PAGE, leaf(0x1000 + gfn, READ));
        walk(&world, &vcpu, gfn);
    }
    world.platform.tlbs.take_issued();
    let even = |gfn: Gfn| gfn.get().is_multiple_of(2);
    let with = |gfn: Gfn| {
        let old = Pfn::new(0x1000 + gfn.get());
        even(gfn).then(|| Replacement { old, ..merge() })
    };
    let announced = world.stage2.begin_invalidation(&gfns(0..100));
    world.stage2.replace_any(&announced, gfns(0..100), UNHURRIED, with, |_| ());
    assert_eq!(world.platform.tlbs.take_issued().len(), 1);
    let remembered = world.platform.tlbs.remembered();
    assert!(remembered.keys().all(|(_, gfn)| !even(*gfn)), "an old frame is in use still");
    for gfn in 0..100 {
        let pfn = if even(Gfn::new(gfn)) { NEW } else { 0x1000 + gfn };
        assert_eq!(look(&world, 0, gfn), Some((Level::PAGE, pfn, READ)));
    }
    drop((announced, vcpu));
    world.destroy();
}

fn the_new_frame_is_prepared_before_anybody_can_find_it<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, PAGE, Level::PAGE, leaf(OLD, READ));
    let announced = world.stage2.begin_invalidation(&page());
    let mut found = None;
    let look = |_: &_| found = Some(look(&world, 0, PAGE));
    world.stage2.replace_any(&announced, page(), UNHURRIED, |_| Some(merge()), look);
    assert_eq!(found, Some(Some((Level::PAGE, OLD, READ))));
    drop((announced, vcpu));
    world.destroy();
}

fn a_page_of_a_block_is_replaced_by_itself<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, 0, Level::MIB2, leaf(0x1000, READ));
    let with = Replacement { old: Pfn::new(0x1000 + PAGE), ..merge() };
    walk(&world, &vcpu, PAGE);
    assert_eq!(replace(&world, &with), 1);
    assert_eq!(look(&world, 0, PAGE), Some((Level::PAGE, NEW, READ)));
    for beside in [0, PAGE - 1, PAGE + 1, PAGES - 1] {
        assert_eq!(look(&world, 0, beside), Some((Level::PAGE, 0x1000 + beside, READ)));
    }
    assert!(world.platform.tlbs.remembered().is_empty());
    drop(vcpu);
    world.destroy();
}

fn without_memory_for_a_table_a_block_goes_and_comes_back_with_the_next_fault<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, 0, Level::MIB2, leaf(0x1000, READ));
    walk(&world, &vcpu, PAGE);
    world.platform.arena.refuse_after(0);
    let with = Replacement { old: Pfn::new(0x1000 + PAGE), ..merge() };
    assert_eq!(replace(&world, &with), 0);
    assert_eq!(look(&world, 0, PAGE), None);
    assert!(world.platform.tlbs.remembered().is_empty());
    world.platform.arena.refuse_none();
    assert_eq!(map(&world, PAGE, Level::PAGE, leaf(NEW, READ)), Mapped::Installed);
    drop(vcpu);
    world.destroy();
}

fn a_page_of_a_writable_block_is_protected_by_itself_if_there_is_memory<F: Format>() {
    for memory in [true, false] {
        let world = World::<F>::new(64);
        let vcpu = world.vcpu(0);
        map(&world, 0, Level::MIB2, leaf(0x1000, READ_WRITE));
        walk(&world, &vcpu, PAGE);
        if !memory {
            world.platform.arena.refuse_after(0);
        }
        let mut were = Vec::new();
        let each = |gfn: Gfn, pages| were.push((gfn.get(), pages));
        world.stage2.write_protect(page(), UNHURRIED, each);
        let (level, rights) = if memory { (Level::PAGE, READ_WRITE) } else { (Level::MIB2, READ) };
        assert_eq!(look(&world, 0, PAGE), Some((level, 0x1000 + PAGE, READ)));
        assert_eq!(look(&world, 0, PAGE + 1), Some((level, 0x1001 + PAGE, rights)));
        assert_eq!(were, [if memory { (PAGE, 1) } else { (0, PAGES) }]);
        assert!(world.platform.tlbs.remembered().is_empty());
        world.platform.arena.refuse_none();
        drop(vcpu);
        world.destroy();
    }
}

fn more_rights_cost_no_invalidation_and_one_entry<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, PAGE, Level::PAGE, leaf(OLD, READ));
    allow_writes(&world, NEW);
    assert_eq!(look(&world, 0, PAGE), Some((Level::PAGE, OLD, READ)), "it is another frame");
    allow_writes(&world, OLD);
    assert_eq!(look(&world, 0, PAGE), Some((Level::PAGE, OLD, READ_WRITE)));
    assert_eq!(world.platform.tlbs.take_issued(), []);
    assert_eq!(world.platform.charged(Op::EntriesWritten(0)), 1);
    drop(vcpu);
    world.destroy();
}

fn no_right_is_given_while_somebody_else_may_be_taking_it<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, PAGE, Level::PAGE, leaf(OLD, READ));
    let other = world.stage2.begin_invalidation(&page());
    allow_writes(&world, OLD);
    assert_eq!(look(&world, 0, PAGE), Some((Level::PAGE, OLD, READ)));
    drop(other);
    allow_writes(&world, OLD);
    assert_eq!(look(&world, 0, PAGE), Some((Level::PAGE, OLD, READ_WRITE)));
    drop(vcpu);
    world.destroy();
}

fn where_writes_are_marked_the_first_has_to_fault<F: Format>() {
    let world = World::<F>::new(64);
    let marked = Role::MARKED.get();
    let vcpu = world.vcpu(marked);
    map_in(&world, marked, PAGE, Level::PAGE, Leaf { written: true, ..leaf(OLD, READ) });
    replace(&world, &merge());
    allow_writes(&world, NEW);
    let (_, leaf) = vcpu.root.translate(Gfn::new(PAGE), &world.srcu.read_lock()).unwrap();
    assert_eq!((leaf.pfn.get(), leaf.permissions), (NEW, READ));
    assert!(!leaf.written, "nobody has written to the new frame");
    drop(vcpu);
    world.destroy();
}

fn a_fault_that_was_told_of_the_old_frame_is_refused<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, PAGE, Level::PAGE, leaf(OLD, READ));
    let section = world.srcu.read_lock();
    let seen = world.stage2.sample();
    let fault =
        |leaf, seen| vcpu.root.map(Gfn::new(PAGE), Level::PAGE, &leaf, seen, &section).unwrap();
    {
        let announced = world.stage2.begin_invalidation(&page());
        world.stage2.replace_any(&announced, page(), UNHURRIED, |_| Some(merge()), |_| ());
        assert_eq!(fault(leaf(OLD, READ), seen), Mapped::Retry, "before the end");
    }
    assert_eq!(fault(leaf(OLD, READ_WRITE), seen), Mapped::Retry, "after it");
    assert_eq!(fault(leaf(NEW, READ), seen), Mapped::Already, "what is there needs no asking");
    let relaxed = if F::KEEPS_FAULTING { Mapped::Relaxed } else { Mapped::Installed };
    assert_eq!(fault(leaf(NEW, READ_WRITE), world.stage2.sample()), relaxed);
    drop(section);
    drop(vcpu);
    world.destroy();
}

fn tables_are_counted_that_are_kept_and_that_are_freed<F: Format>() {
    let world = World::<F>::new(64);
    let vcpu = world.vcpu(0);
    map(&world, PAGE, Level::PAGE, leaf(OLD, READ));
    let counted = || {
        let platform = &world.platform;
        [Op::TablesKept(0), Op::TablesFreed(0), Op::EntriesWritten(0)]
            .map(|op| platform.charged(op))
    };
    let zap = |tables| {
        let announced = world.stage2.begin_invalidation(&gfns(0..PAGES));
        world.stage2.zap(&announced, gfns(0..PAGES), tables, UNHURRIED);
    };
    zap(Tables::Keep);
    assert_eq!(counted(), [1, 0, 1], "the page's entry");
    zap(Tables::Free);
    assert_eq!(counted(), [1, 1, 2], "the table's");
    drop(vcpu);
    world.destroy();
}

/// A block is split by way of a frozen entry on Arm.
#[test]
fn who_meets_a_frozen_entry_waits_for_it_and_finds_what_became_of_it() {
    let world = Arc::new(World::<Arm<40>>::new(64));
    let vcpu = world.vcpu(0);
    map(&world, 0, Level::MIB2, leaf(0x1000, READ));
    let asked = Arc::new(AtomicUsize::new(0));
    let hook = {
        let (world, asked) = (Arc::clone(&world), Arc::clone(&asked));
        move || {
            let (waits, platform) = (world.platform.frozen_waits(), Arc::clone(&world.platform));
            let vcpu = move || {
                let section = world.srcu.read_lock();
                let gfn = Gfn::new(PAGE);
                assert!(world.stage2.is_invalidating(&page()));
                assert!(world.root(0).settles(gfn, READ, &section));
                assert!(!world.root(0).settles(gfn, READ_WRITE, &section));
                drop(section);
                asked.fetch_add(1, Ordering::SeqCst);
            };
            let faulting = std::thread::spawn(vcpu);
            while platform.frozen_waits() == waits {
                assert!(!faulting.is_finished(), "it did not wait");
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    };
    world.platform.tlbs.on_next_issue(hook);
    let announced = world.stage2.begin_invalidation(&page());
    let with = Replacement { old: Pfn::new(0x1000 + PAGE), ..merge() };
    world.stage2.replace_any(&announced, page(), UNHURRIED, |_| Some(with), |_| ());
    soon(|| asked.load(Ordering::SeqCst) > 0 && Arc::strong_count(&world) == 1);
    drop(announced);
    drop(vcpu);
    end(world);
}

in_formats! {
    a_merged_page_is_readable_throughout
    a_broken_page_is_readable_throughout_and_writable_when_the_old_frame_is_forgotten
    what_would_be_noticed_is_not_done_in_place
    an_absent_page_stays_absent_and_costs_nothing
    a_page_of_another_frame_is_zapped
    what_has_the_new_frame_already_is_left_alone
    a_page_is_replaced_in_every_root_and_prepared_for_each
    pages_of_a_run_are_invalidated_together
    the_new_frame_is_prepared_before_anybody_can_find_it
    a_page_of_a_block_is_replaced_by_itself
    without_memory_for_a_table_a_block_goes_and_comes_back_with_the_next_fault
    a_page_of_a_writable_block_is_protected_by_itself_if_there_is_memory
    more_rights_cost_no_invalidation_and_one_entry
    no_right_is_given_while_somebody_else_may_be_taking_it
    where_writes_are_marked_the_first_has_to_fault
    a_fault_that_was_told_of_the_old_frame_is_refused
    tables_are_counted_that_are_kept_and_that_are_freed
}

/// Of those beyond the places for ranges nobody knows how many they are.
#[test]
fn the_right_to_write_is_not_given_where_another_invalidation_may_share_a_place() {
    let world = World::<Arm<40>>::new(64);
    map(&world, PAGE, Level::PAGE, leaf(NEW, READ));
    let elsewhere: Vec<_> = (0..16)
        .map(|number| {
            world.stage2.begin_invalidation(&gfns(PAGE + 10 + number..PAGE + 11 + number))
        })
        .collect();
    let other = world.stage2.begin_invalidation(&page());
    allow_writes(&world, NEW);
    assert_eq!(look(&world, 0, PAGE), Some((Level::PAGE, NEW, READ)));
    drop((elsewhere, other));
    allow_writes(&world, NEW);
    assert_eq!(look(&world, 0, PAGE), Some((Level::PAGE, NEW, READ_WRITE)));
    world.destroy();
}
