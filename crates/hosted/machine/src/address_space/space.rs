//! An address space: mapping, unmapping, protecting and resolving. The order of changes is told in the parent module.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use mayfly_platform::address::{Hva, PAGE_SHIFT, PAGE_SIZE, Pfn};
use mayfly_platform::memory::OutOfMemory;
use mayfly_stage2::Level;
use mayfly_vm::Protection as Rights;

use super::area::{Area, Block, Blocks, Kind};
use super::error::{Error, Fault};
use super::held::Held;
use super::mappings::{Mappings, Obstacle};
use super::memory::{Backing, Protection, Resolved};
use super::notifier::{Change, Notifier, Reason};
use super::numbers::{hpa, hva, hvas, page, whole_pages};
use super::pages::{Released, Store};
use super::registry::{NotifierId, Notifiers, Registered};
use super::swap::Swap;
use crate::Arena;
use crate::lock::lock;
use crate::read_mostly::ReadMostly;

/// What the lock `sharing` protects, beside the shared pages.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// The pages that a thread is changing that does not hold the lock.
    pub(super) changing: Range<u64>,
}

/// An address space.
pub struct HostSpace {
    pub(super) arena: Arc<Arena>,
    swap: Swap,
    pub(super) mappings: ReadMostly<Mappings>,
    /// Held over every change but that of a page that gets a frame of its own. Its holder may wait for vCPUs that
    /// are resolving, so those do not wait for it.
    changes: Mutex<()>,
    /// Held while pages come to be shared, and while one of them gets a frame of its own. Taken after `changes`;
    /// its holder waits for TLBs at most.
    pub(super) sharing: Mutex<Sharing>,
    /// Replaced by a thread that has both locks, so that no notifier is being called then.
    notifiers: Mutex<Notifiers>,
    pub(super) held: Held,
    /// A frame of zeroes for all pages of such; its first reference is the space's.
    pub(super) zero: OnceLock<Pfn>,
}

impl HostSpace {
    /// An empty address space whose frames are `arena`'s.
    pub fn new(arena: Arc<Arena>) -> Self {
        let mappings = ReadMostly::new(Mappings::default());
        Self {
            arena,
            swap: Swap::default(),
            mappings,
            changes: Mutex::default(),
            sharing: Mutex::default(),
            notifiers: Mutex::default(),
            held: Held::default(),
            zero: OnceLock::new(),
        }
    }

    /// Where its frames come from.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Maps `size` bytes, rounded up to whole pages (of the backing's size), at addresses of its choice: the lowest
    /// that are free and aligned as the backing's largest block is. An address that was unmapped may come again.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a size of zero. [`Error::OutOfMemory`] where there are no addresses or frames left.
    pub fn mmap(&self, size: u64, backing: Backing, protection: Protection) -> Result<Hva, Error> {
        let rounded = size.checked_next_multiple_of(backing.unit()).ok_or(OutOfMemory)?;
        let count = rounded >> PAGE_SHIFT;
        if count == 0 {
            return Err(Error::Invalid);
        }
        let align = match backing {
            Backing::Contiguous => {
                count.checked_next_power_of_two().ok_or(OutOfMemory)?.min(Level::GIB1.pages())
            }
            _ => backing.unit() / PAGE_SIZE,
        };
        let _changes = self.changes();
        let first = self.mappings.read().areas.gap(count, align).ok_or(OutOfMemory)?;
        let kind = match backing {
            Backing::Pages => Kind::OnDemand { huge: false },
            Backing::HugePages => Kind::OnDemand { huge: true },
            Backing::Contiguous => Kind::Contiguous(Arc::new(self.blocks(first, count)?)),
            Backing::Shared(level) => {
                let block = self.arena.allocate(level.pages().ilog2())?;
                Kind::Shared(Arc::new(Block { first: block, level }))
            }
        };
        let mut mappings = self.mappings.write();
        if let Kind::OnDemand { huge } = kind {
            mappings.pages.insert(&(first..first + count), huge);
        }
        mappings.areas.insert(first, Area { end: first + count, protection, kind });
        Ok(hva(first))
    }

