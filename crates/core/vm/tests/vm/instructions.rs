//! What is dropped from instruction caches, and when.

use mayfly_memslot::PAGE_SIZE;
use mayfly_platform::Op;
use mayfly_platform::address::Pfn;
use mayfly_stage2::{Level, Permissions};
use mayfly_vm::{
    CacheCapabilities, CacheOp, Caches, Change, Config, InstructionCaches, PageChange, Protection,
    Reason, Resolved, SlotZap, Vm,
};

use crate::caches::turn;
use crate::common::changes::ChangesAny;
use crate::common::{Kept, Outcome, Setup, TestVcpu, TestVm, hva, read, region, write};
use crate::kinds::fetch;

pub(crate) const KINDS: [InstructionCaches; 3] =
    [InstructionCaches::Coherent, InstructionCaches::Physical, InstructionCaches::Virtual];

pub(crate) const RW: Permissions = Permissions::READ.union(Permissions::WRITE);

/// Pages of a block.
const BLOCK: u64 = Level::MIB2.pages();

/// The frame behind page `page` of slot 0.
fn pfn(page: u64) -> Pfn {
    Pfn::new(hva(0, page * PAGE_SIZE).get() / PAGE_SIZE)
}

/// A VM that tracks, with two vCPUs whose caches are off, and a slot of a block at guest frame 0.
pub(crate) fn tracked(instructions: InstructionCaches) -> (Setup, TestVm, [TestVcpu; 2]) {
    let setup = Setup::new(SlotZap::Range);
    setup.caches.set_capabilities(CacheCapabilities { instructions, fgt: false });
    let vm = Vm::create(Config { caches: Caches::Tracked, ..setup.config() }).unwrap();
    let vcpus = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
    vm.set_memory_region(&region(0, 0, BLOCK)).unwrap();
    (setup, vm, vcpus)
}

/// The host has pages executable where they are executed.
fn execute_when_asked(setup: &Setup) {
    setup.memory.set_kind(|_, wanted, usual| {
        let allowed = if wanted == Permissions::EXECUTE { usual.allowed } else { RW };
        Resolved { allowed, ..usual }
    });
}

/// What caches of that kind are told for `count` frames from `first` on.
fn dropped(kind: InstructionCaches, first: Pfn, count: u64) -> Vec<Kept> {
    match kind {
        InstructionCaches::Coherent => vec![],
        InstructionCaches::Physical => vec![Kept::Fetched(first, count)],
        InstructionCaches::Virtual => vec![Kept::Emptied],
    }
}

fn executes(vcpu: &mut TestVcpu, page: u64) {
    assert_eq!(fetch(vcpu, page), Outcome::Memory(hva(0, page * PAGE_SIZE)));
}

#[test]
fn a_page_that_was_there_has_its_lines_dropped_when_it_comes_to_be_executable_and_once() {
    for kind in KINDS {
        let (setup, _vm, [mut vcpu, mut other]) = tracked(kind);
        execute_when_asked(&setup);
        read(&mut vcpu, 0, 1);
        write(&mut vcpu, PAGE_SIZE, &[1]);
        assert_eq!(setup.caches.take_cleaned(), [(pfn(0), 1), (pfn(1), 1)], "{kind:?}");
        for page in [0, 1] {
            executes(&mut vcpu, page);
            assert_eq!(setup.caches.take(), dropped(kind, pfn(page), 1));
        }
        // On the other root as well it is known.
        turn(&mut other, CacheOp::On);
        setup.caches.take();
        executes(&mut vcpu, 0);
        executes(&mut other, 0);
        assert_eq!(setup.caches.take(), [], "{kind:?}");
        let [pages, times] = [Op::InstructionsForgotten(1), Op::AllInstructionsForgotten]
            .map(|op| setup.hardware.charged(op));
        let expected = match kind {
            InstructionCaches::Coherent => (0, 0),
            InstructionCaches::Physical => (2, 0),
            InstructionCaches::Virtual => (0, 2),
        };
        assert_eq!((pages, times), expected);
    }
}

#[test]
fn a_block_has_all_its_lines_dropped_or_everything_once_after_it_is_cleaned() {
    for kind in KINDS {
        let (setup, _vm, [mut vcpu, _]) = tracked(kind);
        setup.memory.set_level(Level::MIB2);
        executes(&mut vcpu, 5);
        let mut expected = vec![Kept::Cleaned(pfn(0), BLOCK)];
        expected.extend(dropped(kind, pfn(0), BLOCK));
        assert_eq!(setup.caches.take(), expected);
    }
}

#[test]
fn a_page_that_is_replaced_in_place_has_the_lines_of_its_frame_dropped_if_it_is_executable() {
    for kind in KINDS {
        for is_executable in [true, false] {
            let (setup, vm, [mut vcpu, _]) = tracked(kind);
            execute_when_asked(&setup);
            if is_executable {
                executes(&mut vcpu, 0);
            } else {
                read(&mut vcpu, 0, 1);
            }
            setup.caches.take();
            let new = Pfn::new(0x7777);
            let protection = Protection::ReadOnly;
            let merge =
                Change { reason: Reason::Merge, old: Protection::ReadWrite, new: protection };
            let bracket = vm.invalidate_start(hva(0, 0), PAGE_SIZE, merge);
            setup.memory.move_page(hva(0, 0), new.get());
            let change = PageChange { old: pfn(0), new, protection, same_contents: true };
            vm.change_any_pte(&bracket, hva(0, 0), &change);
            drop(bracket);
            let mut expected = vec![Kept::Cleaned(new, 1)];
            if is_executable {
                expected.extend(dropped(kind, new, 1));
            }
            assert_eq!(setup.caches.take(), expected, "{kind:?}");
        }
    }
}
