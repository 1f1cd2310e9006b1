//! Changing the guest's memory: slots, and what is mapped through them.

use core::ops::Range;

use mayfly_memslot::{
    DirtyBitmap, DirtyWord, Edit, Error as SlotError, Gfn, MemSlots, Prepared, Slot, SlotId,
};
use mayfly_stage2::{Announcement, Invalidation, Tables, any_marked};

use crate::vm::{Inner, SlotZap, Vm};
use crate::{Error, World};

/// Words of a log that are harvested together: those of 65,536 pages.
const TAKEN_TOGETHER: usize = 1024;

impl<W: World> Vm<W> {
    /// Takes the marks out of a slot's dirty log, as `KVM_GET_DIRTY_LOG` does, from word `first` on, into `into`: see
    /// [`DirtyBitmap::harvest`](mayfly_memslot::DirtyBitmap::harvest). The pages taken are write-protected again when
    /// this returns, and what was written to them past the caches is seen through them, so what the caller reads of
    /// them has every write that the marks stand for. Returns how many pages were marked.
    ///
    /// Goes by parts of 65,536 pages. However the marks lie, TLBs are invalidated once for each
    /// [slice](crate::Config::slice) of what lies between the first and the last of a part; and once for each 64 pages
    /// that were written past the caches. A caller that changes memslots meanwhile waits while the marks of a part are
    /// taken, and no longer.
    ///
    /// Likewise what was written before the log was switched on, and has no mark, is seen through the caches when that
    /// call has returned.
    ///
    /// # Errors
    ///
    /// [`Error::NoSlot`]; [`Error::NoLog`].
    pub fn harvest_dirty(&self, id: SlotId, first: usize, into: &mut [u64]) -> Result<u64, Error> {
        self.inner().take_dirty(id, first, into, DirtyBitmap::harvest)
    }

    /// As [`Vm::harvest_dirty`], of the marks that there are, wherever they are: `into` gets those words of the log that
    /// have some, in order. `from` says where to begin, 0 at first, and then where to go on. Returns how many words
    /// `into` has got; when that is less than its length, the log has been gone through.
    ///
    /// Neither the log's other words are looked at (those beside a mark excepted, of 512 pages), nor the tables of pages
    /// without a mark: the work grows with what was written, and not with the slot. TLBs are invalidated once for each
    /// slice of what lies between the first page and the last that this call takes.
    ///
    /// # Errors
    ///
    /// As [`Vm::harvest_dirty`].
    pub fn harvest_marked(
        &self,
        id: SlotId,
        from: &mut usize,
        into: &mut [DirtyWord],
    ) -> Result<usize, Error> {
        self.inner().take_marked(id, from, into)
    }
}

/// The pages whose marks were taken out of a log; some.
struct Taken<'a> {
    words: &'a [u64],
    /// The frame of the first word's first bit.
    start: u64,
}

impl<'a> Taken<'a> {
    /// Those of `words`, from word `first` on of the log of a slot at `base`. `None` if there are none.
    fn of(words: &'a [u64], base: Gfn, first: usize) -> Option<Self> {
        let skipped = words.iter().position(|&word| word != 0)?;
        let last = words.iter().rposition(|&word| word != 0)?;
        let start = base.get() + 64 * (first + skipped) as u64;
        Some(Self { words: &words[skipped..=last], start })
    }

    /// A word, and its first frame.
    fn word(&self, index: usize) -> (Gfn, u64) {
        (Gfn::new(self.start + 64 * index as u64), self.words[index])
    }
}

/// The frames that `count` words in order are of, if there is a word.
fn hull(count: usize, word: impl Fn(usize) -> (Gfn, u64)) -> Option<Range<Gfn>> {
    let last = word(count.checked_sub(1)?).0;
    Some(word(0).0..Gfn::new(last.get() + 64))
}

