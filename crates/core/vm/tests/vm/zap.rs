//! What becomes of the tables when a slot is deleted or moved.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{JoinHandle, spawn, yield_now};

use mayfly_memslot::{Flags, Gfn, Gpa, PAGE_SIZE, Region};
use mayfly_platform::address::Pfn;
use mayfly_platform::tlb::{Scope, Span};
use mayfly_stage2::{Leaf, Level, Slice};
use mayfly_vm::{Config, Exit, Reason, SlotZap};

use crate::common::{
    Order, Outcome, Setup, Sleeper, Stop, Stopped, Stopping, TestFormat, TestVm, deleted, frames,
    hva, joined, mmio_exit, read, region, top, translation, write,
};

const BOTH: [SlotZap; 2] = [SlotZap::Range, SlotZap::AllRoots];

#[test]
fn nothing_is_mapped_through_a_slot_that_was_deleted_or_moved() {
    for slot_zap in BOTH {
        let setup = Setup::new(slot_zap);
        let vm = setup.vm();
        let mut vcpus = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
        vm.set_memory_region(&region(0, 0x10, 4)).unwrap();
        vm.set_memory_region(&region(1, 0x20, 4)).unwrap();
        for vcpu in &mut vcpus {
            assert_eq!(write(vcpu, 0x1_0000, &[1]), Outcome::Memory(hva(0, 0)));
            assert_eq!(write(vcpu, 0x2_0000, &[1]), Outcome::Memory(hva(1, 0)));
        }
        vm.set_memory_region(&Region { gpa: Gpa::new(0x3_0000), ..region(0, 0, 4) }).unwrap();
        for vcpu in &mut vcpus {
            assert_eq!(translation(vcpu, 0x10), None, "{slot_zap:?}");
            assert_eq!(read(vcpu, 0x3_0000, 1), Outcome::Memory(hva(0, 0)));
        }
        vm.set_memory_region(&deleted(region(1, 0, 0))).unwrap();
        for vcpu in &mut vcpus {
            assert_eq!(translation(vcpu, 0x20), None, "{slot_zap:?}");
            assert_eq!(read(vcpu, 0x2_0000, 1), mmio_exit(0x2_0000, 1, false));
        }
        let kept = translation(&mut vcpus[0], 0x30).is_some();
        assert_eq!(kept, slot_zap == SlotZap::Range, "a range leaves what is beside it");
        assert_eq!(read(&mut vcpus[0], 0x3_0000, 1), Outcome::Memory(hva(0, 0)));
    }
}

#[test]
fn a_slot_that_is_zapped_by_its_range_is_invalidated_once_and_its_table_is_freed() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let empty = setup.hardware.live();
    vm.set_memory_region(&region(0, 0x200, 0x200)).unwrap();
    for gfn in [0x200, 0x2ff, 0x3ff] {
        write(&mut vcpu, gfn * PAGE_SIZE, &[1]);
    }
    assert_eq!(setup.hardware.take_invalidations(), [], "nothing was mapped there before");
    vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
    let scopes: Vec<_> = scopes(&setup);
    assert_eq!(scopes, [Scope::Range(Span::pages(Gfn::new(0x200)..Gfn::new(0x400)))]);
    assert!(!vm.srcu().tick());
    // A table of 2 MiB blocks is left, for 1 GiB of which the slot was a part.
    assert_eq!(setup.hardware.live() - empty, 1);
}

fn scopes(setup: &Setup) -> Vec<Scope> {
    setup.hardware.take_invalidations().into_iter().map(|(_, scope)| scope).collect()
}

#[test]
fn every_root_that_is_replaced_is_invalidated_once_and_reclaimed() {
    let setup = Setup::new(SlotZap::AllRoots);
    let vm = setup.vm();
    let mut vcpus = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
    let empty = setup.hardware.live();
    vm.set_memory_region(&region(0, 0, 0x1000)).unwrap();
    for gfn in (0..0x1000).step_by(0x100) {
        write(&mut vcpus[0], gfn * PAGE_SIZE, &[1]);
    }
    let old = top(&mut vcpus[0]);
    let mapped = setup.hardware.live();
    assert!(mapped > empty);
    vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
    assert_eq!(setup.hardware.take_invalidations(), [], "nobody waited for a TLB");
    assert_eq!(setup.hardware.live(), mapped + 2, "the old root, and a fresh one");

    assert!(setup.reclaim(), "no vCPU is in its guest on the old root");
    assert!(
        vcpus.iter_mut().all(|vcpu| top(vcpu) != old),
        "and they load the new one when they run"
    );
    assert_eq!(scopes(&setup), [Scope::All]);
    assert_eq!(setup.hardware.live(), empty);
}

