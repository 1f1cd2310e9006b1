//! The host's address space: what a VMM maps, and what backs its VMs' slots.
//!
//! As Linux's `mm`, as far as a hypervisor sees of it. [`HostSpace::mmap`] gives ranges of addresses; their frames come
//! from the [`Arena`] when they are first resolved (or at once, and contiguous; or the same one everywhere).
//! [`HostSpace::resolve`] is the way from an address to a frame. Whoever uses frames beyond that, as stage 2 does,
//! registers a [`Notifier`].
//!
//! *Order.* `changes` makes changes come one after the other; it is held over all of one, its notifications included.
//! `mappings` is what resolving reads: closed for the moment of the change proper, open while notifiers are called. So
//! a vCPU that resolves never waits for a notifier, and what it resolves during a change may be old: the notifier's
//! sequence tells (start before the change, end after). The exception is a page that is shared (`sharing`).
//!
//! *What is guaranteed.* A frame that a change takes away is given back to the arena after the last `invalidate_end`
//! has returned. So none is given out again before, be it to the same space. A frame that was resolved is good until a
//! notifier hears of its range; for somebody without a notifier, while nobody changes that range.

mod area;
mod held;
mod mappings;
mod notifier;
mod pages;
mod paging;
mod registry;
mod remap;
mod sharing;
mod swap;

use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use mayfly_platform::address::{Hpa, Hva, PAGE_SHIFT, PAGE_SIZE, Pfn};
use mayfly_platform::memory::OutOfMemory;
use mayfly_stage2::Level;

use crate::Arena;
use crate::lock::lock;
use crate::read_mostly::ReadMostly;
use area::{Area, Block, Blocks, Kind};
use held::Held;
use mappings::{Mappings, Obstacle};
pub use mayfly_vm::Protection as Rights;
pub use notifier::{Change, Notifier, PageChange, Reason};
use pages::{Released, Store};
pub use registry::NotifierId;
use registry::Notifiers;
use sharing::Sharing;
pub(crate) use sharing::{Looked, Merged, equal};
use swap::Swap;

/// What a range of addresses gets for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Pages of 4 KiB, each when it is first resolved.
    Pages,
    /// Pages of 2 MiB, each when it is first resolved.
    HugePages,
    /// Frames one after the other (within each GiB), all of them at once, and all there for good: no page of it is
    /// reclaimed or migrated. They take room where they are touched.
    Contiguous,
    /// The same block of this level everywhere. All there for good as well.
    Shared(Level),
}

impl Backing {
    /// What sizes are rounded up to a multiple of, in bytes.
    pub const fn unit(self) -> u64 {
        let level = match self {
            Self::Pages | Self::Contiguous => Level::PAGE,
            Self::HugePages => Level::MIB2,
            Self::Shared(level) => level,
        };
        level.pages() * PAGE_SIZE
    }
}

/// What may be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// It may be read.
    ReadOnly,
    /// It may be read and written.
    ReadWrite,
}

/// Why an address space was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The size is zero, or the range is empty or not of whole pages; or this cannot be done to what is there (EINVAL).
    #[error("not a range of whole pages, or not of such")]
    Invalid,
    /// Some of the range is not mapped (ENOMEM).
    #[error("not all of it is mapped")]
    NotMapped,
    /// There are not so many addresses or frames (ENOMEM).
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Why an address has no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is not mapped (SIGSEGV).
    #[error("not mapped")]
    NotMapped,
    /// It is mapped to be read only (SIGSEGV).
    #[error("mapped to be read only")]
    ReadOnly,
    /// No frame is left.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Its page's frame.
    pub pfn: Pfn,
    /// The largest block around it that is one in the host: aligned addresses, aligned frames, one after the other,
    /// with one protection. A page of 4 KiB or 2 MiB, or up to 1 GiB of [`Backing::Contiguous`] and
    /// [`Backing::Shared`].
    pub level: Level,
    /// Whether it may be written.
    pub writable: bool,
}

/// An address space.
pub struct HostSpace {
    arena: Arc<Arena>,
    swap: Swap,
    mappings: ReadMostly<Mappings>,
    /// Held over every change but that of a page that gets a frame of its own. Whoever has it may wait for vCPUs that
    /// are resolving, so those do not wait for it.
    changes: Mutex<()>,
    /// Held while pages come to be shared, and while one of them gets a frame of its own. Taken after `changes`;
    /// whoever has it waits for TLBs at most.
    sharing: Mutex<Sharing>,
    /// Replaced by whoever has both locks, so nobody is being called then.
    notifiers: Mutex<Notifiers>,
    /// Held by nobody who waits.
    held: Mutex<Held>,
    /// A frame of zeroes for all pages of such; its first reference is the space's.
    zero: OnceLock<Pfn>,
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
            held: Mutex::default(),
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
                // Who has the lock is at it.
                Obstacle::Leaving => drop(self.sharing()),
            }
        }
    }

    fn changes(&self) -> MutexGuard<'_, ()> {
        // A notifier that panics has told of it; the space is as it was before the change, or after.
        lock(&self.changes)
    }

    fn store(&self) -> Store<'_> {
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

    /// Changes what `edit` does, between notifications; the caller has `changes`.
    ///
    /// A page of the range that gets a frame of its own meanwhile does so before `edit` or after it.
    fn bracket(&self, change: &Change, edit: impl FnOnce(&mut Mappings, Store<'_>, &mut Released)) {
        let registered = self.registered();
        self.sharing().changing = page(change.range.start)..page(change.range.end);
        registered.tell(|notifier| notifier.invalidate_start(change));
        let mut released = Released::new();
        {
            let _sharing = self.sharing();
            edit(&mut self.mappings.write(), self.store(), &mut released);
        }
        registered.tell(|notifier| notifier.invalidate_end(change));
        self.sharing().changing = 0..0;
        for (first, count) in released {
            self.arena.put_run(first, count);
        }
        self.release_paid();
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

fn page(hva: Hva) -> u64 {
    hva.get() >> PAGE_SHIFT
}

fn hva(page: u64) -> Hva {
    Hva::new(page << PAGE_SHIFT)
}

fn hvas(pages: &Range<u64>) -> Range<Hva> {
    hva(pages.start)..hva(pages.end)
}

/// The address of `hva` in its page's frame.
fn hpa(frame: Pfn, hva: Hva) -> Hpa {
    Hpa::new((frame.get() << PAGE_SHIFT) + hva.get() % PAGE_SIZE)
}

/// The numbers of the pages of `range`.
pub(crate) fn whole_pages(range: &Range<Hva>) -> Result<Range<u64>, Error> {
    let is_whole = range.start < range.end
        && [range.start, range.end].iter().all(|hva| hva.get() % PAGE_SIZE == 0);
    if is_whole { Ok(page(range.start)..page(range.end)) } else { Err(Error::Invalid) }
}