/// An element of a list of words of a log whose slot begins at `base`, and its first frame.
fn word_of(base: Gfn, DirtyWord { word, marks }: DirtyWord) -> (Gfn, u64) {
    (Gfn::new(base.get() + 64 * word as u64), marks)
}

impl<W: World> Inner<W> {
    /// Takes marks out of a slot's dirty log, wherever there are any.
    fn take_marked(
        &self,
        id: SlotId,
        from: &mut usize,
        into: &mut [DirtyWord],
    ) -> Result<usize, Error> {
        let (base, count) = {
            // As for a part of it.
            let _writer = self.memory_writer.lock(&*self.platform);
            self.with_log(id, |slot, log| (slot.base(), log.harvest_marked(from, into)))?
        };
        self.protect_taken(count, |index| word_of(base, into[index]));
        Ok(count)
    }

    /// Takes marks out of a slot's dirty log by `take`, which leaves in `into` what it has taken, from word `first` on:
    /// part by part.
    pub(crate) fn take_dirty(
        &self,
        id: SlotId,
        first: usize,
        into: &mut [u64],
        take: impl Fn(&DirtyBitmap, usize, &mut [u64]) -> u64,
    ) -> Result<u64, Error> {
        if into.is_empty() {
            return self.take_part(id, first, into, &take);
        }
        let mut marked = 0;
        for (part, into) in into.chunks_mut(TAKEN_TOGETHER).enumerate() {
            let first = first.saturating_add(part * TAKEN_TOGETHER);
            marked += self.take_part(id, first, into, &take)?;
            self.platform.preemption_point();
        }
        Ok(marked)
    }

    fn take_part(
        &self,
        id: SlotId,
        first: usize,
        into: &mut [u64],
        take: &impl Fn(&DirtyBitmap, usize, &mut [u64]) -> u64,
    ) -> Result<u64, Error> {
        let (gfns, marked) = {
            // So that the slot stays where it is: its marks are of pages that are mapped there. What was mapped where
            // it was before is zapped by then; and where it goes afterwards, pages are marked after these are taken.
            let _writer = self.memory_writer.lock(&*self.platform);
            self.with_log(id, |slot, log| (slot.gfns(), take(log, first, into)))?
        };
        let Some(taken) = Taken::of(into, gfns.start, first) else { return Ok(marked) };
        self.protect_taken(taken.words.len(), |index| taken.word(index));
        Ok(marked)
    }

    /// Write-protects pages whose marks were taken: `word` says what is in each of `count` words, in order, and which is
    /// its first frame.
    fn protect_taken(&self, count: usize, word: impl Fn(usize) -> (Gfn, u64)) {
        let Some(hull) = hull(count, &word) else { return };
        // A fault that made one of these marks may be about to map its page, and would do so after the page is
        // protected, with no mark left: it is refused, and marks the page again.
        self.stage2.refuse_faults(&hull);
        // Before the rest, since it takes the right to write as well, where it finds something.
        self.flush_written_those(hull.clone(), |gfns| any_marked(&gfns, count, &word));
        self.stage2.write_protect_marked(hull, self.slice, count, word);
    }

    /// Calls `then` with the slot and its log, inside a section.
    pub(crate) fn with_log<T>(
        &self,
        id: SlotId,
        then: impl FnOnce(&Slot<W::Backing>, &DirtyBitmap) -> T,
    ) -> Result<T, Error> {
        let section = self.srcu.read_lock();
        let slot = self.slots.load(id.space, &section).slot(id).ok_or(Error::NoSlot(id))?;
        Ok(then(slot, slot.dirty().ok_or(Error::NoLog(id))?))
    }

