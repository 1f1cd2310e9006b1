//! Changing the guest's memory: slots, and what is mapped through them.

use core::ops::Range;

use mayfly_memslot::{Edit, Error as SlotError, Gfn, MemSlots, Prepared, SlotId};
use mayfly_stage2::Tables;

use crate::vm::{Inner, SlotZap, Vm};
use crate::{Error, World};

impl<W: World> Vm<W> {
    /// Takes the marks out of a slot's dirty log, as `KVM_GET_DIRTY_LOG` does, from word `first` on, into `into`: see
    /// [`DirtyBitmap::harvest`](mayfly_memslot::DirtyBitmap::harvest). The pages taken are write-protected again when
    /// this returns, and what was written to them past the caches is seen through them, so what the caller reads of them
    /// has every write that the marks stand for. Returns how many pages were marked.
    ///
    /// Likewise what was written before the log was switched on, and has no mark, is seen through the caches when that
    /// call has returned.
    ///
    /// # Errors
    ///
    /// [`Error::NoSlot`], also where the slot keeps no log.
    pub fn harvest_dirty(&self, id: SlotId, first: usize, into: &mut [u64]) -> Result<u64, Error> {
        let vm = self.inner();
        let _writer = vm.memory_writer.lock(&*vm.platform);
        let (gfns, marked) = {
            let section = vm.srcu.read_lock();
            let slot = vm.slots.load(id.space, &section).slot(id).ok_or(Error::NoSlot(id))?;
            let log = slot.dirty().ok_or(Error::NoSlot(id))?;
            (slot.gfns(), log.harvest(first, into))
        };
        // A fault that made one of these marks may be about to map its page, and would do so after the page is
        // protected, with no mark left: it is refused, and marks the page again.
        vm.stage2.refuse_faults(&gfns);
        let harvested = || {
            into.iter().enumerate().flat_map(|(word, &taken)| {
                runs(taken).map(move |run| {
                    let page = gfns.start.get() + 64 * (first + word) as u64;
                    Gfn::new(page + run.start)..Gfn::new(page + run.end)
                })
            })
        };
        // Before the rest, since it takes the right to write as well, where it finds something.
        vm.flush_written_in(harvested());
        for gfns in harvested() {
            vm.stage2.write_protect(gfns, vm.slice, |_, _| ());
        }
        Ok(marked)
    }
}

impl<W: World> Inner<W> {
    /// Publishes new memslots, and makes true what that promises: nothing is mapped through a slot that is gone, and
    /// nothing is written unnoticed where a log was switched on.
    pub(crate) fn change_memory(
        &self,
        prepare: impl FnOnce(
            &MemSlots<W::Backing>,
        ) -> Result<Option<Prepared<'_, W::Backing>>, SlotError>,
    ) -> Result<(), Error> {
        let writer = self.memory_writer.lock(&*self.platform);
        let Some(prepared) = prepare(&self.slots)? else { return Ok(()) };
        let change = match prepared.edit() {
            Edit::Delete { old } | Edit::Move { old, .. } => {
                let old = old.clone();
                let gfns = old.gfns();
                let (change, _zapping) = self.stage2.change_slots_and_invalidate(&gfns, || {
                    *self.leaving.lock(&*self.platform) = Some(old);
                    prepared.publish()
                });
                self.zap_slot(gfns);
                *self.leaving.lock(&*self.platform) = None;
                change
            }
            Edit::Create { new } | Edit::Flags { new, .. } => {
                let gfns = new.gfns();
                self.stage2.change_slots(&gfns, || prepared.publish())
            }
        };
        if let Edit::Flags { new, .. } = &change.edit
            && new.dirty().is_some()
        {
            self.flush_written(new.gfns());
            self.stage2.write_protect(new.gfns(), self.slice, |_, _| ());
        }
        // A reader that this waits for may itself be about to create a slot.
        drop(writer);
        change.settle();
        Ok(())
    }

    /// Zaps what a slot had mapped, inside an invalidation of that. So no fault maps anything there: those that had
    /// found the slot are refused, and so are those that find it there still, since it has moved by less than its
    /// length. They would cover marks that nobody has taken, or have theirs zapped; and what TLBs still remember.
    fn zap_slot(&self, gfns: Range<Gfn>) {
        if self.slot_zap == SlotZap::AllRoots
            && let Ok(retiring) = self.stage2.replace_roots()
        {
            self.reload_roots();
            // Of the old roots, which nobody writes through any more.
            self.flush_written(Gfn::new(0)..Gfn::new(u64::MAX));
            retiring.finish();
        } else {
            // Also where there is no memory for fresh roots: a slot can always be deleted.
            self.flush_written(gfns.clone());
            self.stage2.zap(gfns, Tables::Free, self.slice);
        }
    }
}

/// The runs of ones in `word`, as ranges of bits.
fn runs(mut word: u64) -> impl Iterator<Item = Range<u64>> {
    core::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let start = u64::from(word.trailing_zeros());
        let len = u64::from((word >> start).trailing_ones());
        word &= !(u64::MAX >> (64 - len) << start);
        Some(start..start + len)
    })
}
