//! What the host changes under the guest, and the guest goes on with.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

use mayfly_memslot::{Flags, Gfn, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_platform::Op;
use mayfly_platform::address::Pfn;
use mayfly_platform::tlb::{Entries, Scope, Span};
use mayfly_stage2::Permissions;
use mayfly_vm::{Change, Exit, PageChange, Protection, Reason, SlotZap};

use crate::common::changes::ChangesAny;
use crate::common::{
    Order, Outcome, Setup, Stop, Stopping, TestFormat, TestVcpu, TestVm, frames, hva, joined, read,
    region, top, translation, write,
};

/// The frame of the first page of slot 0, at first, and the ones that it comes to be in.
const OLD: u64 = 0x1_0000_0000 / PAGE_SIZE;
const SHARED: u64 = 0x7777;
const OWN: u64 = 0x8888;

/// Where slot 0's memory is in the guest.
const PLACES: [u64; 2] = [0x10, 0x8000];

/// A slot over the host memory of slot 0.
pub(crate) fn alias(index: u16, gfn: u64, pages: u64) -> Region<Hva> {
    Region { backing: hva(0, 0), ..region(index, gfn, pages) }
}

/// A VM with two slots over the same host memory, and a vCPU that has all of it mapped.
fn twice(setup: &Setup) -> (TestVm, TestVcpu) {
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    for (index, place) in (0..).zip(PLACES) {
        vm.set_memory_region(&alias(index, place, 8)).unwrap();
        for page in 0..8 {
            write(&mut vcpu, (place + page) * PAGE_SIZE, &[1]);
        }
    }
    setup.memory.take_asked();
    setup.hardware.take_invalidations();
    (vm, vcpu)
}

fn protecting(reason: Reason) -> Change {
    Change { reason, old: Protection::ReadWrite, new: Protection::ReadOnly }
}

/// A change that takes nothing away at first.
fn about_to(reason: Reason) -> Change {
    Change { reason, old: Protection::ReadOnly, new: Protection::ReadOnly }
}

fn page(old: u64, new: u64, protection: Protection) -> PageChange {
    PageChange { old: Pfn::new(old), new: Pfn::new(new), protection, same_contents: true }
}

/// Merges the first page of slot 0 with one in frame [`SHARED`].
fn merge(setup: &Setup, vm: &TestVm) {
    let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, protecting(Reason::Merge));
    setup.memory.move_page(hva(0, 0), SHARED);
    vm.change_any_pte(&bracket, hva(0, 0), &page(OLD, SHARED, Protection::ReadOnly));
}

/// Gives it frame [`OWN`], to be written.
fn unshare(setup: &Setup, vm: &TestVm) {
    let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, about_to(Reason::CopyOnWrite));
    setup.memory.move_page(hva(0, 0), OWN);
    vm.change_any_pte(&bracket, hva(0, 0), &page(SHARED, OWN, Protection::ReadWrite));
}

/// The frame at `gfn`, and whether it can be written.
pub(crate) fn found(vcpu: &mut TestVcpu, gfn: u64) -> Option<(u64, bool)> {
    let (_, leaf) = translation(vcpu, gfn)?;
    Some((leaf.pfn.get(), leaf.permissions.contains(Permissions::WRITE)))
}

fn everywhere(vcpu: &mut TestVcpu) -> [Option<(u64, bool)>; 2] {
    PLACES.map(|gfn| found(vcpu, gfn))
}

pub(crate) fn at(pfn: u64) -> Outcome {
    Outcome::Memory(Hva::new(pfn * PAGE_SIZE))
}

/// What was invalidated: pages, by their first places.
fn invalidated(setup: &Setup) -> Vec<Scope> {
    let scopes = setup.hardware.take_invalidations().into_iter().map(|(_, scope)| scope);
    let mut scopes: Vec<_> = scopes.collect();
    scopes.sort_by_key(|scope| format!("{scope:?}"));
    scopes
}

