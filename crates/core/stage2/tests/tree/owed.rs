//! Frames that TLBs may go on having, and what comes before they may not.

use std::ops::Range;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::testing::threads::soon;
use mayfly_platform::tlb::Scope;
use mayfly_stage2::{Format, Level, Mapped, Owed, Permissions, Replacement, Tables};

use crate::common::granted::{MapsAny, ReplacesAny};
use crate::common::{Vcpu, World, role};
use crate::{READ, READ_WRITE, UNHURRIED, gfns, leaf};

/// The first of the frames that pages are in, and of those that they come to be in.
const OLD: u64 = 0x1000;
const NEW: u64 = 0x2000;

/// Debts that a VM may have.
const BOUND: u64 = 64;

/// Frame and rights by which a page is mapped.
type Found = Option<(u64, Permissions)>;

type Machine<F> = (Arc<World<F>>, Vcpu<F>);

/// A VM whose `pages` are read-only, and remembered by a TLB.
fn machine<F: Format>(pages: Range<u64>) -> Machine<F> {
    let world = Arc::new(World::<F>::new(64));
    let vcpu = world.vcpu(0);
    for page in pages {
        map(&world, 0, page, OLD + page, READ);
        walk(&world, &vcpu, page);
    }
    world.platform.tlbs.take_issued();
    (world, vcpu)
}

fn map<F: Format>(world: &World<F>, role: u8, gfn: u64, pfn: u64, rights: Permissions) -> Mapped {
    let (root, section) = (world.root(role), world.srcu.read_lock());
    let seen = world.stage2.sample();
    root.map(Gfn::new(gfn), Level::PAGE, &leaf(pfn, rights), seen, &section).unwrap()
}

fn walk<F: Format>(world: &World<F>, vcpu: &Vcpu<F>, gfn: u64) {
    let (level, leaf) = vcpu.root.translate(Gfn::new(gfn), &world.srcu.read_lock()).unwrap();
    world.platform.tlbs.walk(vcpu.vmid, Gfn::new(gfn), level, &leaf);
}

/// Frame and rights by which the tables map `gfn`.
fn look<F: Format>(world: &World<F>, gfn: u64) -> Found {
    let (root, section) = (world.root(0), world.srcu.read_lock());
    let (_, leaf) = root.translate(Gfn::new(gfn), &section)?;
    Some((leaf.pfn.get(), leaf.permissions))
}

/// Pages that the TLB has by an old frame.
fn stale<F: Format>(world: &World<F>) -> Vec<u64> {
    let all = world.platform.tlbs.remembered();
    let is_old = |pfn: u64| (OLD..NEW).contains(&pfn);
    all.iter().filter(|(_, entry)| is_old(entry.pfn)).map(|((_, gfn), _)| gfn.get()).collect()
}

/// Has pages of the same frames as `pages` in others of the same contents.
fn merge<F: Format>(world: &World<F>, pages: Range<u64>) -> Owed {
    merge_into(world, pages, NEW)
}

fn merge_into<F: Format>(world: &World<F>, pages: Range<u64>, new: u64) -> Owed {
    let from = if new == NEW { OLD } else { NEW };
    let with = |gfn: Gfn| {
        let (old, new) = (Pfn::new(from + gfn.get()), Pfn::new(new + gfn.get()));
        Some(Replacement { old, new, same_contents: true })
    };
    let announced = world.stage2.begin_invalidation(&gfns(pages.clone()));
    world.stage2.replace_any_owing(&announced, gfns(pages), UNHURRIED, with, |_| ())
}

/// What the tables say of page `gfn` whenever TLBs are asked while `change` is made.
fn at_invalidations<F: Format>(
    world: &Arc<World<F>>,
    gfn: u64,
    change: impl FnOnce(&World<F>),
) -> Vec<Found> {
    fn watch<F: Format>(world: &Arc<World<F>>, gfn: u64, found: &Arc<Mutex<Vec<Found>>>) {
        let (again, noted) = (Arc::clone(world), Arc::clone(found));
        world.platform.tlbs.on_next_issue(move || {
            noted.lock().unwrap().push(look(&again, gfn));
            watch(&again, gfn, &noted);
        });
    }
    let found = Arc::new(Mutex::new(Vec::new()));
    watch(world, gfn, &found);
    change(world);
    world.platform.tlbs.forget_hook();
    let found = found.lock().unwrap();
    found.clone()
}

