//! Guests that go past the caches: what is maintained for them, when, and what is not.

mod races;
mod turned_off;

use std::sync::mpsc::channel;

use mayfly_memslot::{Flags, Gfn, PAGE_SIZE, Region, SlotId};
use mayfly_platform::address::Pfn;
use mayfly_stage2::{ArmFwb, Format, Level, Permissions};
use mayfly_vm::{
    CacheCapabilities, CacheOp, CacheTraps, Caches, Change, Config, Exit, InstructionCaches,
    PageChange, Protection, Reason, SlotZap, Vm,
};

use crate::common::changes::ChangesAny;
use crate::common::{
    Kept, Order, Outcome, Setup, TestFormat, TestVcpu, TestVm, Toggle, deleted, frames, hva,
    joined, read, region, top, translation, write,
};

fn toggle<F: Format>(vcpu: &mut TestVcpu<F>, op: CacheOp) -> Exit {
    vcpu.run(&mut Toggle::new(Some(op)))
}

fn traps<F: Format>(vcpu: &mut TestVcpu<F>) -> CacheTraps {
    let mut guest = Toggle::new(None);
    assert_eq!(vcpu.run(&mut guest), Exit::Halt);
    guest.traps
}

/// A vCPU's guest has done `op`, and the VM has seen to it.
pub(crate) fn turn<F: Format>(vcpu: &mut TestVcpu<F>, op: CacheOp) {
    assert_eq!(toggle(vcpu, op), Exit::Halt);
}

/// As [`TestFormat`], with write-back forced.
type ForcedFormat = ArmFwb<40>;

/// Processors that leave data to the core.
pub(crate) const DATA: CacheCapabilities =
    CacheCapabilities { instructions: InstructionCaches::Coherent, fgt: false };

fn create(caches: Caches, capabilities: CacheCapabilities) -> (Setup, TestVm) {
    create_with(SlotZap::Range, caches, capabilities)
}

fn create_with(
    slot_zap: SlotZap,
    caches: Caches,
    capabilities: CacheCapabilities,
) -> (Setup, TestVm) {
    create_in(slot_zap, caches, capabilities)
}

fn create_in<F: Format>(
    slot_zap: SlotZap,
    caches: Caches,
    capabilities: CacheCapabilities,
) -> (Setup<F>, TestVm<F>) {
    let setup = Setup::in_format(slot_zap, 8);
    setup.caches.set_capabilities(capabilities);
    let vm = Vm::create(Config { caches, ..setup.config() }).unwrap();
    (setup, vm)
}

/// A VM that tracks, with two vCPUs and a slot of 8 pages at guest frame 0x10.
fn tracked() -> (Setup, TestVm, [TestVcpu; 2]) {
    let (setup, vm) = create(Caches::Tracked, DATA);
    let vcpus = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
    vm.set_memory_region(&region(0, 0x10, 8)).unwrap();
    (setup, vm, vcpus)
}

/// The frame behind page `page` of slot 0.
fn pfn(page: u64) -> Pfn {
    Pfn::new(hva(0, page * PAGE_SIZE).get() / PAGE_SIZE)
}

/// A page of the slot of [`tracked`], as the guest sees it.
fn gpa(page: u64) -> u64 {
    (0x10 + page) * PAGE_SIZE
}

fn writes<F: Format>(vcpu: &mut TestVcpu<F>, pages: &[u64]) {
    for &page in pages {
        write(vcpu, gpa(page), &[1]);
    }
}

#[test]
fn a_coherent_vm_traps_nothing_maintains_nothing_and_tells_its_user() {
    let (setup, vm) = create(Caches::Coherent, DATA);
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&region(0, 0x10, 8)).unwrap();
    for op in [CacheOp::On, CacheOp::SetWay, CacheOp::Off] {
        writes(&mut vcpu, &[0, 1]);
        assert_eq!(toggle(&mut vcpu, op), Exit::Caches(op));
        assert_eq!(traps(&mut vcpu), CacheTraps::None);
    }
    assert_eq!(setup.caches.take(), []);
}