fn first_pages(count: u64) -> [Scope; 2] {
    PLACES.map(|gfn| {
        let gfns = Gfn::new(gfn)..Gfn::new(gfn + count);
        Scope::Range(Span { gfns, stride: 1, entries: Entries::Leaves })
    })
}

#[test]
fn a_merge_takes_the_right_to_write_then_the_frame_and_never_the_page() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, protecting(Reason::Merge));
    assert_eq!(invalidated(&setup), first_pages(1));
    assert_eq!(everywhere(&mut vcpu), [Some((OLD, false)); 2]);
    assert_eq!(read(&mut vcpu, 0x1_0000, 1), at(OLD), "while the two are compared");
    vm.change_any_pte(&bracket, hva(0, 0), &page(OLD, SHARED, Protection::ReadOnly));
    assert_eq!(invalidated(&setup), first_pages(1));
    assert_eq!(everywhere(&mut vcpu), [Some((SHARED, false)); 2]);
    assert_eq!(read(&mut vcpu, 0x1_0000, 1), at(SHARED), "before the end as well");
    drop(bracket);
    assert_eq!(setup.memory.take_asked(), [], "no access faulted");
    assert_eq!(found(&mut vcpu, 0x11), Some((OLD + 1, true)), "what is beside is as it was");
}

#[test]
fn a_break_takes_nothing_and_gives_a_frame_to_write() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    merge(&setup, &vm);
    invalidated(&setup);
    let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, about_to(Reason::CopyOnWrite));
    assert_eq!(invalidated(&setup), [], "it was not writable");
    assert_eq!(read(&mut vcpu, 0x1_0000, 1), at(SHARED), "while it is copied");
    vm.change_any_pte(&bracket, hva(0, 0), &page(SHARED, OWN, Protection::ReadWrite));
    assert_eq!(invalidated(&setup), first_pages(1));
    assert_eq!(write(&mut vcpu, 0x1_0000, &[1]), at(OWN), "before the end as well");
    drop(bracket);
    assert_eq!(everywhere(&mut vcpu), [Some((OWN, true)); 2]);
    assert_eq!(setup.memory.take_asked(), [], "no access faulted");
}

#[test]
fn a_host_is_told_whether_a_page_that_moves_was_mapped_in_any_place() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    for (index, place) in (0..).zip(PLACES) {
        vm.set_memory_region(&alias(index, place, 8)).unwrap();
    }
    let moved = |old, new| {
        let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, about_to(Reason::CopyOnWrite));
        setup.memory.move_page(hva(0, 0), new);
        vm.change_any_pte(&bracket, hva(0, 0), &page(old, new, Protection::ReadOnly))
    };
    assert!(!moved(OLD, SHARED));
    read(&mut vcpu, (PLACES[0] + 1) * PAGE_SIZE, 1);
    assert!(!moved(SHARED, OWN), "another page is mapped");
    read(&mut vcpu, PLACES[1] * PAGE_SIZE, 1);
    assert!(moved(OWN, SHARED), "it was writable, and is taken away");
    read(&mut vcpu, PLACES[1] * PAGE_SIZE, 1);
    assert!(moved(OWN, SHARED), "it is in the new frame already");
    let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, protecting(Reason::Protect));
    let kept = page(SHARED, SHARED, Protection::ReadOnly);
    assert!(!vm.change_any_pte(&bracket, hva(0, 0), &kept), "it does not move");
}

