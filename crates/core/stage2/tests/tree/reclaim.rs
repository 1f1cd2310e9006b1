//! The end of roots: in slices, within bounds, with one invalidation each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use mayfly_platform::address::Gfn;
use mayfly_platform::tlb::Scope;
use mayfly_stage2::{
    Arm, Ept, Error, Format, Level, Mapped, Reclaimed, Reclaimer, Sv39x4, Sv48x4, Tables,
};

use crate::common::granted::MapsAny;
use crate::common::{World, role};
use crate::{READ_WRITE, UNHURRIED, entries, gfns, leaf};
use mayfly_platform::testing::threads::{joined, soon};

const PAGES: u64 = Level::MIB2.pages();

/// Tables in several places of every level, the last place of the root among them.
pub(crate) fn grow<F: Format>(world: &World<F>, number: u8) {
    let section = world.srcu.read_lock();
    let root = world.stage2.root(role(number), &section).unwrap();
    let last = 1_u64 << (F::IPA_BITS - 12 - 1);
    for gib in [0, 1, 511, 512, last >> 18, (last >> 17) - 1] {
        for mib2 in [0, 1, 255, 511] {
            let gfn = Gfn::new(gib << 18 | mib2 << 9 | 511);
            let what = leaf(gfn.get(), READ_WRITE);
            let seen = world.stage2.sample();
            root.map(gfn, Level::PAGE, &what, seen, &section).unwrap();
        }
    }
}

fn every_table_is_freed_once_in_slices_of_any_size<F: Format>() {
    for budget in [1, 2, 3, 7, 100, 511, 512, 513, 514, 5000, u32::MAX] {
        let world = World::<F>::new(100);
        grow(&world, 0);
        assert!(world.live() > 24);
        world.stage2.retire();
        loop {
            let before = world.live();
            let reclaimed = world.reclaimer.run_slice(entries(budget));
            // An entry frees its table, and where it is the last, the one that it is in; at the end goes the root.
            let bound = (budget as usize).saturating_mul(2) + 8;
            assert!(before - world.live() <= bound, "{} at once", before - world.live());
            if reclaimed == Reclaimed::All {
                break;
            }
            assert_eq!(reclaimed, Reclaimed::More);
        }
        assert_eq!((world.live(), world.stage2.frames(), world.reclaimer.frames()), (0, 0, 0));
    }
}

#[test]
fn every_table_is_freed_once_in_slices_of_any_size_arm_40() {
    every_table_is_freed_once_in_slices_of_any_size::<Arm<40>>();
}

#[test]
fn every_table_is_freed_once_in_slices_of_any_size_ept() {
    every_table_is_freed_once_in_slices_of_any_size::<Ept>();
}

#[test]
fn every_table_is_freed_once_in_slices_of_any_size_sv39x4() {
    every_table_is_freed_once_in_slices_of_any_size::<Sv39x4>();
}

#[test]
fn every_table_is_freed_once_in_slices_of_any_size_sv48x4() {
    every_table_is_freed_once_in_slices_of_any_size::<Sv48x4>();
}

#[test]
fn a_destroyed_vm_is_invalidated_once_for_each_root_that_was_entered() {
    let world = World::<Ept>::new(200);
    let vcpus = [world.vcpu(0), world.vcpu(1), world.vcpu(1)];
    for number in 0..3 {
        grow(&world, number);
    }
    let [first, second, third] = vcpus.map(|vcpu| vcpu.vmid);
    assert_eq!(second, third);
    world.platform.tlbs.take_issued();
    world.stage2.retire();
    assert_eq!(world.platform.tlbs.take_issued(), []);
    while world.reclaimer.run_slice(entries(10)) != Reclaimed::All {}
    let mut issued = world.platform.tlbs.take_issued();
    issued.sort_by_key(|(vmid, _)| *vmid);
    assert_eq!(issued, [(first.min(second), Scope::All), (first.max(second), Scope::All)]);
    assert_eq!(world.platform.tlbs.completed(), 2);
    world.destroy();
}