fn end<F: Format>((world, vcpu): Machine<F>) {
    drop(vcpu);
    Arc::into_inner(world).unwrap().destroy();
}

fn what_is_owed_costs_no_invalidation_until_it_is_asked_for<F: Format>() {
    let machine = machine::<F>(7..8);
    let (world, _) = &machine;
    let owed = merge(world, 7..8);
    assert_eq!(world.platform.tlbs.take_issued(), []);
    assert_eq!((look(world, 7), stale(world)), (Some((NEW + 7, READ)), vec![7]));
    assert!(!owed.is_paid());
    owed.pay();
    assert_eq!((world.platform.tlbs.take_issued().len(), stale(world)), (1, vec![]));
    assert_eq!(world.platform.tlbs.completed(), 1);
    end(machine);
}

fn a_fault_that_gives_the_right_to_write_pays_before_anybody_finds_it<F: Format>() {
    let machine = machine::<F>(6..9);
    let (world, _) = &machine;
    let owed = merge(world, 6..9);
    let found = at_invalidations(world, 7, |world| {
        let mapped = map(world, 0, 7, NEW + 7, READ_WRITE);
        assert!(matches!(mapped, Mapped::Installed | Mapped::Relaxed));
    });
    assert_eq!(found, [Some((NEW + 7, READ))], "one invalidation, before it can be written");
    assert_eq!((look(world, 7), stale(world)), (Some((NEW + 7, READ_WRITE)), vec![6, 8]));
    assert!(!owed.is_paid());
    drop(owed);
    assert_eq!(stale(world), []);
    end(machine);
}

fn a_fault_that_only_reads_pays_nothing<F: Format>() {
    let machine = machine::<F>(7..8);
    let (world, _) = &machine;
    let owed = merge(world, 7..8);
    assert_eq!(map(world, 0, 7, NEW + 7, READ), Mapped::Already);
    assert_eq!((world.platform.tlbs.take_issued(), owed.is_paid()), (vec![], false));
    drop(owed);
    end(machine);
}

fn a_page_that_is_mapped_twice_is_paid_for_at_both_places<F: Format>() {
    let world = Arc::new(World::<F>::new(64));
    let vcpu = world.vcpu(0);
    for gfn in [7, 0x307] {
        map(&world, 0, gfn, OLD + 7, READ);
        walk(&world, &vcpu, gfn);
    }
    let with =
        |_| Some(Replacement { old: Pfn::new(OLD + 7), new: Pfn::new(NEW), same_contents: true });
    let mut owed = world.stage2.owing_nothing();
    {
        let announced = world.stage2.begin_invalidation(&gfns(7..0x308));
        for gfn in [7, 0x307] {
            let page = gfns(gfn..gfn + 1);
            owed.add(world.stage2.replace_any_owing(&announced, page, UNHURRIED, with, |_| ()));
        }
    }
    assert_eq!(stale(&world), [7, 0x307]);
    map(&world, 0, 7, NEW, READ_WRITE);
    assert_eq!((stale(&world), owed.is_paid()), (vec![], true), "one is written, both would read");
    drop((owed, vcpu));
    Arc::into_inner(world).unwrap().destroy();
}

fn a_page_is_paid_for_in_every_root<F: Format>() {
    let world = Arc::new(World::<F>::new(64));
    let vcpus = [world.vcpu(0), world.vcpu(1)];
    for (role, vcpu) in (0..).zip(&vcpus) {
        map(&world, role, 7, OLD + 7, READ);
        walk(&world, vcpu, 7);
    }
    let owed = merge(&world, 7..8);
    assert_eq!(stale(&world), [7, 7]);
    map(&world, 0, 7, NEW + 7, READ_WRITE);
    assert_eq!((stale(&world), owed.is_paid()), (vec![], true));
    drop((owed, vcpus));
    Arc::into_inner(world).unwrap().destroy();
}