#[test]
fn pages_of_a_run_that_change_are_changed_and_invalidated_together() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    // A slot that begins in the middle of the run.
    let half = Region { backing: hva(0, 4 * PAGE_SIZE), ..region(2, 0x9000, 4) };
    vm.set_memory_region(&half).unwrap();
    write(&mut vcpu, 0x900_1000, &[1]);
    let changes = [0, 1, 2, 3, 4, 5, 6, 7].map(|number| {
        (number % 2 == 1).then(|| page(OLD + number, OWN + number, Protection::ReadWrite))
    });
    let bracket = vm.invalidate_start(hva(0, 0), 8 * PAGE_SIZE, protecting(Reason::Merge));
    setup.hardware.take_invalidations();
    vm.change_any_ptes(&bracket, hva(0, 0), &changes);
    assert_eq!(setup.hardware.take_invalidations().len(), 3, "one for each place");
    drop(bracket);
    for place in PLACES {
        for number in 0..8 {
            let (pfn, writable) =
                if number % 2 == 1 { (OWN + number, true) } else { (OLD + number, false) };
            assert_eq!(found(&mut vcpu, place + number), Some((pfn, writable)));
        }
    }
    assert_eq!(found(&mut vcpu, 0x9001), Some((OWN + 5, true)));
}

#[test]
fn nobody_writes_the_new_frame_while_anybody_may_read_the_old() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    merge(&setup, &vm);
    let root = top(&mut vcpu);
    let writable = Arc::new(Mutex::new(Vec::new()));
    let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, about_to(Reason::CopyOnWrite));
    let look = {
        let writable = Arc::clone(&writable);
        move || {
            let leaves = PLACES.map(|gfn| frames::walk::<TestFormat>(root, Gfn::new(gfn)));
            let is_writable = leaves.map(|found| {
                found.is_some_and(|(_, leaf)| leaf.permissions.contains(Permissions::WRITE))
            });
            writable.lock().unwrap().push(is_writable);
        }
    };
    let (hardware, again) = (setup.hardware.clone(), look.clone());
    setup.hardware.at_next_invalidation(move || {
        look();
        hardware.at_next_invalidation(again.clone());
    });
    vm.change_any_pte(&bracket, hva(0, 0), &page(SHARED, OWN, Protection::ReadWrite));
    drop(bracket);
    assert_eq!(*writable.lock().unwrap(), [[false; 2]; 2], "one invalidation for each place");
    assert_eq!(everywhere(&mut vcpu), [Some((OWN, true)); 2]);
}

/// Neither by one of another page, or of another VM, nor one that takes only the right to write, which no frame needs.
#[test]
fn a_page_is_changed_inside_an_invalidation_of_it() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    let (other, _other_vcpu) = twice(&setup);
    let before = everywhere(&mut vcpu);
    for change in [
        page(OLD, OLD, Protection::None),
        page(OLD, OLD, Protection::ReadOnly),
        page(OLD, SHARED, Protection::ReadOnly),
        page(OLD, OLD, Protection::ReadWrite),
    ] {
        let nothing = about_to(Reason::Protect);
        let beside = vm.invalidate_start(hva(0, PAGE_SIZE), 7 * PAGE_SIZE, nothing);
        let others = other.invalidate_start(hva(0, 0), PAGE_SIZE, nothing);
        for by in [&beside, &others] {
            let made = || vm.change_any_pte(by, hva(0, 0), &change);
            let caught = catch_unwind(AssertUnwindSafe(made)).unwrap_err();
            let message = *caught.downcast::<&str>().unwrap();
            assert_eq!(message, "the change is not of what was announced");
        }
    }
    assert_eq!(everywhere(&mut vcpu), before);
    let own = vm.invalidate_start(hva(0, 0), PAGE_SIZE, about_to(Reason::Protect));
    vm.change_any_pte(&own, hva(0, 0), &page(OLD, OLD, Protection::None));
    drop(own);
    assert_eq!(everywhere(&mut vcpu), [None; 2]);
}

#[test]
fn a_page_that_is_its_owners_alone_again_needs_no_invalidation() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    merge(&setup, &vm);
    invalidated(&setup);
    let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, about_to(Reason::CopyOnWrite));
    vm.change_any_pte(&bracket, hva(0, 0), &page(SHARED, SHARED, Protection::ReadWrite));
    drop(bracket);
    assert_eq!(invalidated(&setup), []);
    assert_eq!(write(&mut vcpu, 0x1_0000, &[1]), at(SHARED));
    assert_eq!(setup.memory.take_asked(), []);
}

