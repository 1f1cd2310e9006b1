//! Calls for a caller that copies a guest while the guest runs, and goes on with it afterwards.
//!
//! The log of what is written belongs to the slot ([`Vm::harvest_dirty`]). A migration of a large guest
//!
//! 1. switches the log on, and has the blocks split separately ([`Vm::split_blocks`]), and not by the guest's writes;
//! 2. reads the log, and takes each part of it just before it sends the pages ([`Vm::read_dirty`],
//!    [`Vm::clear_dirty`]), so that a page that is written while others are sent is sent once;
//! 3. stops the guest, or takes its memory away, and takes what is left in the log ([`Vm::harvest_dirty`],
//!    [`Vm::replace_memory_region`]);
//! 4. or is called off: then it switches the log off, and pages become blocks again: those that the log has had a mark
//!    of ([`Vm::collapse_written`]), or all ([`Vm::collapse_pages`]).

use core::ops::Range;

use mayfly_memslot::{DirtyBitmap, Gfn, Gpa, LastHit, PAGE_SHIFT, Region, Slot, SlotId};
use mayfly_stage2::{Level, Role};

use crate::fault::Handled;
use crate::vm::{Inner, Vm};
use crate::{Access, Error, World};

impl<W: World> Vm<W> {
    /// Reads a slot's dirty log, from word `first` on, into `into`, and leaves it as it is, as `KVM_GET_DIRTY_LOG` does
    /// with `KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2`. Returns how many pages are marked. Nothing is write-protected: what
    /// the caller reads of the pages may be older than the marks, until it has [taken them out](Vm::clear_dirty).
    ///
    /// # Errors
    ///
    /// [`Error::NoSlot`]; [`Error::NoLog`].
    pub fn read_dirty(&self, id: SlotId, first: usize, into: &mut [u64]) -> Result<u64, Error> {
        self.inner().with_log(id, |_, log| log.read(first, into))
    }

    /// Takes those marks out of a slot's dirty log, from word `first` on, whose bits are set in `which`, and leaves
    /// there those that it has taken, as `KVM_CLEAR_DIRTY_LOG` does. Returns how many they were. Otherwise as
    /// [`Vm::harvest_dirty`]: the pages are write-protected again, and what is then read of them has every write that
    /// the marks stand for. Pages that were not marked are left as they are.
    ///
    /// # Errors
    ///
    /// [`Error::NoSlot`]; [`Error::NoLog`].
    pub fn clear_dirty(&self, id: SlotId, first: usize, which: &mut [u64]) -> Result<u64, Error> {
        self.inner().take_dirty(id, first, which, DirtyBitmap::clear)
    }

    /// As [`Vm::set_memory_region`], and returns the slot as it was before, if there was one and it was changed.
    ///
    /// The log of a slot that was deleted, or whose log was switched off, is final then: it has a mark of every page
    /// that was written through the slot since that was last harvested, for
    /// [`DirtyBitmap::harvest`](mayfly_memslot::DirtyBitmap::harvest). A slot that goes on logging shares it.
    ///
    /// # Errors
    ///
    /// As [`Vm::set_memory_region`].
    pub fn replace_memory_region(
        &self,
        region: &Region<W::Backing>,
    ) -> Result<Option<Slot<W::Backing>>, Error> {
        let edit = self.inner().change_memory(|slots| slots.prepare(region))?;
        Ok(edit.and_then(|edit| edit.before().cloned()))
    }

    /// Splits the blocks by which a slot's memory is mapped, so that no write to it has to: for a slot whose log was
    /// switched on. In slices, none of them under a lock; for each 64 MiB TLBs are waited for once at most.
    ///
    /// # Errors
    ///
    /// [`Error::NoSlot`]; [`Error::Stage2`] without memory for a table: the writes that come split what is left.
    pub fn split_blocks(&self, id: SlotId) -> Result<(), Error> {
        let vm = self.inner();
        let gfns = vm.with_slot(id, Slot::gfns)?;
        Ok(vm.stage2.split_blocks(gfns, vm.slice)?)
    }