    /// Unmaps whatever is mapped in `range`. A huge page that it takes a part of goes on as pages.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`].
    pub fn munmap(&self, range: Range<Hva>) -> Result<(), Error> {
        let pages = whole_pages(&range)?;
        let _changes = self.changes();
        self.bracket(&Change::taking(range, Reason::Unmap), |mappings, store, released| {
            mappings.unmap(pages, store, released);
        });
        Ok(())
    }

    /// Changes the protection of `range`, which is all mapped. Notifiers hear of it where it takes a permission away.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]; [`Error::NotMapped`], with nothing changed.
    pub fn mprotect(&self, range: Range<Hva>, protection: Protection) -> Result<(), Error> {
        let pages = whole_pages(&range)?;
        let _changes = self.changes();
        let takes_away = {
            let mappings = self.mappings.read();
            if !mappings.areas.cover(pages.clone()) {
                return Err(Error::NotMapped);
            }
            let is_writable = |(_, area): (_, &Area)| area.protection == Protection::ReadWrite;
            protection == Protection::ReadOnly
                && mappings.areas.overlapping(pages.clone()).any(is_writable)
        };
        if takes_away {
            let change = Change::protecting(range, Reason::Protect, Rights::ReadWrite);
            self.bracket(&change, |mappings, _, _| mappings.protect(pages, protection));
        } else {
            self.mappings.write().protect(pages, protection);
        }
        Ok(())
    }

    /// The frame of the page at `hva`, for reading or for writing; the page gets one if it has none, and one of its own
    /// if it is to be written and shares what it has.
    ///
    /// # Errors
    ///
    /// As [`Fault`] says; nothing has changed then.
    pub fn resolve(&self, hva: Hva, write: bool) -> Result<Resolved, Fault> {
        self.with_page(page(hva), write, |resolved| resolved)
    }

    /// The eight bytes at `hva`, as a guest may just be writing them.
    ///
    /// # Errors
    ///
    /// As [`HostSpace::resolve`].
    ///
    /// # Panics
    ///
    /// If `hva` is not a multiple of eight.
    pub fn read_u64(&self, hva: Hva) -> Result<u64, Fault> {
        let load = |frame| self.arena.word(hpa(frame, hva)).load(Ordering::Acquire);
        self.with_page(page(hva), false, |resolved| load(resolved.pfn))
    }

    /// Writes eight bytes at `hva`, as a guest may just be reading them.
    ///
    /// # Errors
    ///
    /// As [`HostSpace::resolve`].
    ///
    /// # Panics
    ///
    /// If `hva` is not a multiple of eight.
    pub fn write_u64(&self, hva: Hva, value: u64) -> Result<(), Fault> {
        let store = |frame| self.arena.word(hpa(frame, hva)).store(value, Ordering::Release);
        self.with_page(page(hva), true, |resolved| store(resolved.pfn))
    }

    /// Resolves `page`, and calls `then` while it stays as it was resolved.
    fn with_page<T>(
        &self,
        page: u64,
        write: bool,
        then: impl FnOnce(Resolved) -> T,
    ) -> Result<T, Fault> {
        loop {
            let obstacle = {
                let mappings = self.mappings.read();
                match mappings.resolve(page, write, self.store())? {
                    Ok(resolved) => return Ok(then(resolved)),
                    Err(obstacle) => obstacle,
                }
            };
            match obstacle {
                Obstacle::Shared => self.unshare(page)?,
                // The holder of the lock is just doing that.
                Obstacle::Leaving => drop(self.sharing()),
                Obstacle::NoPlace => self.make_place(page),
            }
        }
    }

    /// Adds a place for what `page` gets, if it is mapped still.
    fn make_place(&self, page: u64) {
        let mut mappings = self.mappings.write();
        if mappings.areas.find(page).is_some() {
            mappings.pages.make_place(page);
        }
    }