#[test]
fn the_host_breaks_a_page_that_it_is_asked_for_and_the_write_goes_on() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    merge(&setup, &vm);
    let (inside, memory) = (vm.clone(), setup.memory.clone());
    setup.memory.when_asked(move || {
        let change = about_to(Reason::CopyOnWrite);
        let bracket = inside.invalidate_start(hva(0, 0), PAGE_SIZE, change);
        memory.move_page(hva(0, 0), OWN);
        inside.change_any_pte(&bracket, hva(0, 0), &page(SHARED, OWN, Protection::ReadWrite));
    });
    assert_eq!(write(&mut vcpu, 0x1_0000, &[1]), at(OWN));
    assert_eq!(everywhere(&mut vcpu), [Some((OWN, true)); 2]);
}

#[test]
fn pages_of_a_range_are_write_protected_in_place_and_invalidated_together() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    drop(vm.invalidate_start(hva(0, 0), 8 * PAGE_SIZE, protecting(Reason::CopyOnWrite)));
    assert_eq!(invalidated(&setup), first_pages(8));
    for gfn in PLACES {
        for page in 0..8 {
            assert_eq!(found(&mut vcpu, gfn + page), Some((OLD + page, false)));
        }
    }
    assert_eq!(setup.hardware.charged(Op::EntriesWritten(0)), 16 + 16, "mapped, and protected");
}

#[test]
fn what_is_not_reduced_is_not_looked_for_and_answers_from_before_are_refused_all_the_same() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 0x10, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let (stop, stopped) = Stop::new(&Order::default());
    setup.memory.when_asked(move || stop.here());
    let running = spawn(move || (write(&mut vcpu, 0x1_0000, &[1]), vcpu));
    stopped.wait();
    let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, about_to(Reason::CopyOnWrite));
    setup.memory.move_page(hva(0, 0), OWN);
    vm.change_any_pte(&bracket, hva(0, 0), &page(OLD, OWN, Protection::ReadWrite));
    drop(bracket);
    stopped.go_on();
    let (outcome, mut vcpu) = joined(running);
    assert_eq!(outcome, at(OWN));
    assert_eq!(found(&mut vcpu, 0x10), Some((OWN, true)));
    assert_eq!(setup.hardware.charged(Op::FaultRefused), 1);
}

#[test]
fn what_was_not_mapped_is_not_mapped_by_a_change() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    drop(vm.invalidate_start(hva(0, 0), PAGE_SIZE, Reason::Migrate));
    invalidated(&setup);
    merge(&setup, &vm);
    unshare(&setup, &vm);
    assert_eq!(everywhere(&mut vcpu), [None; 2]);
    assert_eq!(invalidated(&setup), []);
}

#[test]
fn a_page_of_other_contents_or_without_rights_is_zapped_and_its_tables_are_kept() {
    let other = PageChange { same_contents: false, ..page(OLD, OWN, Protection::ReadWrite) };
    for change in [other, page(OLD, OWN, Protection::None)] {
        let setup = Setup::new(SlotZap::Range);
        let (vm, mut vcpu) = twice(&setup);
        let frames = setup.hardware.live();
        let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, protecting(Reason::Migrate));
        vm.change_any_pte(&bracket, hva(0, 0), &change);
        assert_eq!(everywhere(&mut vcpu), [None; 2], "{change:?}");
        drop(bracket);
        assert_eq!(setup.hardware.live(), frames);
    }
}

#[test]
fn rights_go_in_place_where_the_frame_stays() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    let change = Change { new: Protection::ReadWrite, ..protecting(Reason::Protect) };
    let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, change);
    assert_eq!(everywhere(&mut vcpu), [Some((OLD, true)); 2], "nothing is taken yet");
    vm.change_any_pte(&bracket, hva(0, 0), &page(OLD, OLD, Protection::ReadOnly));
    assert_eq!(everywhere(&mut vcpu), [Some((OLD, false)); 2]);
    assert_eq!(invalidated(&setup), first_pages(1));
    drop(bracket);
}

