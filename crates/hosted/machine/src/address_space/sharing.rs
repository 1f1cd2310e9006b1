//! Pages that share a frame until one of them is written.
//!
//! A shared page keeps its frame to be read only, and has a reference to it. Pages come to share by [`HostSpace::fork`]
//! and by being merged ([`HostSpace::merge`], which the [merger](crate::merger) calls); a page of an [image](super::Image)
//! does so for the moment before it leaves. A page leaves by a write, which is a *break*: it gets a frame of its own with the same contents.
//!
//! *Locks.* A break happens where a vCPU resolves a page, inside a section of its VM. So the break may not wait for
//! `changes`, whose holder may be waiting for that section to end. It takes `sharing` alone. A holder of `sharing` waits
//! for TLBs at most, and no vCPU that resolves is in the guest. A merge has both locks, from start to end. Any other
//! change has `sharing` for the moment of the change proper, and says before its start which pages it changes
//! (`changing`). A break of one of those pages gives no right to write, because the change may just have taken it away.
//! The vCPU finds out at its next try, for which it waits until the change is over.
//!
//! *A break, as others see it.* The frame is copied while all readers go on with the old one. Then the page is *leaving*:
//! a thread that resolves it waits. Notifiers replace the old frame by the new one ([`Notifier::change_pte`]). When all
//! have replaced it, they allow writes ([`Notifier::allow_writes`]), and the page has the new frame. So no guest writes to
//! the new frame while another still reads the old one.
//!
//! *A merge, as others see it*, of a run of pages at once. Notifiers take away the right to write. The pages are shared,
//! each with its own frame, and no guest writes them any more. Their contents are compared. Pages that are equal take the
//! common frame, and notifiers replace the old frames by it. VMs may go on reading the old frames for a while (`held`).
//!
//! [`Notifier::allow_writes`]: super::Notifier::allow_writes
//! [`Notifier::change_pte`]: super::Notifier::change_pte

use std::ops::Range;
use std::sync::atomic::Ordering;

use mayfly_merge::Merged;
use mayfly_platform::address::{Hva, Pfn};
use mayfly_platform::memory::OutOfMemory;
use mayfly_vm::Protection as Rights;

use super::area::{Area, Kind};
use super::error::{Error, Fault};
use super::memory::Protection;
use super::merging::Run;
use super::notifier::{Change, PageChange, Reason};
use super::numbers::{hva, hvas, whole_pages};
use super::pages::{Held, copy};
use super::space::HostSpace;
use crate::Arena;

/// What the merger finds of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Looked {
    pub(crate) frame: Pfn,
    pub(crate) shared: bool,
}

impl Looked {
    fn of(held: Held) -> Option<Self> {
        match held {
            Held::Own(frame) => Some(Self { frame, shared: false }),
            Held::Shared(frame) => Some(Self { frame, shared: true }),
            Held::Leaving => None,
        }
    }
}

impl HostSpace {
    /// Maps the contents of `range` once more, at addresses of its choice, and returns these: each page shares its
    /// frame with the old one until either is written, as after `fork(2)`. What is in swap is brought in.
    ///
    /// # Errors
    ///
    /// As [`HostSpace::mremap`]; [`Error::OutOfMemory`] also where there is no frame for what is in swap. Nothing has
    /// been mapped then.
    pub fn fork(&self, range: Range<Hva>) -> Result<Hva, Error> {
        let pages = whole_pages(&range)?;
        let count = pages.end - pages.start;
        let _changes = self.changes();
        let first = {
            let mappings = self.mappings.read();
            mappings.check_on_demand(&pages)?;
            mappings.bring_in_all(&pages, self.store())?;
            mappings.areas.gap(count, 1).ok_or(OutOfMemory)?
        };
        let change = Change::protecting(range, Reason::CopyOnWrite, Rights::ReadWrite);
        self.bracket(&change, |mappings, _, _| {
            mappings.pages.insert(&(first..first + count), false);
            let areas: Vec<_> = mappings
                .areas
                .overlapping(pages.clone())
                .map(|(range, area)| (range, area.protection))
                .collect();
            for (range, protection) in areas {
                let from = range.start.max(pages.start) - pages.start + first;
                let end = range.end.min(pages.end) - pages.start + first;
                let kind = Kind::OnDemand { huge: false };
                mappings.areas.insert(from, Area { end, protection, kind });
            }
            for page in pages.clone() {
                let Some(frame) = mappings.pages.frame(page) else { continue };
                self.arena.get(frame);
                mappings.pages.share(page, frame);
                mappings.pages.share(page - pages.start + first, frame);
            }
        });
        Ok(hva(first))
    }