fn the_right_to_write_that_the_host_gives_is_paid_for_before<F: Format>() {
    let machine = machine::<F>(7..8);
    let (world, _) = &machine;
    let owed = merge(world, 7..8);
    let found = at_invalidations(world, 7, |world| {
        let announced = world.stage2.begin_invalidation(&gfns(7..8));
        world.stage2.allow_any_writes(&announced, Gfn::new(7), Pfn::new(NEW + 7));
    });
    assert_eq!((found, stale(world)), (vec![Some((NEW + 7, READ))], vec![]));
    assert_eq!((look(world, 7), owed.is_paid()), (Some((NEW + 7, READ_WRITE)), true));
    drop(owed);
    end(machine);
}

fn another_frame_is_paid_for_before_where_it_is_owed_and_with_it_where_not<F: Format>() {
    for owes_again in [true, false] {
        let machine = machine::<F>(7..8);
        let (world, _) = &machine;
        let owed = merge(world, 7..8);
        let found = at_invalidations(world, 7, |world| {
            if owes_again {
                assert!(!merge_into(world, 7..8, NEW + 0x100).is_paid());
                return;
            }
            let announced = world.stage2.begin_invalidation(&gfns(7..8));
            let (old, new) = (Pfn::new(NEW + 7), Pfn::new(NEW + 0x107));
            let with = Replacement { old, new, same_contents: true };
            world.stage2.replace_any(&announced, gfns(7..8), UNHURRIED, |_| Some(with), |_| ());
        });
        let (first, second) = (Some((NEW + 7, READ)), Some((NEW + 0x107, READ)));
        // That which is owed again is paid as it is dropped.
        let expected = if owes_again { vec![first, second] } else { vec![second] };
        assert_eq!((found, stale(world), owed.is_paid()), (expected, vec![], true));
        drop(owed);
        end(machine);
    }
}

fn whatever_invalidates_a_page_pays_for_it<F: Format>() {
    for way in 0..4 {
        let machine = machine::<F>(6..9);
        let (world, _) = &machine;
        let owed = merge(world, 7..8);
        let announced = world.stage2.begin_invalidation(&gfns(0..512));
        match way {
            0 => world.stage2.zap(&announced, gfns(7..8), Tables::Keep, UNHURRIED),
            1 => world.stage2.zap(&announced, gfns(0..512), Tables::Free, UNHURRIED),
            2 => world.stage2.zap_each(&announced, gfns(6..9), UNHURRIED, |_, _, _| ()),
            _ => {
                let with =
                    Replacement { old: Pfn::new(OLD), new: Pfn::new(NEW + 7), same_contents: true };
                world.stage2.replace_any(&announced, gfns(7..8), UNHURRIED, |_| Some(with), |_| ());
            }
        }
        assert!(!stale(world).contains(&7), "way {way}");
        assert!(owed.is_paid(), "way {way}");
        assert_eq!(world.platform.tlbs.take_issued().len(), 1, "way {way}");
        drop((announced, owed));
        end(machine);
    }
}

/// Pages are merged while an invalidation beside them is under way, and the merge is over after that.
fn what_comes_to_be_owed_during_an_invalidation_is_not_paid_by_that<F: Format>() {
    let (world, vcpu) = machine::<F>(6..9);
    let vcpu = Arc::new(vcpu);
    // All of what lies between them is invalidated with these.
    for page in [5, 9] {
        map(&world, 0, page, OLD + page, READ_WRITE);
    }
    let before = merge(&world, 8..9);
    let (changed, is_changed) = mpsc::channel();
    let (over, is_over) = mpsc::channel();
    let (merged, is_merged) = mpsc::channel();
    {
        let (here, world) = (Arc::clone(&world), Arc::clone(&world));
        let vcpu = Arc::clone(&vcpu);
        here.platform.tlbs.on_next_complete(move || {
            // A TLB has the page anew.
            walk(&world, &vcpu, 6);
            drop(vcpu);
            let merge = move || {
                let with = |gfn: Gfn| {
                    if gfn == Gfn::new(6) {
                        let (old, new) = (Pfn::new(OLD + 6), Pfn::new(NEW + 6));
                        return Some(Replacement { old, new, same_contents: true });
                    }
                    changed.send(()).unwrap();
                    is_over.recv().unwrap();
                    None
                };
                let pages = gfns(6..8);
                let announced = world.stage2.begin_invalidation(&pages);
                let owed =
                    world.stage2.replace_any_owing(&announced, pages, UNHURRIED, with, |_| ());
                merged.send(owed).unwrap();
            };
            thread::spawn(merge);
            is_changed.recv().unwrap();
        });
    }
    world.stage2.write_protect(gfns(5..10), UNHURRIED, |_, _| ());
    over.send(()).unwrap();
    let late = is_merged.recv().unwrap();
    assert!(before.is_paid() && !late.is_paid(), "{before:?}, {late:?}");
    assert_eq!(stale(&world), [6]);
    drop((before, late));
    assert_eq!(stale(&world), []);
    soon(|| Arc::strong_count(&world) == 1);
    end((world, Arc::into_inner(vcpu).unwrap()));
}