#[test]
fn what_becomes_writable_stays_read_only_where_the_slot_is_or_logs_writes() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let flags = [Flags::empty(), Flags::READONLY, Flags::LOG_DIRTY_PAGES];
    let gfns = [0x10, 0x1010, 0x2010];
    for ((index, flags), gfn) in (0..).zip(flags).zip(gfns) {
        vm.set_memory_region(&Region { flags, ..alias(index, gfn, 4) }).unwrap();
        read(&mut vcpu, gfn * PAGE_SIZE, 1);
    }
    let mut marks = [0; 1];
    vm.harvest_dirty(SlotId::main(2), 0, &mut marks).unwrap();
    merge(&setup, &vm);
    unshare(&setup, &vm);
    let expected = [true, false, false].map(|writable| Some((OWN, writable)));
    assert_eq!(gfns.map(|gfn| found(&mut vcpu, gfn)), expected);
    assert_eq!(write(&mut vcpu, 0x201_0000, &[1]), at(OWN));
    assert_eq!(vm.harvest_dirty(SlotId::main(2), 0, &mut marks), Ok(1), "the write was noticed");
}

#[test]
fn a_page_of_a_block_is_changed_by_itself() {
    let (setup, vm, mut vcpu) = Setup::in_blocks(0x200);
    write(&mut vcpu, 0x20_0000, &[1]);
    merge(&setup, &vm);
    assert_eq!(found(&mut vcpu, 0x200), Some((SHARED, false)));
    setup.memory.take_asked();
    for page in [1, 0x1ff] {
        assert_eq!(write(&mut vcpu, (0x200 + page) * PAGE_SIZE, &[1]), at(OLD + page));
    }
    assert_eq!(setup.memory.take_asked(), [], "what is beside is writable as before");
}

#[test]
fn without_memory_for_a_table_a_change_is_made_and_costs_a_fault() {
    let (setup, vm, mut vcpu) = Setup::in_blocks(0x200);
    write(&mut vcpu, 0x20_0000, &[1]);
    setup.hardware.refuse_frames_after(0);
    merge(&setup, &vm);
    assert!(setup.hardware.refuse_no_frames() > 0);
    assert_eq!(translation(&mut vcpu, 0x200), None);
    assert_eq!(read(&mut vcpu, 0x20_0000, 1), at(SHARED));
    assert_eq!(read(&mut vcpu, 0x20_1000, 1), at(OLD + 1));
}

#[test]
fn a_vcpu_that_meets_a_frozen_entry_waits_for_it_and_asks_nobody() {
    let (setup, vm, mut vcpu) = Setup::in_blocks(0x200);
    write(&mut vcpu, 0x20_0000, &[1]);
    setup.memory.take_asked();
    // Arm splits the block by way of a frozen entry; here the vCPU comes to it.
    let (hardware, running) = (setup.hardware.clone(), Arc::new(Mutex::new(None)));
    let mut idle = Some(vcpu);
    let run = Arc::clone(&running);
    setup.hardware.at_next_invalidation(move || {
        let (mut vcpu, (done, is_done)) = (idle.take().unwrap(), channel());
        *run.lock().unwrap() = Some(spawn(move || {
            let outcome = read(&mut vcpu, 0x20_0000, 1);
            done.send(()).unwrap();
            (outcome, vcpu)
        }));
        while hardware.charged(Op::FrozenWait) == 0 {
            assert_eq!(is_done.try_recv(), Err(TryRecvError::Empty), "it did not wait");
            std::thread::yield_now();
        }
        // Kept until the vCPU is through.
        std::mem::forget(is_done);
    });
    let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, protecting(Reason::Merge));
    let (outcome, _vcpu) = joined(running.lock().unwrap().take().unwrap());
    assert_eq!(outcome, at(OLD), "before the end");
    assert_eq!(setup.memory.take_asked(), []);
    assert_eq!(setup.hardware.charged(Op::FaultRefused), 0);
    drop(bracket);
}