#[test]
fn a_root_that_a_vcpu_has_loaded_is_kept_until_it_is_dropped() {
    let world = World::<Ept>::new(100);
    let vcpu = world.vcpu(0);
    grow(&world, 0);
    let frames = world.live();
    world.stage2.retire();
    for _ in 0..3 {
        assert_eq!(world.reclaimer.run_slice(UNHURRIED), Reclaimed::Waits);
    }
    assert_eq!((world.live(), world.platform.tlbs.take_issued().len()), (frames, 0));
    drop(vcpu);
    world.destroy();
}

#[test]
fn a_root_is_kept_while_a_reader_may_have_found_it() {
    let world = World::<Ept>::new(100);
    grow(&world, 0);
    let frames = world.live();
    let section = world.srcu.read_lock();
    world.stage2.retire();
    assert_eq!(world.reclaimer.run_slice(UNHURRIED), Reclaimed::Waits);
    assert_eq!(world.live(), frames);
    drop(section);
    world.destroy();
}

#[test]
fn a_root_that_waits_holds_up_no_other_though_readers_come_and_go() {
    let world = World::<Ept>::new(300);
    let held = world.vcpu(0);
    grow(&world, 0);
    world.stage2.retire();
    assert_eq!(world.reclaimer.run_slice(UNHURRIED), Reclaimed::Waits);

    let (other, srcu) = world.another_vm();
    let readers = [srcu.reader().unwrap(), srcu.reader().unwrap()];
    drop(other.root(role(0), &readers[0].lock()).unwrap());
    assert_eq!(other.frames(), 1);
    let mut inside = readers[0].lock();
    other.retire();
    for turn in 1..=4 {
        assert_eq!(world.reclaimer.run_slice(entries(u32::MAX)), Reclaimed::Waits);
        // One is inside at any time, and none for long.
        let next = readers[turn % 2].lock();
        drop(std::mem::replace(&mut inside, next));
    }
    assert_eq!(other.frames(), 0);
    drop((inside, held));
    world.destroy();
}

#[test]
fn a_slice_ends_where_the_root_that_waited_first_is_freed_and_others_wait() {
    let world = Arc::new(World::<Ept>::new(64));
    // In this order: one that a reader holds up, one that is freed, and two that vCPUs hold.
    let vms: Vec<_> = (0..4).map(|_| world.another_vm()).collect();
    let roots = vms.iter().map(|(vm, srcu)| vm.root(role(0), &srcu.read_lock()).unwrap());
    let mut roots: Vec<_> = roots.collect();
    // SAFETY: no guest is on this CPU, which keeps no translation.
    let _ = unsafe { roots[1].tag().activate(0, world.vmids.vcpu()) };
    drop(roots.drain(..2));
    let (inside, entered) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let srcu = vms[0].1.clone();
    let reader = thread::spawn(move || {
        let section = srcu.read_lock();
        inside.send(()).unwrap();
        let _ = left.recv();
        drop(section);
    });
    entered.recv().unwrap();
    for (vm, _) in &vms {
        vm.retire();
    }
    // When the second is invalidated, the first has been looked at once.
    world.platform.tlbs.on_next_issue(move || {
        leave.send(()).unwrap();
        reader.join().unwrap();
    });
    let (done, slice) = mpsc::channel();
    let reclaimer = Arc::clone(&world.reclaimer);
    thread::spawn(move || done.send(reclaimer.run_slice(entries(u32::MAX))));
    assert_eq!(slice.recv_timeout(Duration::from_secs(20)), Ok(Reclaimed::Waits));
    assert_eq!(world.live(), 2);
    drop((roots, vms));
    while world.reclaimer.run_slice(entries(u32::MAX)) != Reclaimed::All {}
    Arc::into_inner(world).unwrap().destroy();
}

#[test]
fn the_vmid_of_a_root_that_is_reclaimed_is_given_out_again() {
    let world = World::<Ept>::new(64);
    // More roots than there are numbers, one after the other.
    let mut vcpu = world.vcpu(0);
    for _ in 0..300 {
        world.stage2.replace_roots().unwrap().finish();
        vcpu.load(world.root(0));
        while world.reclaimer.run_slice(UNHURRIED) != Reclaimed::All {}
    }
    assert_eq!(world.vmids.rollovers(), 0);
    drop(vcpu);
    world.destroy();
}