fn next(entries: &Receiver<Pfn>) -> Pfn {
    entries.recv().unwrap()
}

#[test]
fn a_vcpu_in_the_guest_comes_out_for_a_fresh_root_and_goes_back_in() {
    let setup = Setup::new(SlotZap::AllRoots);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let (entered, entries) = channel();
    let running = spawn(move || vcpu.run(&mut Sleeper(entered)));
    let mut tops = vec![next(&entries)];
    for _ in 0..3 {
        vm.set_memory_region(&region(0, 0x10, 4)).unwrap();
        vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
        tops.push(next(&entries));
        assert_ne!(tops[tops.len() - 2], tops[tops.len() - 1]);
    }
    vm.kick(0);
    assert_eq!(joined(running), Exit::Kicked);
    assert!(setup.reclaim());
    assert!(entries.recv().is_err(), "it was entered once for each root");
}

/// Two vCPUs in the guest: one that does not come out before it is let go on, and one that does, and is back at once.
struct Two {
    order: Order,
    stopped: Stopped,
    deaf: JoinHandle<Exit>,
    quick: JoinHandle<Exit>,
    /// Those of the quick one.
    entries: Receiver<Pfn>,
}

impl Two {
    fn run(vm: &TestVm) -> Self {
        let order = Order::default();
        let (stop, stopped) = Stop::new(&order);
        let [mut deaf, mut quick] = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
        let deaf = spawn(move || deaf.run(&mut Stopping { stop, access: None }));
        let (entered, entries) = channel();
        let quick = spawn(move || quick.run(&mut Sleeper(entered)));
        stopped.wait();
        Self { order, stopped, deaf, quick, entries }
    }
}

#[test]
fn a_vcpu_with_a_fresh_root_is_not_waited_for_though_it_is_in_the_guest() {
    let setup = Setup::new(SlotZap::AllRoots);
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 0x10, 4)).unwrap();
    // The first one that is looked at is deaf; the second one comes out, and is back in the guest, for good, before the
    // first one is out.
    let Two { order, stopped, deaf, quick, entries } = Two::run(&vm);
    let old = next(&entries);

    let (deleting, noting) = (vm.clone(), order.clone());
    let deleting = spawn(move || {
        deleting.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
        noting.note("the slot is gone");
    });
    assert_ne!(next(&entries), old);
    stopped.go_on();
    joined(deleting);
    assert_eq!(order.take(), ["the vCPU went on", "the slot is gone"]);
    assert_eq!(joined(deaf), Exit::Halt);
    assert!(!quick.is_finished());
    vm.kick(1);
    assert_eq!(joined(quick), Exit::Kicked);
}

#[test]
fn who_waits_for_a_vcpu_to_come_out_keeps_nobody_from_kicking_and_creating_others() {
    let setup = Setup::new(SlotZap::AllRoots);
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 0x10, 4)).unwrap();
    let Two { order, stopped, deaf, quick, entries } = Two::run(&vm);
    let old = next(&entries);
    let deleting = vm.clone();
    let deleting = spawn(move || deleting.set_memory_region(&deleted(region(0, 0, 0))).unwrap());
    assert_ne!(next(&entries), old, "all have been asked to come out");

    vm.kick(1);
    assert_eq!(joined(quick), Exit::Kicked);
    drop(vm.create_vcpu(1).unwrap());
    assert_eq!(vm.vcpu_count(), 1);
    order.note("others came and went");
    stopped.go_on();
    joined(deleting);
    assert_eq!(joined(deaf), Exit::Halt);
    assert_eq!(order.take(), ["others came and went", "the vCPU went on"]);
}