#[test]
fn tables_are_kept_or_given_back_by_reason_and_both_are_counted() {
    for (reason, counts) in [(Reason::Migrate, [1, 0]), (Reason::Unmap, [0, 1])] {
        let setup = Setup::new(SlotZap::Range);
        let vm = setup.vm();
        let mut vcpu = vm.create_vcpu(0).unwrap();
        vm.set_memory_region(&region(0, 0x200, 0x200)).unwrap();
        write(&mut vcpu, 0x20_0000, &[1]);
        drop(vm.invalidate_start(hva(0, 0), 0x20_0000, reason));
        let counted = [Op::TablesKept(0), Op::TablesFreed(0)].map(|op| setup.hardware.charged(op));
        assert_eq!(counted, counts, "{reason:?}");
    }
}

#[test]
fn when_the_address_space_goes_guests_are_out_for_good_and_no_tlb_is_asked() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, vcpu) = twice(&setup);
    drop(vcpu);
    let mut vcpu = vm.create_vcpu(1).unwrap();
    let order = Order::default();
    let (stop, stopped) = Stop::new(&order);
    let (releasing, noting) = (vm.clone(), order.clone());
    let running = spawn(move || {
        vcpu.run(&mut Stopping { stop, access: None });
        vcpu
    });
    stopped.wait();
    let releasing = spawn(move || {
        releasing.release();
        noting.note("the address space is gone");
    });
    stopped.go_on();
    let mut vcpu = joined(running);
    joined(releasing);
    assert_eq!(
        read(&mut vcpu, 0x1_0000, 1),
        Outcome::Exit(Exit::Kicked),
        "it does not enter again"
    );
    assert_eq!(order.take(), ["the vCPU went on", "the address space is gone"]);
    assert_eq!(setup.hardware.take_invalidations(), []);
    assert!(setup.reclaim());
    vm.wait_reclaimed();
    assert_eq!(setup.hardware.live(), 0);
}

#[test]
fn a_merge_may_leave_its_invalidation_owed_and_a_break_pays_for_both() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    let merged = page(OLD, SHARED, Protection::ReadOnly);
    let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, protecting(Reason::Merge));
    setup.memory.move_page(hva(0, 0), SHARED);
    assert_eq!(invalidated(&setup), first_pages(1), "the right to write");
    let owed = vm.change_any_ptes_owing(&bracket, hva(0, 0), &[Some(merged)]);
    drop(bracket);
    assert_eq!((invalidated(&setup), owed.is_paid()), (vec![], false));
    assert_eq!(everywhere(&mut vcpu), [Some((SHARED, false)); 2]);
    unshare(&setup, &vm);
    assert_eq!(invalidated(&setup), first_pages(1), "both frames");
    assert!(owed.is_paid());
    drop(owed);
    assert_eq!(everywhere(&mut vcpu), [Some((OWN, true)); 2]);
    assert_eq!((invalidated(&setup), setup.memory.take_asked()), (vec![], vec![]));
}

#[test]
fn what_is_owed_at_one_place_is_paid_before_a_write_at_another() {
    let setup = Setup::new(SlotZap::Range);
    let (vm, mut vcpu) = twice(&setup);
    let merged = page(OLD, SHARED, Protection::ReadOnly);
    let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, protecting(Reason::Merge));
    setup.memory.move_page(hva(0, 0), SHARED);
    invalidated(&setup);
    let owed = vm.change_any_ptes_owing(&bracket, hva(0, 0), &[Some(merged)]);
    drop(bracket);
    // It is the last that shares the frame: the host lets it be written as it is.
    assert_eq!(write(&mut vcpu, PLACES[1] * PAGE_SIZE, &[1]), at(SHARED));
    assert_eq!((invalidated(&setup), owed.is_paid()), (first_pages(1).to_vec(), true));
    drop(owed);
}
