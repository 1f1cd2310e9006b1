//! Calls that change slots and logs.

use proptest::prelude::*;

use mayfly_vm::memslot::{
    AddressSpace, DirtyWord, Flags, Gfn, Gpa, Hva, PAGE_SHIFT, PAGE_SIZE, Region, SlotId,
    USER_SLOTS,
};

use crate::host::{Host, returns};
use crate::step::{PAGES, PIECES, PLACES};

/// A call on a VM's memory.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Age {
        piece: usize,
        from: u64,
        pages: u64,
    },
    ReadDirty {
        slot: u16,
        first: usize,
    },
    ClearDirty {
        slot: u16,
        first: usize,
        marks: u64,
    },
    SplitBlocks {
        slot: u16,
    },
    /// Changes a log behind the VM's back.
    Scribble {
        slot: u16,
        page: u64,
    },
    CleanMapped,
    /// As the user's slot, or one that the hypervisor keeps for itself; in the place of what has the number.
    Put {
        slot: u16,
        place: usize,
        pages: u64,
        piece: usize,
        is_private: bool,
    },
}

pub(crate) fn some() -> impl Strategy<Value = Step> {
    let (slot, place, pages) = (0..4_u16, 0..PLACES.len(), 0..=PAGES);
    let first = 0..2_usize;
    prop_oneof![
        (0..PIECES, 0..PAGES, 1..=PAGES).prop_map(|(piece, from, pages)| Step::Age {
            piece,
            from,
            pages
        }),
        (slot.clone(), first.clone()).prop_map(|(slot, first)| Step::ReadDirty { slot, first }),
        (slot.clone(), first, any::<u64>()).prop_map(|(slot, first, marks)| Step::ClearDirty {
            slot,
            first,
            marks
        }),
        slot.clone().prop_map(|slot| Step::SplitBlocks { slot }),
        (slot.clone(), 0..2 * PAGES).prop_map(|(slot, page)| Step::Scribble { slot, page }),
        Just(Step::CleanMapped),
        (slot, place, pages, 0..PIECES, any::<bool>()).prop_map(
            |(slot, place, pages, piece, is_private)| {
                Step::Put { slot, place, pages, piece, is_private }
            }
        ),
    ]
}

impl Host {
    pub(crate) fn make_on_memory(&self, vm: usize, step: &Step) {
        let guarded = &self.vms[vm];
        let waits = guarded.open > 0 || guarded.is_stuck;
        let vm_of = &guarded.vm;
        match *step {
            Step::Age { piece, from, pages } => {
                let from = Hva::new(self.pieces[piece].get() + from * PAGE_SIZE);
                vm_of.age(from, pages * PAGE_SIZE);
            }
            Step::ReadDirty { slot, first } => {
                let _ = vm_of.read_dirty(SlotId::main(slot), first, &mut [0]);
                let (mut from, mut into) = (first, [DirtyWord::default(); 2]);
                let _ = vm_of.harvest_marked(SlotId::main(slot), &mut from, &mut into);
            }
            Step::ClearDirty { slot, first, marks } => {
                let _ = vm_of.clear_dirty(SlotId::main(slot), first, &mut [marks]);
            }
            Step::SplitBlocks { slot } => drop(vm_of.split_blocks(SlotId::main(slot))),
            Step::Scribble { slot, page } => {
                let section = vm_of.srcu().read_lock();
                let slots = vm_of.slots().load(AddressSpace::Main, &section);
                let Some(slot) = slots.slot(SlotId::main(slot)) else { return };
                returns(|| slot.mark_dirty(Gfn::new(slot.base().get() + page)));
                if let Some(log) = slot.dirty() {
                    assert_eq!(log.pages(), slot.pages());
                    returns(|| log.mark(page));
                    returns(|| _ = log.harvest(0, &mut [0]));
                    returns(|| _ = log.clear(page as usize, &mut [u64::MAX]));
                    returns(|| _ = log.read(page as usize, &mut [0]));
                    let (mut from, mut into) = (page as usize, [DirtyWord::default()]);
                    returns(|| _ = log.harvest_marked(&mut from, &mut into));
                    returns(|| _ = log.written_from(page));
                }
            }
            Step::CleanMapped | Step::Put { .. } if waits => {}
            Step::CleanMapped => vm_of.clean_invalidate_mapped(),
            Step::Put { slot, place, pages, piece, is_private } => {
                let slot = SlotId::main(if is_private { USER_SLOTS + slot } else { slot });
                let backing = self.pieces[if piece == vm { piece } else { PIECES - 1 }];
                let (gpa, size) = (Gpa::new(PLACES[place] << PAGE_SHIFT), pages * PAGE_SIZE);
                let region = Region { slot, flags: Flags::empty(), gpa, size, backing };
                if is_private {
                    let _ = vm_of.set_private_memory_region(&region);
                } else {
                    let _ = vm_of.replace_memory_region(&region);
                }
            }
        }
    }
}