#[test]
fn a_frame_is_readied_before_its_entry_can_be_found_and_by_what_processors_do_not_do() {
    fn check<F: Format>(mode: Caches, instructions: InstructionCaches) {
        let capabilities = CacheCapabilities { instructions, fgt: false };
        let (setup, vm) = create_in::<F>(SlotZap::Range, mode, capabilities);
        let mut vcpu = vm.create_vcpu(0).unwrap();
        vm.set_memory_region(&region(0, 0x10, 8)).unwrap();
        let top = top(&mut vcpu);
        setup.caches.at_next(move || {
            assert_eq!(frames::walk::<F>(top, Gfn::new(0x10)), None);
        });
        read(&mut vcpu, gpa(0), 1);
        assert!(frames::walk::<F>(top, Gfn::new(0x10)).is_some());
        let cleaned = (!F::COHERENT).then_some(Kept::Cleaned(pfn(0), 1));
        let fetched = match instructions {
            InstructionCaches::Coherent => None,
            InstructionCaches::Physical => Some(Kept::Fetched(pfn(0), 1)),
            InstructionCaches::Virtual => Some(Kept::Emptied),
        };
        let expected: Vec<_> = cleaned.into_iter().chain(fetched).collect();
        assert_eq!(setup.caches.take(), expected, "{mode:?}");
        write(&mut vcpu, gpa(0), &[1]);
        assert_eq!(setup.caches.take(), [], "the frame was there already");
    }
    for mode in [Caches::Reported, Caches::Tracked] {
        use InstructionCaches::{Coherent, Physical, Virtual};
        for instructions in [Coherent, Physical, Virtual] {
            check::<TestFormat>(mode, instructions);
            check::<ForcedFormat>(mode, instructions);
        }
    }
}

#[test]
fn turning_caches_on_flushes_exactly_the_pages_that_were_written() {
    let (setup, _vm, [mut one, mut two]) = tracked();
    writes(&mut one, &[0, 1, 4]);
    read(&mut one, gpa(2), 1);
    writes(&mut two, &[1, 6]);
    setup.caches.take();
    turn(&mut one, CacheOp::On);
    let flushed = [(0, 2), (4, 1), (6, 1)].map(|(page, count)| Kept::Flushed(pfn(page), count));
    assert_eq!(setup.caches.take(), flushed);
    turn(&mut two, CacheOp::On);
    assert_eq!(setup.caches.take(), [], "nothing was written since");
    assert_eq!(top(&mut one), top(&mut two));
    writes(&mut one, &[0, 1, 2, 3]);
    turn(&mut two, CacheOp::On);
    let cleaned = setup.caches.take_cleaned();
    assert_eq!(cleaned, [(pfn(3), 1)], "mapped now; the others were, for those who were off");
}

#[test]
fn who_harvests_a_log_or_switches_one_on_reads_what_was_written_past_the_caches() {
    let (setup, vm, [mut one, mut two]) = tracked();
    writes(&mut one, &[1]);
    setup.caches.take();
    let logged = Region { flags: Flags::LOG_DIRTY_PAGES, ..region(0, 0x10, 8) };
    vm.set_memory_region(&logged).unwrap();
    assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(1), 1)], "no mark will tell of it");
    setup.hardware.take_invalidations();
    writes(&mut one, &[0, 1, 3]);
    writes(&mut two, &[3, 7]);
    let mut marks = [0];
    for (expected, flushed) in [(0b1000_1011, vec![(0, 2), (3, 1), (7, 1)]), (0, vec![])] {
        setup.caches.take();
        vm.harvest_dirty(SlotId::main(0), 0, &mut marks).unwrap();
        assert_eq!(marks, [expected]);
        let runs = flushed.iter().map(|(page, count)| Kept::Flushed(pfn(*page), *count));
        assert_eq!(setup.caches.take(), runs.collect::<Vec<_>>());
        let expected_invalidations = usize::from(!flushed.is_empty());
        assert_eq!(
            setup.hardware.take_invalidations().len(),
            expected_invalidations,
            "one for all runs"
        );
    }
    writes(&mut one, &[3]);
    vm.harvest_dirty(SlotId::main(0), 0, &mut marks).unwrap();
    assert_eq!((setup.caches.take(), marks), (vec![Kept::Flushed(pfn(3), 1)], [0b1000]));
}

#[test]
fn a_page_is_armed_again_for_those_who_are_still_off() {
    let (setup, _vm, [mut one, mut two]) = tracked();
    writes(&mut one, &[0]);
    writes(&mut two, &[5]);
    turn(&mut one, CacheOp::On);
    setup.caches.take();
    for _ in 0..2 {
        writes(&mut two, &[5, 0]);
    }
    turn(&mut two, CacheOp::On);
    assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(0), 1), Kept::Flushed(pfn(5), 1)]);
}