    /// Has blocks in the place of pages, wherever slot and host allow them and something is mapped already: for a slot
    /// whose log was switched off, which otherwise gets its blocks back as it is written, if it is. Returns how many
    /// places got one. What the host is changing at that moment stays as it is; and so does what vCPUs with their caches
    /// off have mapped, where the VM sees to that.
    ///
    /// Waits for TLBs; and for readers, where too many tables await theirs. Not from inside a section.
    ///
    /// # Errors
    ///
    /// [`Error::NoSlot`].
    pub fn collapse_pages(&self, id: SlotId) -> Result<u64, Error> {
        let vm = self.inner();
        let mut left = vm.with_slot(id, Slot::gfns)?;
        let mut last = LastHit::default();
        let mut collapsed = 0;
        while left.start < left.end {
            let Some(gfn) = vm.stage2.find_page(Role::MAIN, &mut left, vm.slice) else { continue };
            let next = Level::MIB2.first(gfn).get() + Level::MIB2.pages();
            left.start = left.start.max(Gfn::new(next)).min(left.end);
            let is_block = vm.collapse(gfn, &mut last);
            let has_room = vm.stage2.collect_tables();
            vm.platform.preemption_point();
            collapsed += u64::from(is_block || has_room && vm.collapse(gfn, &mut last));
        }
        Ok(collapsed)
    }

    /// As [`Vm::collapse_pages`], where `log` has had marks since it began: that of a slot whose log was switched off, as
    /// [`Vm::replace_memory_region`] gives it. Other places are not looked at, so the work grows with what was written.
    /// (What [`Vm::split_blocks`] has split without a write stays as it is.) TLBs are invalidated once for each
    /// [slice](crate::Config::slice), of which each place takes an entry; where the format requires break-before-make,
    /// once for each 32 blocks.
    ///
    /// # Errors
    ///
    /// As [`Vm::collapse_pages`].
    pub fn collapse_written(&self, id: SlotId, log: &DirtyBitmap) -> Result<u64, Error> {
        let vm = self.inner();
        let mut written = Written { log, gfns: vm.with_slot(id, Slot::gfns)?, next: 0 };
        let (mut collapsed, mut last) = (0, LastHit::default());
        while !written.is_over() {
            collapsed += vm.collapse_slice(&mut written, &mut last);
            vm.stage2.collect_tables();
            vm.platform.preemption_point();
        }
        Ok(collapsed)
    }
}

/// The places of a slot where there may be blocks to put in place of tables, since its log has had marks there: a page of
/// each.
struct Written<'a> {
    log: &'a DirtyBitmap,
    /// The slot's.
    gfns: Range<Gfn>,
    /// The first page of the slot that is still to be asked about.
    next: u64,
}

impl Written<'_> {
    fn is_over(&self) -> bool {
        self.next >= self.gfns.end.get() - self.gfns.start.get()
    }
}

impl Iterator for Written<'_> {
    type Item = Gfn;

    fn next(&mut self) -> Option<Gfn> {
        let written = self.log.written_from(self.next);
        let gfn = written.map(|pages| Gfn::new(self.gfns.start.get() + pages.start));
        let gfn = gfn.filter(|gfn| *gfn < self.gfns.end);
        // Where the slot begins in the middle of a block, so does what the log calls 512 pages.
        let beyond = gfn
            .map_or(self.gfns.end.get(), |gfn| Level::MIB2.first(gfn).get() + Level::MIB2.pages());
        self.next = beyond - self.gfns.start.get();
        gfn
    }
}