    pub(super) fn changes(&self) -> MutexGuard<'_, ()> {
        // A notifier that panics has told of it; the space is as it was before the change, or after.
        lock(&self.changes)
    }

    pub(super) fn store(&self) -> Store<'_> {
        Store { arena: &self.arena, swap: &self.swap }
    }

    /// Frames for `count` pages from `origin` on.
    fn blocks(&self, origin: u64, count: u64) -> Result<Blocks, OutOfMemory> {
        let mut blocks = Blocks { origin, first: Vec::new() };
        let mut left = count;
        while left > 0 {
            let used = left.min(Level::GIB1.pages());
            let order = used.next_power_of_two().ilog2();
            let Ok(first) = self.arena.allocate(order) else {
                for first in blocks.first {
                    self.arena.put_run(first, Level::GIB1.pages());
                }
                return Err(OutOfMemory);
            };
            self.arena.put_run(Pfn::new(first.get() + used), (1 << order) - used);
            blocks.first.push(first);
            left -= used;
        }
        Ok(blocks)
    }

    /// Has `notifier` told of changes from now on, until [`HostSpace::unregister`]. Waits for a change under way.
    pub fn register(&self, notifier: Arc<dyn Notifier>) -> NotifierId {
        self.edit_notifiers(|notifiers| notifiers.add(notifier))
    }

    /// Has a notifier told no more. Waits for a change under way: the notifier is not being called when this returns.
    pub fn unregister(&self, id: NotifierId) {
        self.edit_notifiers(|notifiers| notifiers.remove(id));
    }

    fn edit_notifiers<T>(&self, edit: impl FnOnce(&mut Notifiers) -> T) -> T {
        let _changes = self.changes();
        let _sharing = self.sharing();
        edit(&mut lock(&self.notifiers))
    }

    pub(super) fn registered(&self) -> Registered {
        lock(&self.notifiers).registered()
    }

    pub(super) fn sharing(&self) -> MutexGuard<'_, Sharing> {
        lock(&self.sharing)
    }

    /// Gives up all frames that pages have left. Waits for TLBs.
    pub(crate) fn settle(&self) {
        self.held.settle(&self.arena);
    }

    /// How many pages are in swap.
    pub fn swapped(&self) -> usize {
        self.swap.len()
    }

    /// Changes what `edit` does, between notifications; the caller has `changes`.
    ///
    /// A page of the range that gets a frame of its own meanwhile does so before `edit` or after it.
    pub(super) fn bracket<T>(
        &self,
        change: &Change,
        edit: impl FnOnce(&mut Mappings, Store<'_>, &mut Released) -> T,
    ) -> T {
        self.bracket_by(change, |notifier| notifier.invalidate_start(change), edit)
    }

    /// The same, where notifiers hear of the start by `start`.
    pub(super) fn bracket_by<T>(
        &self,
        change: &Change,
        start: impl Fn(&dyn Notifier),
        edit: impl FnOnce(&mut Mappings, Store<'_>, &mut Released) -> T,
    ) -> T {
        let registered = self.registered();
        self.sharing().changing = page(change.range.start)..page(change.range.end);
        registered.tell(start);
        let mut released = Released::new();
        let edited = {
            let _sharing = self.sharing();
            edit(&mut self.mappings.write(), self.store(), &mut released)
        };
        registered.tell(|notifier| notifier.invalidate_end(change));
        self.sharing().changing = 0..0;
        for (first, count) in released {
            self.arena.put_run(first, count);
        }
        self.held.release_paid(&self.arena);
        edited
    }
}

impl Drop for HostSpace {
    /// Gives all frames back; notifiers that are still registered hear of it ([`Reason::Exit`]).
    fn drop(&mut self) {
        let pages = 0..1 << (u64::BITS - PAGE_SHIFT - 1);
        let change = Change::taking(hvas(&pages), Reason::Exit);
        let _changes = self.changes();
        self.bracket(&change, |mappings, store, released| mappings.unmap(pages, store, released));
        self.settle();
        if let Some(zero) = self.zero.get() {
            self.arena.put(*zero);
        }
    }
}

impl fmt::Debug for HostSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostSpace").field("swapped", &self.swapped()).finish_non_exhaustive()
    }
}