#[test]
fn what_was_written_is_flushed_when_no_tlb_has_the_right_to_write_it_and_not_before() {
    let (setup, _vm, [mut one, mut two]) = tracked();
    writes(&mut one, &[3]);
    let (order, root) = (Order::default(), top(&mut two));
    let is_writable = move || {
        let (_, leaf) = frames::walk::<TestFormat>(root, Gfn::new(0x13)).unwrap();
        leaf.permissions.contains(Permissions::WRITE)
    };
    let noting = order.clone();
    setup.hardware.at_next_invalidation(move || {
        assert!(!is_writable());
        noting.note("forgotten");
    });
    let noting = order.clone();
    setup.caches.at_next(move || noting.note("flushed"));
    turn(&mut one, CacheOp::On);
    assert_eq!(order.take(), ["forgotten", "flushed"]);
    assert_eq!(setup.hardware.take_invalidations().len(), 1);
    write(&mut two, gpa(3), &[1]);
    assert!(is_writable());
}

#[test]
fn of_a_block_only_the_page_is_written_and_it_is_mapped_with_what_is_around_it() {
    let (setup, vm) = create(Caches::Tracked, DATA);
    let mut vcpu = vm.create_vcpu(0).unwrap();
    setup.memory.set_level(Level::MIB2);
    vm.set_memory_region(&region(0, 0x200, 0x200)).unwrap();
    write(&mut vcpu, 0x205 * PAGE_SIZE, &[1]);
    assert_eq!(setup.caches.take(), [Kept::Cleaned(pfn(0), 0x200)]);
    for page in 0..0x200 {
        let (level, leaf) = translation(&mut vcpu, 0x200 + page).unwrap();
        assert_eq!((level, leaf.pfn), (Level::PAGE, pfn(page)));
        let is_written = page == 5;
        assert_eq!(leaf.written, is_written);
        assert_eq!(leaf.permissions.contains(Permissions::WRITE), is_written);
    }
    read(&mut vcpu, 0x200 * PAGE_SIZE, 1);
    turn(&mut vcpu, CacheOp::On);
    assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(5), 1)]);
    write(&mut vcpu, 0x200 * PAGE_SIZE, &[1]);
    assert_eq!(translation(&mut vcpu, 0x200).unwrap().0, Level::MIB2);
    assert_eq!(setup.caches.take(), [], "all of it was cleaned");
}

#[test]
fn a_block_that_is_read_takes_the_place_of_no_page_that_was_written() {
    let (setup, vm) = create(Caches::Tracked, DATA);
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&region(0, 0x200, 0x200)).unwrap();
    write(&mut vcpu, 0x205 * PAGE_SIZE, &[1]);
    setup.memory.set_level(Level::MIB2);
    setup.caches.take();
    read(&mut vcpu, 0x206 * PAGE_SIZE, 1);
    assert_eq!(setup.caches.take(), [Kept::Cleaned(pfn(6), 1)]);
    turn(&mut vcpu, CacheOp::On);
    assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(5), 1)]);
}

#[test]
fn what_was_written_is_flushed_before_the_host_reads_it_whatever_for() {
    let reasons = [
        Reason::Unmap,
        Reason::Exit,
        Reason::Migrate,
        Reason::Reclaim { coherent: true },
        Reason::Protect,
        Reason::Merge,
        Reason::CopyOnWrite,
    ];
    for reason in reasons {
        let (setup, vm, [mut vcpu, _other]) = tracked();
        writes(&mut vcpu, &[2, 3, 4]);
        read(&mut vcpu, gpa(1), 1);
        setup.caches.take();
        let invalidation = vm.invalidate_start(hva(0, 0), 4 * PAGE_SIZE, reason);
        let expected = [Kept::Flushed(pfn(2), 2)];
        let flushed = setup.caches.take();
        assert_eq!(flushed, &expected[..usize::from(reason != Reason::Exit)], "{reason:?}");
        drop(invalidation);
        turn(&mut vcpu, CacheOp::On);
        assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(4), 1)]);
    }
}