/// What the host unmaps while a slot is being deleted may be gone for nobody else to find.
#[test]
fn memory_is_taken_away_from_a_slot_that_is_half_deleted() {
    let setup = Setup::new(SlotZap::Range);
    let slice = Slice { entries: 1, ..Slice::default() };
    let vm = TestVm::create(Config { slice, ..setup.config() }).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&region(0, 0, 0x400)).unwrap();
    let pages = [0, 0x200].map(|page| page * PAGE_SIZE);
    for gpa in pages {
        write(&mut vcpu, gpa, &[1]);
    }
    let (root, inside) = (top(&mut vcpu), vm.clone());
    let (seen, sight) = channel();
    // The first slice is done, and the second is not.
    setup.hardware.at_next_invalidation(move || {
        let mapped = || [0, 0x200].map(|gfn| walk(root, gfn).is_some());
        let before = mapped();
        drop(inside.invalidate_start(hva(0, pages[1]), PAGE_SIZE, Reason::Unmap));
        seen.send([before, mapped()]).unwrap();
    });
    vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
    assert_eq!(sight.recv().unwrap(), [[false, true], [false, false]]);
}

#[test]
fn memory_is_taken_away_from_a_vcpu_that_has_not_left_a_replaced_root() {
    let setup = Setup::new(SlotZap::AllRoots);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    for slot in [0, 1] {
        vm.set_memory_region(&region(slot, u64::from(slot) * 0x10, 4)).unwrap();
        write(&mut vcpu, u64::from(slot) * 0x10 * PAGE_SIZE, &[1]);
    }
    let root = top(&mut vcpu);
    let (stop, stopped) = Stop::new(&Order::default());
    let requests = vm.clone();
    let running = spawn(move || {
        let exit = vcpu.run(&mut Stopping { stop, access: None });
        (exit, vcpu)
    });
    stopped.wait();
    let frames = setup.hardware.live();
    let deleting = spawn(move || requests.set_memory_region(&deleted(region(0, 0, 0))));
    // Until there is a fresh root.
    while setup.hardware.live() == frames {
        assert!(!deleting.is_finished(), "it did not wait");
        yield_now();
    }
    for slot in [0, 1] {
        assert!(walk(root, u64::from(slot) * 0x10).is_some());
        drop(vm.invalidate_start(hva(slot, 0), PAGE_SIZE, Reason::Unmap));
        assert_eq!(walk(root, u64::from(slot) * 0x10), None);
    }
    assert_eq!(setup.hardware.take_invalidations().len(), 2);
    stopped.go_on();
    let (exit, vcpu) = joined(running);
    assert_eq!(exit, Exit::Halt);
    assert_eq!(joined(deleting), Ok(()));
    drop(vcpu);
}

fn walk(root: Pfn, gfn: u64) -> Option<(Level, Leaf)> {
    frames::walk::<TestFormat>(root, Gfn::new(gfn))
}

/// A slot may move by less than its length. On Arm nothing may take the place of an entry that TLBs still remember.
#[test]
fn what_a_slot_moves_onto_is_mapped_anew_when_no_tlb_remembers_what_was_there() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let [mut one, two] = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
    vm.set_memory_region(&region(0, 0x10, 4)).unwrap();
    write(&mut one, 0x1_2000, &[1]);
    let (root, hardware) = (top(&mut one), setup.hardware.clone());
    let (done, meanwhile) = channel();
    let mut writer = Some(two);
    setup.hardware.at_next_invalidation(move || {
        let writing = hardware.try_write(writer.take().unwrap(), 0x1_2000);
        done.send((walk(root, 0x12), writing)).unwrap();
    });
    vm.set_memory_region(&region(0, 0x11, 4)).unwrap();
    let (mapped, writing) = meanwhile.recv().unwrap();
    assert_eq!(mapped, None);
    assert_eq!(joined(writing), Outcome::Memory(hva(0, PAGE_SIZE)));
}

/// The panic here is that of a caller which would wait for itself: it comes when the slot is published as gone.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "release builds wait there")]
fn nothing_is_mapped_through_a_slot_whose_deletion_has_panicked() {
    let setup = Setup::new(SlotZap::AllRoots);
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 0x10, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    std::mem::forget(vm.stage2().replace_roots().unwrap());
    read(&mut vcpu, 0x1_0000, 1);
    assert!(translation(&mut vcpu, 0x10).is_some());
    let deleting = || vm.set_memory_region(&deleted(region(0, 0x10, 4)));
    catch_unwind(AssertUnwindSafe(deleting)).unwrap_err();
    assert_eq!(translation(&mut vcpu, 0x10), None);
}