impl<W: World> Inner<W> {
    /// Puts blocks in place where `written` says, a slice of them. Returns how many.
    fn collapse_slice(&self, written: &mut Written<'_>, last: &mut LastHit) -> u64 {
        if self.maintains_maps() {
            // What is mapped is cleaned before, block by block.
            let Some(gfn) = written.next() else { return 0 };
            return u64::from(self.has_block(gfn, last) && self.collapse(gfn, last));
        }
        let section = self.srcu.read_lock();
        let Some(root) = self.stage2.find_root(Role::MAIN, &section) else {
            // Nothing is mapped.
            written.for_each(drop);
            return 0;
        };
        let grants = written.map(|gfn| {
            // Before the slots and the host are asked, as at a fault.
            let seen = self.stage2.sample();
            self.grant_block(gfn, seen, last, root, &section)
        });
        root.collapse(self.slice, grants) as u64
    }

    /// Whether slot and host allow a block around `gfn` at this moment.
    fn has_block(&self, gfn: Gfn, last: &mut LastHit) -> bool {
        let section = self.srcu.read_lock();
        let seen = self.stage2.sample();
        let root = self.stage2.find_root(Role::MAIN, &section);
        root.is_some_and(|root| self.grant_block(gfn, seen, last, root, &section).is_some())
    }

    fn with_slot<T>(
        &self,
        id: SlotId,
        then: impl FnOnce(&Slot<W::Backing>) -> T,
    ) -> Result<T, Error> {
        let section = self.srcu.read_lock();
        Ok(then(self.slots.load(id.space, &section).slot(id).ok_or(Error::NoSlot(id))?))
    }

    /// Maps the page as a read would that found nothing there. Returns whether it is a block's now.
    fn collapse(&self, gfn: Gfn, last: &mut LastHit) -> bool {
        let access = Access::data(Gpa::new(gfn.get() << PAGE_SHIFT), 1, false);
        let mut largest = self.largest();
        // If it is refused twice, or has changed, it is left: the host is busy with it. It is not waited for: the host may be
        // the caller.
        for _ in 0..2 {
            let section = self.srcu.read_lock();
            let Some(met) = self.meet(&access, last, &section) else { return false };
            match self.handle_fault(&access, &met, Role::MAIN, largest, &section) {
                Ok(Handled::Refused(level)) => {
                    drop(section);
                    largest = level;
                    let first = level.first(gfn);
                    let gfns = first..Gfn::new(first.get() + level.pages());
                    if self.stage2.is_invalidating(&gfns) {
                        return false;
                    }
                }
                Ok(Handled::Changed) => {}
                Ok(_) => {
                    let root = self.stage2.find_root(Role::MAIN, &section);
                    let found = root.and_then(|root| root.translate(gfn, &section));
                    return found.is_some_and(|(level, _)| level > Level::PAGE);
                }
                Err(_) => return false,
            }
        }
        false
    }
}

#[cfg(all(test, not(any(mayfly_loom, mayfly_shuttle))))]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn places(base: u64, pages: u64, written: &[u64]) -> Vec<u64> {
        let log = DirtyBitmap::try_new(pages).unwrap();
        for page in written {
            log.mark(*page);
        }
        let gfns = Gfn::new(base)..Gfn::new(base + pages);
        let mut written = Written { log: &log, gfns, next: 0 };
        let all = written.by_ref().map(Gfn::get).collect();
        assert!(written.is_over());
        all
    }

    #[test]
    fn a_block_is_asked_about_once_also_where_the_slot_begins_in_the_middle_of_one() {
        assert_eq!(places(0x1000, 2000, &[3, 511, 512, 1999]), [0x1000, 0x1200, 0x1600]);
        assert_eq!(places(0x1000, 2000, &[]), []);
        // 512 pages of the log are parts of two blocks there; and the last of them have a block to themselves.
        assert_eq!(places(0x1100, 0x340, &[3]), [0x1100, 0x1200]);
        assert_eq!(places(0x1100, 0x340, &[3, 0x33f]), [0x1100, 0x1200, 0x1400]);
        assert_eq!(places(0x1100, 0x340, &[0x33f]), [0x1300, 0x1400]);
    }
}