fn what_is_invalidated_far_from_it_pays_nothing<F: Format>() {
    let machine = machine::<F>(0..16);
    let (world, _) = &machine;
    let owed = merge(world, 7..8);
    let announced = world.stage2.begin_invalidation(&gfns(0..512));
    for page in [3, 12] {
        world.stage2.zap(&announced, gfns(page..page + 1), Tables::Keep, UNHURRIED);
    }
    world.stage2.write_protect(gfns(0..512), UNHURRIED, |_, _| ());
    assert!(stale(world).contains(&7) && !owed.is_paid());
    drop((announced, owed));
    end(machine);
}

fn what_is_invalidated_in_one_root_pays_for_no_other<F: Format>() {
    let world = Arc::new(World::<F>::new(64));
    let vcpus = [world.vcpu(0), world.vcpu(1)];
    for (role, vcpu) in (0..).zip(&vcpus) {
        map(&world, role, 7, OLD + 7, READ);
        walk(&world, vcpu, 7);
    }
    let owed = merge(&world, 7..8);
    world.platform.tlbs.take_issued();
    let announced = world.stage2.begin_invalidation(&gfns(7..8));
    world.stage2.zap_role(role(0), &announced, gfns(7..8), Tables::Keep, UNHURRIED);
    let issued = world.platform.tlbs.take_issued();
    assert!(matches!(&issued[..], [(vmid, Scope::Range(_))] if *vmid == vcpus[0].vmid));
    assert_eq!((stale(&world), owed.is_paid()), (vec![7], false), "the other root's TLB has it");
    drop((announced, owed));
    assert_eq!(stale(&world), []);
    drop(vcpus);
    Arc::into_inner(world).unwrap().destroy();
}

fn a_missing_page_in_a_frame_of_which_something_is_owed_is_not_mapped_the_short_way<F: Format>() {
    let machine = machine::<F>(7..8);
    let (world, _) = &machine;
    let owed = merge(world, 7..8);
    let (root, section) = (world.root(0), world.srcu.read_lock());
    let what = leaf(NEW + 7, READ_WRITE);
    let seen = world.stage2.sample();
    let mapped = root.map_missing_page(Gfn::new(0x107), &what, seen, &section);
    assert_eq!((mapped, stale(world)), (None, vec![7]), "what is written there is not read at 7");
    drop((root, section));
    map(world, 0, 0x107, NEW + 7, READ_WRITE);
    assert_eq!((stale(world), owed.is_paid()), (vec![], true));
    drop(owed);
    end(machine);
}

fn an_invalidation_of_pages_takes_those_beside_them_with_it<F: Format>() {
    for (zapped, taken) in [(4, 7..11), (13, 7..11), (6, 7..10)] {
        let machine = machine::<F>(0..16);
        let (world, _) = &machine;
        let owed = merge(world, taken.clone());
        let announced = world.stage2.begin_invalidation(&gfns(0..512));
        world.stage2.zap(&announced, gfns(zapped..zapped + 1), Tables::Keep, UNHURRIED);
        assert_eq!(world.platform.tlbs.take_issued().len(), 1);
        assert!(owed.is_paid() && stale(world).iter().all(|gfn| !taken.contains(gfn)));
        drop((announced, owed));
        end(machine);
    }
}