#[test]
fn a_vcpu_that_handles_an_exit_is_not_waited_for_by_its_root() {
    let setup = Setup::new(SlotZap::AllRoots);
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 0x10, 4)).unwrap();
    let order = Order::default();
    let (stop, stopped) = Stop::new(&order);
    let mut vcpu = vm.create_vcpu(0).unwrap();
    setup.memory.when_asked(move || stop.here());
    let running = spawn(move || (read(&mut vcpu, 0x1_0000, 1), vcpu));
    stopped.wait();
    let retiring = vm.stage2().replace_roots().unwrap();
    order.note("fresh roots");
    retiring.finish();
    assert!(!setup.reclaim(), "it has the old root still");
    stopped.go_on();
    drop(joined(running));
    assert_eq!(order.take(), ["fresh roots", "the vCPU went on"]);
    assert!(setup.reclaim());
}

/// Who goes on by a slot that he has found, which is about to go, or to have its writes logged.
#[test]
fn who_changes_a_slot_returns_when_nobody_has_the_slot_of_before_any_more() {
    let (plain, logs) = (region(0, 0x10, 4), Flags::LOG_DIRTY_PAGES);
    let moved = Region { gpa: Gpa::new(0x3_0000), ..plain };
    for change in [deleted(plain), moved, Region { flags: logs, ..plain }] {
        let setup = Setup::new(SlotZap::Range);
        let vm = setup.vm();
        vm.set_memory_region(&plain).unwrap();
        let order = Order::default();
        let (stop, stopped) = Stop::new(&order);
        let mut vcpu = vm.create_vcpu(0).unwrap();
        setup.memory.when_asked(move || stop.here());
        let running = spawn(move || drop(read(&mut vcpu, 0x1_0000, 1)));
        stopped.wait();
        let waits = setup.hardware.waits();
        let changing = {
            let order = order.clone();
            spawn(move || {
                vm.set_memory_region(&change).unwrap();
                order.note("the slot is changed");
            })
        };
        while setup.hardware.waits() == waits && !changing.is_finished() {
            yield_now();
        }
        stopped.go_on();
        joined(running);
        joined(changing);
        assert_eq!(order.take(), ["the vCPU went on", "the slot is changed"], "{change:?}");
    }
}

#[test]
fn a_slot_can_be_deleted_when_there_is_no_memory_for_fresh_roots() {
    let setup = Setup::new(SlotZap::AllRoots);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    for slot in [0, 1] {
        vm.set_memory_region(&region(slot, 0x10 << slot, 4)).unwrap();
        read(&mut vcpu, (PAGE_SIZE * 0x10) << slot, 1);
    }
    let old = top(&mut vcpu);
    setup.hardware.refuse_frames_after(0);
    vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
    vm.set_memory_region(&Region { gpa: Gpa::new(0x3_0000), ..region(1, 0, 4) }).unwrap();
    assert_eq!(top(&mut vcpu), old);
    assert_eq!([0x10, 0x20].map(|gfn| translation(&mut vcpu, gfn)), [None, None]);
    setup.hardware.refuse_no_frames();
    assert_eq!(read(&mut vcpu, 0x1_0000, 1), mmio_exit(0x1_0000, 1, false));
    assert_eq!(read(&mut vcpu, 0x3_0000, 1), Outcome::Memory(hva(1, 0)));
}

#[test]
fn creating_a_slot_and_switching_its_log_leave_the_roots_alone() {
    let setup = Setup::new(SlotZap::AllRoots);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let root = top(&mut vcpu);
    let plain = region(0, 0x10, 4);
    for flags in [Flags::empty(), Flags::LOG_DIRTY_PAGES, Flags::empty()] {
        vm.set_memory_region(&Region { flags, ..plain }).unwrap();
        write(&mut vcpu, 0x1_0000, &[1]);
        assert_eq!(top(&mut vcpu), root);
    }
    assert!(walk(root, 0x10).is_some());
}