    /// Publishes new memslots, and makes true what that promises: nothing is mapped through a slot that is gone, and
    /// nothing is written unnoticed where a log was switched on. Returns what was changed, if anything was, when no
    /// reader uses the slots of before any more.
    pub(crate) fn change_memory(
        &self,
        prepare: impl FnOnce(
            &MemSlots<W::Backing>,
        ) -> Result<Option<Prepared<'_, W::Backing>>, SlotError>,
    ) -> Result<Option<Edit<W::Backing>>, Error> {
        let writer = self.memory_writer.lock(&*self.platform);
        let Some(prepared) = prepare(&self.slots)? else { return Ok(None) };
        let change = match prepared.edit() {
            Edit::Delete { old } | Edit::Move { old, .. } => {
                let old = old.clone();
                let gfns = old.gfns();
                let (change, invalidation) = self.stage2.change_slots_and_invalidate(&gfns, || {
                    *self.leaving.lock(&*self.platform) = Some(old);
                    prepared.publish()
                });
                let mut leaving = Leaving { vm: self, invalidation, gfns, is_zapped: false };
                self.zap_slot(&leaving.invalidation, leaving.gfns.clone());
                leaving.is_zapped = true;
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
        Ok(Some(change.settle()))
    }

    /// Zaps what a slot had mapped, which was announced. So no fault maps anything there: those that had
    /// found the slot are refused, and so are those that find it there still, since it has moved by less than its
    /// length. They would cover marks that no flush has taken, or have theirs zapped; and what TLBs still remember.
    fn zap_slot(&self, announcement: &Announcement, gfns: Range<Gfn>) {
        if self.slot_zap != SlotZap::AllRoots || self.leave_roots(true).is_none() {
            // Also where there is no memory for fresh roots, or none are made any more: a slot can always be deleted.
            self.flush_written(gfns.clone());
            self.stage2.zap(announcement, gfns, Tables::Free, self.slice);
        }
    }
}

/// A slot that is published no more. When this is dropped, nothing is mapped through it, also where code of the
/// embedder's has panicked meanwhile: the memory behind it is found by no other way then.
struct Leaving<'a, W: World> {
    vm: &'a Inner<W>,
    /// Ends after the rest.
    invalidation: Invalidation<'a>,
    gfns: Range<Gfn>,
    is_zapped: bool,
}

impl<W: World> Drop for Leaving<'_, W> {
    fn drop(&mut self) {
        let Self { vm, invalidation, gfns, is_zapped } = self;
        if !*is_zapped {
            vm.stage2.zap(invalidation, gfns.clone(), Tables::Free, vm.slice);
        }
        *vm.leaving.lock(&*vm.platform) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn what_was_taken_is_found_word_by_word() {
        let (base, first) = (1000, 3);
        let mut words = vec![0; 6];
        let pages = [70, 127, 128, 200, 255];
        for page in pages {
            words[page / 64] |= 1 << (page % 64);
        }
        let taken = Taken::of(&words, Gfn::new(base), first).unwrap();
        let origin = base + 64 * first as u64;
        let gfn = |page: usize| Gfn::new(origin + page as u64);
        assert_eq!(hull(taken.words.len(), |index| taken.word(index)), Some(gfn(64)..gfn(256)));
        assert_eq!(taken.words.len(), 3);
        let list: Vec<DirtyWord> = (first..)
            .zip(&words)
            .filter(|(_, marks)| **marks != 0)
            .map(|(word, &marks)| DirtyWord { word, marks })
            .collect();
        let listed = |index: usize| word_of(Gfn::new(base), list[index]);
        assert_eq!(hull(list.len(), listed), Some(gfn(64)..gfn(256)));
        for (index, first) in [64, 128, 192].into_iter().enumerate() {
            assert_eq!(taken.word(index), (gfn(first), words[first / 64]));
            assert_eq!(listed(index), taken.word(index));
        }
        for start in 0..300 {
            for end in start..300 {
                let is_any = pages.iter().any(|page| (start..end).contains(page));
                let found = any_marked(&(gfn(start)..gfn(end)), 3, listed);
                assert_eq!(found, is_any, "{start}..{end}");
            }
        }
        assert!(hull(0, listed).is_none());
        let none: Vec<u64> = vec![0; 6];
        assert!(Taken::of(&none, Gfn::new(base), usize::MAX).is_none());
    }
}