    /// How many pages are merged with the frame of zeroes.
    pub(crate) fn zero_pages(&self) -> u64 {
        self.zero.get().map_or(0, |zero| self.arena.references(*zero) - 1)
    }

    /// The frame of zeroes.
    pub(crate) fn zero_frame(&self) -> Result<Pfn, OutOfMemory> {
        if let Some(zero) = self.zero.get() {
            return Ok(*zero);
        }
        let fresh = self.arena.allocate(0)?;
        let zero = *self.zero.get_or_init(|| fresh);
        if zero != fresh {
            self.arena.put(fresh);
        }
        Ok(zero)
    }

    pub(crate) fn is_zero_frame(&self, frame: Pfn) -> bool {
        self.zero.get() == Some(&frame)
    }

    /// Whether all of `pages` can be merged.
    pub(crate) fn check_mergeable(&self, pages: &Range<u64>) -> Result<(), Error> {
        self.mappings.read().check_on_demand(pages)
    }

    /// The parts of `pages` that are mapped, in order.
    pub(crate) fn mapped(&self, pages: &Range<u64>) -> Vec<Range<u64>> {
        self.mappings.read().mapped(pages).collect()
    }

    /// Calls `then` with what there is of `page`, if it has a frame, which it keeps meanwhile.
    pub(crate) fn look<T>(&self, page: u64, then: impl FnOnce(Looked) -> T) -> Option<T> {
        let mappings = self.mappings.read();
        mappings.pages.held(page).and_then(Looked::of).map(then)
    }

    /// The same, of the frames of two pages, if both have one.
    pub(crate) fn look_at_two<T>(
        &self,
        (one, other): (u64, u64),
        then: impl FnOnce(Pfn, Pfn) -> T,
    ) -> Option<T> {
        let mappings = self.mappings.read();
        let frame = |page| mappings.pages.held(page).and_then(Looked::of);
        Some(then(frame(one)?.frame, frame(other)?.frame))
    }

    /// Has nobody write to `page` any more, if `frame` is what it has: to be shared. Returns whether it is.
    pub(crate) fn close_page(&self, page: u64, frame: Pfn) -> bool {
        self.share(page, &[frame], |_, _| false) == [Merged::Before]
    }

    /// Has the pages from `first` on share the frames `with`, each where its contents are equal. The caller has a
    /// reference to each of the frames, to which nobody writes.
    pub(crate) fn merge(&self, first: u64, with: &[Pfn]) -> Vec<Merged> {
        self.share(first, with, |held, with| equal(&self.arena, held, with))
    }

    /// Has nobody write to the pages from `first` on that have the frames `with`, or that `may_take` them in place of
    /// what they have: those share them then.
    fn share(&self, first: u64, with: &[Pfn], may_take: impl Fn(Pfn, Pfn) -> bool) -> Vec<Merged> {
        let pages = first..first + with.len() as u64;
        let _changes = self.changes();
        let _sharing = self.sharing();
        // What is shared stays so while the lock is held. A page that has no frame may get one at any moment, and be
        // written before all have heard of the start.
        let old = if pages.clone().all(|page| self.is_shared(page)) {
            Rights::ReadOnly
        } else {
            Rights::ReadWrite
        };
        let change = Change::protecting(hvas(&pages), Reason::Merge, old);
        let mut run = Run::new(self, (first, with), change, may_take);
        mayfly_merge::share(&mut run);
        run.became
    }