#[test]
fn who_retires_above_the_bound_frees_what_is_above_it() {
    let world = World::<Ept>::bounded(2000, 50);
    for _ in 0..20 {
        grow(&world, 0);
        let retiring = world.stage2.replace_roots().unwrap();
        retiring.finish();
        assert!(world.reclaimer.frames() <= 50);
        // The present root, beside what awaits reclaim.
        assert!(world.live() <= 51 + 1, "{}", world.live());
    }
    world.destroy();
}

#[test]
fn the_peak_of_frames_awaiting_reclaim_is_kept() {
    let world = World::<Ept>::new(100);
    grow(&world, 0);
    let frames = world.live();
    world.stage2.retire();
    assert_eq!((world.reclaimer.frames(), world.reclaimer.peak_frames()), (frames, frames));
    let reclaimer = Arc::clone(&world.reclaimer);
    world.destroy();
    assert_eq!((reclaimer.frames(), reclaimer.peak_frames()), (0, frames));
}

#[test]
fn a_thread_that_serves_frees_what_is_retired_and_stops_when_told() {
    let world = World::<Ept>::new(100);
    let reclaimer = Arc::clone(&world.reclaimer);
    let server = thread::spawn(move || reclaimer.serve(entries(5)));
    let vcpu = world.vcpu(0);
    grow(&world, 0);
    world.stage2.retire();
    assert!(world.live() > 0);
    drop(vcpu);
    soon(|| world.live() == 0);
    world.reclaimer.stop();
    joined(server);
    world.destroy();
}

#[test]
fn whoever_waits_for_the_end_of_reclaim_needs_no_server() {
    let world = World::<Ept>::new(100);
    grow(&world, 0);
    world.stage2.retire();
    world.stage2.wait_reclaimed();
    assert_eq!(world.live(), 0);
}

#[test]
fn the_wait_for_reclaim_lasts_until_the_last_vcpu_drops_its_root() {
    let world = Arc::new(World::<Ept>::new(100));
    let vcpu = world.vcpu(0);
    grow(&world, 0);
    world.stage2.retire();
    let dropped = Arc::new(AtomicBool::new(false));
    let waiter = {
        let (world, dropped) = (Arc::clone(&world), Arc::clone(&dropped));
        thread::spawn(move || {
            world.stage2.wait_reclaimed();
            assert!(dropped.load(Ordering::SeqCst));
        })
    };
    thread::sleep(Duration::from_millis(5));
    dropped.store(true, Ordering::SeqCst);
    drop(vcpu);
    joined(waiter);
    assert_eq!(world.live(), 0);
}

#[test]
fn a_vm_and_a_reclaimer_that_are_dropped_give_every_frame_back() {
    let World { platform, stage2, srcu, vmids, reclaimer, .. } = World::<Ept>::new(100);
    let root = stage2.root(role(0), &srcu.read_lock()).unwrap();
    let (what, seen) = (leaf(7, READ_WRITE), stage2.sample());
    root.map(Gfn::new(7), Level::PAGE, &what, seen, &srcu.read_lock()).unwrap();
    drop((root, stage2, srcu, vmids));
    assert!(platform.arena.live() > 0);
    drop(reclaimer);
    assert_eq!(platform.arena.live(), 0);
}

#[test]
fn a_replacement_that_is_not_finished_by_name_loses_no_root() {
    let world = World::<Ept>::new(100);
    grow(&world, 0);
    drop(world.stage2.replace_roots().unwrap());
    drop(world.stage2.replace_roots().unwrap());
    world.destroy();
}

#[test]
fn a_destroyed_vm_gives_no_root() {
    let world = World::<Ept>::new(10);
    drop(world.root(0));
    world.stage2.retire();
    let section = world.srcu.read_lock();
    for number in 0..2 {
        assert_eq!(world.stage2.root(role(number), &section).err(), Some(Error::Destroyed));
    }
    drop(section);
    world.destroy();
}

#[test]
fn tables_that_a_zap_takes_out_wait_for_readers_and_are_freed_by_a_later_one() {
    let world = World::<Ept>::new(100);
    grow(&world, 0);
    let frames = world.live();
    let section = world.srcu.read_lock();
    world.zap(gfns(0..PAGES), Tables::Free, UNHURRIED);
    assert_eq!(world.live(), frames);
    drop(section);
    world.zap(gfns(0..PAGES), Tables::Free, UNHURRIED);
    assert_eq!(world.live(), frames - 1);
    world.destroy();
}