fn what_comes_on_top_of_the_bound_pays_for_all_by_address<F: Format>() {
    let machine = machine::<F>(0..2 * BOUND + 1);
    let (world, _) = &machine;
    let mut owed = Vec::new();
    for page in 0..BOUND {
        owed.push(merge(world, page..page + 1));
    }
    assert_eq!(world.platform.tlbs.take_issued(), []);
    owed.push(merge(world, BOUND..BOUND + 1));
    let issued = world.platform.tlbs.take_issued();
    assert_eq!(issued.len(), 1, "{issued:?}");
    assert!(!stale(world).contains(&(BOUND - 1)) && stale(world).contains(&(2 * BOUND)));
    let paid: Vec<bool> = owed.iter().map(Owed::is_paid).collect();
    assert!(paid[..BOUND as usize].iter().all(|paid| *paid) && !paid[BOUND as usize]);
    // As many as in two bounds, in no order.
    for page in 0..BOUND - 1 {
        let page = BOUND + 1 + page * 37 % (BOUND - 1);
        owed.push(merge(world, page..page + 1));
    }
    assert_eq!(world.platform.tlbs.take_issued(), []);
    owed.pop().unwrap().pay();
    assert_eq!(world.platform.tlbs.take_issued().len(), 1, "they follow each other");
    assert!(owed.iter().all(Owed::is_paid));
    drop(owed);
    assert_eq!(world.platform.tlbs.take_issued(), []);
    end(machine);
}

fn nobody_is_owed_what_no_tlb_can_have<F: Format>() {
    let world = World::<F>::new(64);
    map(&world, 0, 7, OLD + 7, READ);
    let owed = merge(&world, 7..8);
    assert!(owed.is_paid(), "no vCPU has been in the guest");
    drop(owed);
    assert_eq!(world.platform.tlbs.take_issued(), []);
    world.destroy();
}

fn what_is_not_replaced_in_place_is_not_owed<F: Format>() {
    let (world, vcpu) = machine::<F>(7..8);
    let with = Replacement { old: Pfn::new(OLD + 7), new: Pfn::new(NEW), same_contents: false };
    let announced = world.stage2.begin_invalidation(&gfns(7..8));
    let owed =
        world.stage2.replace_any_owing(&announced, gfns(7..8), UNHURRIED, |_| Some(with), |_| ());
    assert_eq!((look(&world, 7), stale(&world), owed.is_paid()), (None, vec![], true));
    drop((announced, owed));
    end((world, vcpu));
}

fn what_is_owed_outlives_the_vm<F: Format>() {
    let (world, vcpu) = machine::<F>(7..8);
    let owed = merge(&world, 7..8);
    drop(vcpu);
    Arc::into_inner(world).unwrap().destroy();
    assert!(owed.is_paid(), "the root's VMID was invalidated before its tables were freed");
    drop(owed);
}

in_formats! {
    what_is_owed_costs_no_invalidation_until_it_is_asked_for
    a_fault_that_gives_the_right_to_write_pays_before_anybody_finds_it
    a_fault_that_only_reads_pays_nothing
    a_page_that_is_mapped_twice_is_paid_for_at_both_places
    a_page_is_paid_for_in_every_root
    the_right_to_write_that_the_host_gives_is_paid_for_before
    another_frame_is_paid_for_before_where_it_is_owed_and_with_it_where_not
    whatever_invalidates_a_page_pays_for_it
    what_comes_to_be_owed_during_an_invalidation_is_not_paid_by_that
    what_is_invalidated_far_from_it_pays_nothing
    what_is_invalidated_in_one_root_pays_for_no_other
    a_missing_page_in_a_frame_of_which_something_is_owed_is_not_mapped_the_short_way
    an_invalidation_of_pages_takes_those_beside_them_with_it
    what_comes_on_top_of_the_bound_pays_for_all_by_address
    nobody_is_owed_what_no_tlb_can_have
    what_is_not_replaced_in_place_is_not_owed
    what_is_owed_outlives_the_vm
}