    /// Gives `page` a frame of its own, if it shares one and may be written.
    pub(crate) fn unshare(&self, page: u64) -> Result<(), Fault> {
        let sharing = self.sharing();
        let Some(shared) = self.to_break(page)? else { return Ok(()) };
        if self.arena.references(shared) == 1 {
            // All others have gone; none can come, which takes the lock. But some may read another frame for it.
            self.settle();
            let mut mappings = self.mappings.write();
            if mappings.pages.held(page) == Some(Held::Shared(shared)) {
                mappings.pages.own(page, shared);
            }
            return Ok(());
        }
        let own = self.arena.allocate(0).or_else(|_| {
            self.settle();
            self.arena.allocate(0)
        })?;
        // Whoever unmaps the page meanwhile gives up its reference.
        self.arena.get(shared);
        let range = hvas(&(page..page + 1));
        let change = Change::protecting(range, Reason::CopyOnWrite, Rights::ReadOnly);
        let registered = self.registered();
        registered.tell(|notifier| notifier.invalidate_start(&change));
        copy(&self.arena, shared, own);

        let leaves = {
            let mut mappings = self.mappings.write();
            let leaves = mappings.pages.held(page) == Some(Held::Shared(shared));
            if leaves {
                mappings.pages.leave(page, shared);
            }
            leaves
        };
        if leaves {
            let is_changing = sharing.changing.contains(&page);
            let protection = if is_changing { Rights::ReadOnly } else { Rights::ReadWrite };
            let change = PageChange { old: shared, new: own, protection, same_contents: true };
            registered.tell(|notifier| notifier.change_pte(hva(page), &change));
            if protection == Rights::ReadWrite {
                // Only now, when none of them reads the old frame.
                registered.tell(|notifier| notifier.allow_writes(hva(page), own));
            }
            self.mappings.write().pages.own(page, own);
            self.arena.put(shared);
        } else {
            self.arena.put(own);
        }

        registered.tell(|notifier| notifier.invalidate_end(&change));
        self.arena.put(shared);
        Ok(())
    }

    /// Calls `then` while nobody has a reference to a frame for the time of a change.
    pub(crate) fn while_settled<T>(&self, then: impl FnOnce() -> T) -> T {
        let _changes = self.changes();
        let _sharing = self.sharing();
        then()
    }

    fn is_shared(&self, page: u64) -> bool {
        matches!(self.mappings.read().pages.held(page), Some(Held::Shared(_)))
    }

    /// The frame that `page` shares, with an image or with other pages; nothing if it has one of its own, or none.
    fn to_break(&self, page: u64) -> Result<Option<Pfn>, Fault> {
        {
            let mappings = self.mappings.read();
            let (_, area) = mappings.areas.find(page).ok_or(Fault::NotMapped)?;
            if area.protection == Protection::ReadOnly {
                return Err(Fault::ReadOnly);
            }
            if let Some(Held::Shared(frame)) = mappings.pages.held(page) {
                return Ok(Some(frame));
            }
            if mappings.image_frame_in(area, page).is_none() {
                return Ok(None);
            }
        }
        Ok(self.mappings.write().share_with_image(page, &self.arena))
    }

    /// Has nobody write to `pages` from here on: what there is of each, as it was before.
    pub(super) fn close(&self, pages: &Range<u64>) -> Vec<Option<Looked>> {
        let mut mappings = self.mappings.write();
        pages
            .clone()
            .map(|page| {
                let found = mappings.pages.held(page).and_then(Looked::of)?;
                if !found.shared {
                    mappings.pages.share(page, found.frame);
                }
                Some(found)
            })
            .collect()
    }
}

/// What a frame holds, word by word.
pub(crate) fn words(arena: &Arena, frame: Pfn) -> impl Iterator<Item = u64> {
    arena.words(frame).map(|word| word.load(Ordering::Relaxed))
}

/// Whether two frames hold the same.
pub(crate) fn equal(arena: &Arena, one: Pfn, other: Pfn) -> bool {
    let mut words = arena.words(one).zip(arena.words(other));
    words.all(|(one, other)| one.load(Ordering::Acquire) == other.load(Ordering::Acquire))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::super::{Backing, Notifier};
    use super::*;

    /// Touches a page when it hears of a change, as a vCPU may at that moment.
    struct Toucher {
        space: Arc<HostSpace>,
        page: Hva,
        loses_writing: AtomicBool,
    }

    impl Notifier for Toucher {
        fn invalidate_start(&self, change: &Change) {
            let is_writable = self.space.resolve(self.page, false).unwrap().writable;
            let may_write = change.old == Rights::ReadWrite;
            self.loses_writing.store(may_write || !is_writable, Ordering::Relaxed);
        }

        fn invalidate_end(&self, _: &Change) {}
    }

    #[test]
    fn a_page_that_gets_a_frame_as_it_is_merged_loses_the_right_to_write() {
        let space = Arc::new(HostSpace::new(Arc::new(Arena::new(64).unwrap())));
        let page = space.mmap(4096, Backing::Pages, Protection::ReadWrite).unwrap();
        let loses_writing = AtomicBool::new(false);
        let toucher = Arc::new(Toucher { space: space.clone(), page, loses_writing });
        let id = space.register(toucher.clone());
        let zero = space.zero_frame().unwrap();
        assert_eq!(space.merge(super::super::numbers::page(page), &[zero]), [Merged::Now]);
        assert!(toucher.loses_writing.load(Ordering::Relaxed));
        space.unregister(id);
    }
}
