//! Frames of which the host says that they are clean, and those of which it hears.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use mayfly_memslot::{DirtyBitmap, PAGE_SIZE, SlotId};
use mayfly_platform::address::Pfn;
use mayfly_stage2::Level;
use mayfly_vm::{CacheOp, Change, InstructionCaches, Protection, Reason, Resolved};

use crate::caches::turn;
use crate::common::{Kept, Setup, TestVcpu, TestVm, hva, read, translation, write};
use crate::instructions::{self, KINDS, RW};

/// The frame behind the first page of slot 0.
const FIRST: Pfn = Pfn::new(0x1_0000_0000 / PAGE_SIZE);

/// As [`instructions::tracked`]; the host says `kind` of the memory.
fn tracked(
    caches: InstructionCaches,
    kind: impl Fn(Resolved) -> Resolved + Send + 'static,
) -> (Setup, TestVm, [TestVcpu; 2]) {
    let (setup, vm, vcpus) = instructions::tracked(caches);
    setup.memory.set_kind(move |_, _, usual| kind(usual));
    (setup, vm, vcpus)
}

fn clean(usual: Resolved) -> Resolved {
    Resolved { clean: true, ..usual }
}

#[test]
fn what_is_clean_is_not_cleaned_unless_instructions_are_kept_by_virtual_addresses() {
    for kind in KINDS {
        for level in [Level::PAGE, Level::MIB2] {
            let (setup, _vm, [mut vcpu, _]) = tracked(kind, clean);
            setup.memory.set_level(level);
            read(&mut vcpu, 0, 1);
            let expected = match kind {
                InstructionCaches::Virtual => {
                    vec![Kept::Cleaned(FIRST, level.pages()), Kept::Emptied]
                }
                _ => vec![],
            };
            assert_eq!(setup.caches.take(), expected, "{kind:?}");
        }
    }
}

#[test]
fn a_host_hears_of_what_has_become_clean_for_whatever_it_is_mapped_by() {
    for kind in KINDS {
        for level in [Level::PAGE, Level::MIB2] {
            let (setup, _vm, [mut vcpu, _]) = tracked(kind, |usual| usual);
            setup.memory.set_level(level);
            read(&mut vcpu, 5 * PAGE_SIZE, 1);
            let into = if level == Level::PAGE { 5 } else { 0 };
            let first = Pfn::new(FIRST.get() + into);
            let told = [(hva(0, 5 * PAGE_SIZE), first, level)];
            assert_eq!(setup.memory.take_told_clean(), told, "{kind:?}");
        }
        let (setup, _vm, [mut vcpu, _]) = tracked(kind, |usual| Resolved { allowed: RW, ..usual });
        read(&mut vcpu, 0, 1);
        let of_data = kind == InstructionCaches::Coherent;
        assert_eq!(setup.memory.take_told_clean().len(), usize::from(of_data), "{kind:?}");
    }
}

#[test]
fn it_does_not_hear_of_what_it_has_said_itself() {
    let (setup, _vm, [mut vcpu, _]) = tracked(InstructionCaches::Physical, clean);
    read(&mut vcpu, 0, 1);
    assert_eq!(setup.memory.take_told_clean(), []);
}

#[test]
fn it_does_not_hear_of_what_the_vm_left_dirty_because_another_root_has_it() {
    for kind in KINDS {
        let (setup, vm, [mut one, mut two]) = tracked(kind, |usual| usual);
        turn(&mut one, CacheOp::On);
        // Its lines are dirty from now on, in a frame that the host then has written no more.
        write(&mut one, 0, &[1]);
        setup.memory.set_writable(false);
        let change = Change { new: Protection::ReadOnly, ..Change::from(Reason::CopyOnWrite) };
        drop(vm.invalidate_start(hva(0, 0), PAGE_SIZE, change));
        setup.caches.take();
        setup.memory.take_told_clean();
        read(&mut two, 0, 1);
        assert!(translation(&mut two, 0).is_some());
        assert_eq!(setup.caches.take(), [], "the main root has it: {kind:?}");
        assert_eq!(setup.memory.take_told_clean(), [], "{kind:?}");
    }
}

#[test]
fn what_is_mapped_clean_past_the_caches_goes_when_another_vcpu_turns_its_own_off() {
    let (_setup, _vm, [mut one, mut two]) = tracked(InstructionCaches::Coherent, clean);
    turn(&mut one, CacheOp::On);
    read(&mut two, 0, 1);
    assert!(translation(&mut two, 0).is_some());
    turn(&mut one, CacheOp::Off);
    assert_eq!(translation(&mut two, 0), None);
}

#[test]
fn a_block_is_put_back_though_the_host_changes_its_first_page_while_it_is_asked() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    // The first is the guest's, the second looks whether there is a block, and the third is to map it.
    let kind = move |usual| Resolved { changed: count.fetch_add(1, SeqCst) == 2, ..usual };
    let (setup, vm, [mut one, _]) = tracked(InstructionCaches::Coherent, kind);
    turn(&mut one, CacheOp::On);
    read(&mut one, 0, 1);
    setup.memory.set_level(Level::MIB2);
    let log = DirtyBitmap::try_new(Level::MIB2.pages()).unwrap();
    log.mark(0);
    assert_eq!(vm.collapse_written(SlotId::main(0), &log), Ok(1));
    assert_eq!(asked.load(SeqCst), 4);
}