#[test]
fn tables_that_are_about_to_be_needed_stay() {
    let world = World::<Ept>::new(100);
    grow(&world, 0);
    let frames = world.live();
    world.zap(gfns(0..u64::MAX), Tables::Keep, entries(9));
    assert_eq!(world.live(), frames);
    world.zap(gfns(0..u64::MAX), Tables::Free, entries(9));
    assert_eq!(world.live(), 5, "the root, and the tables of 512 GiB");
    world.destroy();
}

#[test]
fn a_block_gives_way_to_pages_when_too_many_tables_await_readers() {
    let world = World::<Ept>::new(4200);
    let root = world.root(0);
    let reader = world.srcu.reader().unwrap();
    let held = reader.lock();
    let map = |level, pfn| {
        let section = world.srcu.read_lock();
        let seen = world.stage2.sample();
        root.map(Gfn::new(0), level, &leaf(pfn, READ_WRITE), seen, &section).unwrap()
    };
    let mut collapsed = 0;
    let refused = loop {
        // Another frame than the block's, so that the block is split.
        assert_eq!(map(Level::PAGE, 1 << 20), Mapped::Installed);
        match map(Level::MIB2, 0) {
            Mapped::Installed => collapsed += 1,
            refused => break refused,
        }
    };
    assert_eq!((refused, collapsed), (Mapped::TooLarge, 4096));
    drop(held);
    world.zap(gfns(1..1), Tables::Keep, UNHURRIED);
    assert_eq!(map(Level::MIB2, 0), Mapped::Installed);
    drop(root);
    world.destroy();
}

#[test]
fn a_slice_is_charged_for_every_entry_of_a_table_that_it_takes_out() {
    let world = World::<Sv39x4>::new(40);
    let root = world.root(0);
    let section = world.srcu.read_lock();
    let (what, seen) = (leaf(0, READ_WRITE), world.stage2.sample());
    // 16 tables of 512 blocks.
    let mapped = root.map_any_run(gfns(0..16 << 18), Level::MIB2, &what, seen, &section);
    assert_eq!(mapped, Ok(Mapped::Installed));
    drop(section);
    let before = world.platform.slices();
    world.zap(gfns(0..16 << 18), Tables::Free, entries(1024));
    assert_eq!(world.platform.slices() - before, 8);
    drop(root);
    world.destroy();
}

/// Turns that a reclaimer may take while what it waits for does not come: where readers are fenced it looks again, at
/// intervals that double.
const FEW: u64 = 20;

/// Long enough for a look every millisecond to be many.
fn while_nothing_comes(reclaimer: &Reclaimer<Ept>) {
    let before = reclaimer.turns();
    thread::sleep(Duration::from_millis(200));
    let turns = reclaimer.turns() - before;
    assert!(turns <= FEW, "{turns} turns while there was nothing to do");
}

#[test]
fn a_reclaimer_that_waits_for_a_reader_sleeps_until_he_leaves() {
    let world = World::<Ept>::new(10_000);
    let reclaimer = Arc::clone(&world.reclaimer);
    let server = thread::spawn(move || reclaimer.serve(UNHURRIED));
    let reader = world.srcu.reader().unwrap();
    let (other, srcu) = world.another_vm();
    drop(other.root(role(0), &srcu.read_lock()).unwrap());
    grow(&world, 0);
    while_nothing_comes(&world.reclaimer);
    for is_anonymous in [false, true] {
        let section = if is_anonymous { Err(world.srcu.read_lock()) } else { Ok(reader.lock()) };
        // Others' come and go meanwhile.
        world.stage2.replace_roots().unwrap().finish();
        other.replace_roots().unwrap().finish();
        soon(|| other.frames() <= 1);
        while_nothing_comes(&world.reclaimer);
        assert!(world.live() > 2, "the reader may be in them");
        drop(section);
        soon(|| world.live() <= 2);
        grow(&world, 0);
    }
    while_nothing_comes(&world.reclaimer);
    assert!(world.reclaimer.turns() < 6 * FEW, "{}", world.reclaimer.turns());
    world.reclaimer.stop();
    joined(server);
    drop((reader, other));
    world.destroy();
}