#[test]
fn what_was_written_is_flushed_when_a_page_loses_rights_in_a_change_that_took_none() {
    for protection in [Protection::None, Protection::ReadOnly] {
        let (setup, vm, [mut vcpu, _other]) = tracked();
        writes(&mut vcpu, &[2, 3, 4]);
        setup.caches.take();
        let all = Protection::ReadWrite;
        let change = Change { reason: Reason::Protect, old: all, new: all };
        let invalidation = vm.invalidate_start(hva(0, 0), 8 * PAGE_SIZE, change);
        assert_eq!(setup.caches.take(), []);
        let same = PageChange { old: pfn(3), new: pfn(3), protection, same_contents: true };
        vm.change_any_pte(&invalidation, hva(0, 3 * PAGE_SIZE), &same);
        assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(3), 1)], "{protection:?}");
        drop(invalidation);
        turn(&mut vcpu, CacheOp::On);
        assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(2), 1), Kept::Flushed(pfn(4), 1)]);
    }
}

#[test]
fn what_was_written_is_flushed_before_its_slot_is_gone() {
    for slot_zap in [SlotZap::Range, SlotZap::AllRoots] {
        let (setup, vm) = create_with(slot_zap, Caches::Tracked, DATA);
        let mut vcpu = vm.create_vcpu(0).unwrap();
        vm.set_memory_region(&region(0, 0x10, 8)).unwrap();
        writes(&mut vcpu, &[2, 3]);
        setup.caches.take();
        vm.set_memory_region(&deleted(region(0, 0, 0))).unwrap();
        assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(2), 2)], "{slot_zap:?}");
        turn(&mut vcpu, CacheOp::On);
        assert_eq!(setup.caches.take(), []);
    }
}

#[test]
fn what_is_written_while_a_slot_moves_by_less_than_its_length_is_flushed() {
    for slot_zap in [SlotZap::Range, SlotZap::AllRoots] {
        let (setup, vm) = create_with(slot_zap, Caches::Tracked, DATA);
        let [mut one, two] = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
        vm.set_memory_region(&region(0, 0x10, 8)).unwrap();
        writes(&mut one, &[4]);
        setup.caches.take();
        let (done, meanwhile) = channel();
        let (mut writer, hardware) = (Some(two), setup.hardware.clone());
        setup.caches.at_next(move || {
            let writing = hardware.try_write(writer.take().unwrap(), gpa(2));
            done.send(writing).unwrap();
        });
        vm.set_memory_region(&region(0, 0x11, 8)).unwrap();
        let outcome = joined(meanwhile.recv().unwrap());
        assert_eq!(outcome, Outcome::Memory(hva(0, PAGE_SIZE)), "its page 1 is there now");
        setup.caches.take();
        turn(&mut one, CacheOp::On);
        assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(1), 1)], "{slot_zap:?}");
    }
}

#[test]
fn a_frame_in_the_place_of_another_is_cleaned_and_is_written_by_a_fault_alone() {
    let (setup, vm, [mut vcpu, _other]) = tracked();
    read(&mut vcpu, gpa(1), 1);
    drop(vm.invalidate_start(hva(0, PAGE_SIZE), PAGE_SIZE, Reason::Migrate));
    setup.memory.move_page(hva(0, PAGE_SIZE), 0x9999);
    setup.caches.take();
    write(&mut vcpu, gpa(1), &[1]);
    assert_eq!(setup.caches.take(), [Kept::Cleaned(Pfn::new(0x9999), 1)]);
    turn(&mut vcpu, CacheOp::On);
    assert_eq!(setup.caches.take(), [Kept::Flushed(Pfn::new(0x9999), 1)]);
}

#[test]
fn where_it_is_reported_all_that_is_mapped_can_be_flushed() {
    let (setup, vm) = create(Caches::Reported, DATA);
    let mut vcpus = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
    vm.set_memory_region(&region(0, 0x10, 8)).unwrap();
    let [one, two] = &mut vcpus;
    assert_eq!(top(one), top(two));
    writes(one, &[0, 1]);
    read(two, gpa(5), 1);
    setup.caches.take();
    assert_eq!(toggle(one, CacheOp::On), Exit::Caches(CacheOp::On));
    assert_eq!(setup.caches.take(), []);
    vm.clean_invalidate_mapped();
    assert_eq!(setup.caches.take(), [Kept::Flushed(pfn(0), 2), Kept::Flushed(pfn(5), 1)]);
    assert_eq!(write(one, gpa(0), &[1]), Outcome::Memory(hva(0, 0)), "and is mapped still");
    assert_eq!(setup.caches.take(), []);
}
