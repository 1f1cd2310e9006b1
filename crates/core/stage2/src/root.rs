//! A root: the table where a walk begins, and what belongs to it.

use alloc::sync::Arc;
use core::ops::{Deref, Range};
use core::ptr::NonNull;

use mayfly_platform::Mmu;
use mayfly_platform::address::{Gfn, PAGE_SHIFT, Pfn};
use mayfly_platform::lock::Lock;
use mayfly_platform::memory::{Shared, try_box};
use mayfly_platform::observe::Step;
use mayfly_platform::sync::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, CacheLine, Ordering};
use mayfly_platform::tlb::Vmid;
use mayfly_srcu::{Cookie, Section};

use crate::cell::Cell;
use crate::children::Children;
use crate::graveyard::Batches;
use crate::level::INDEX_BITS;
use crate::space::Space;
use crate::vmid::VmidTag;
use crate::{Error, Format, Level, Role};

/// In the count of references: the reclaimer has the root, and is to be told when it is the only one.
const RETIRED: usize = 1 << (usize::BITS - 1);

/// The tables of a VM in one role, from the root down. Reached through a [`RootRef`].
pub struct Root<F: Format> {
    space: Shared<Space>,
    top: Pfn,
    role: Role,
    tag: VmidTag,
    /// References: operations on ranges, and the registry or, after that, the reclaimer. vCPUs in their guests have
    /// none ([`hold`](crate::hold)).
    references: CacheLine<AtomicUsize>,
    /// Operations that have changed entries, and not invalidated them yet ([`Changing`](crate::flush::Changing)).
    /// Written by operations on ranges, and by faults that replace what a TLB may remember.
    pub(crate) changing: CacheLine<AtomicUsize>,
    /// No vCPU runs on it any more, or can begin to.
    unreachable: AtomicBool,
    /// The next root on the reclaimer's list.
    pub(crate) next: AtomicPtr<Self>,
    tables: CacheLine<Population>,
    /// Where tables were left hanging, first frame and end, and the next root on the reclaimer's list of such; both
    /// under the lock of that list.
    pub(crate) hanging: [AtomicU64; 2],
    pub(crate) next_hanging: AtomicPtr<Self>,
    /// Whether it is on that list; under its lock.
    pub(crate) hangs: AtomicBool,
    /// Whether the reclaimer is to hear of tables that were buried, and the next such root ([`buried`](crate::buried)).
    pub(crate) noted: AtomicBool,
    pub(crate) next_noted: AtomicPtr<Self>,
    /// How many those were when the reclaimer got it.
    pub(crate) retired_frames: AtomicUsize,
    /// The grace period that the reclaimer waits for, until it is over.
    pub(crate) readers: Lock<Option<Cookie>>,
    /// The batches of buried tables that had been freed when its own tables were.
    pub(crate) buried_before: Lock<Option<Batches>>,
}

/// What is written when a table is made or freed.
struct Population {
    /// Frames that the tables take.
    frames: AtomicUsize,
    /// Where tables have tables below them.
    children: Children,
}

impl<F: Format> Root<F> {
    /// The first guest frame that no root of the format reaches.
    pub const LIMIT: Gfn = {
        // What the format has promised, as far as it can be seen here.
        let reach = PAGE_SHIFT + F::TOP.shift() + INDEX_BITS + F::ROOT_ORDER;
        assert!(F::IPA_BITS <= reach && F::LARGEST_BLOCK.shift() <= F::TOP.shift());
        assert!(F::PFN_BITS <= u64::BITS - PAGE_SHIFT);
        assert!(F::LARGEST_BLOCK.shift() <= Level::GIB1.shift());
        Gfn::new(1 << (F::IPA_BITS - PAGE_SHIFT))
    };

    /// An empty root, with one reference, which is the caller's.
    pub(crate) fn try_new(space: &Shared<Space>, role: Role) -> Result<NonNull<Self>, Error> {
        let tag = space.vmids.tag()?;
        let top = space.tables.allocate::<F>(F::ROOT_ORDER)?;
        let root = try_box(Self {
            space: space.clone(),
            top,
            role,
            tag,
            references: CacheLine(AtomicUsize::new(1)),
            changing: CacheLine(AtomicUsize::new(0)),
            unreachable: AtomicBool::new(false),
            next: AtomicPtr::new(core::ptr::null_mut()),
            tables: CacheLine(Population {
                frames: AtomicUsize::new(1 << F::ROOT_ORDER),
                children: Children::new(),
            }),
            hanging: [AtomicU64::new(0), AtomicU64::new(0)],
            next_hanging: AtomicPtr::new(core::ptr::null_mut()),
            hangs: AtomicBool::new(false),
            noted: AtomicBool::new(false),
            next_noted: AtomicPtr::new(core::ptr::null_mut()),
            retired_frames: AtomicUsize::new(0),
            readers: Lock::new(None),
            buried_before: Lock::new(None),
        });
        match root {
            Ok(root) => {
                let levels = u32::from(F::TOP.get()) + 1;
                let made = Step::Root { top, order: F::ROOT_ORDER, format: F::NAME, levels };
                space.tables.observing(|| (), |()| Some(made));
                Ok(NonNull::from(alloc::boxed::Box::leak(root)))
            }
            Err(error) => {
                space.tables.free(top, F::ROOT_ORDER);
                Err(error.into())
            }
        }
    }

    /// The frame of its first table: what the translation base register holds.
    #[inline]
    pub fn top(&self) -> Pfn {
        self.top
    }

    /// What it is for.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Under which number TLBs remember it.
    pub fn tag(&self) -> &VmidTag {
        &self.tag
    }

    pub(crate) fn space(&self) -> &Shared<Space> {
        &self.space
    }

    pub(crate) fn mmu(&self) -> &dyn Mmu {
        &*self.space.tables.mmu
    }

    /// The VMID under which TLBs may remember something of it, if they may.
    pub(crate) fn vmid(&self) -> Option<Vmid> {
        self.space.vmids.assigned(&self.tag)
    }

    /// Whether no CPU runs on it any more, so that work on what the guest sees need not be done here.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Acquire)
    }

    pub(crate) fn set_unreachable(&self) {
        self.unreachable.store(true, Ordering::Release);
    }

    /// References that there are.
    pub(crate) fn references(&self) -> usize {
        // Relaxed: between this and the end of the root the reclaimer executes [look], a fence, which pairs with the release
        // of each reference that was given up.
        self.references.load(Ordering::Relaxed) & !RETIRED
    }

    /// Whether the reclaimer has the root.
    pub(crate) fn is_retired(&self) -> bool {
        self.references.load(Ordering::Relaxed) & RETIRED != 0
    }

    /// Says that the reclaimer has the root. Returns whether no other reference exists. If one does, the caller that
    /// gives up the last but one tells the reclaimer: of these two steps on one word one comes first.
    pub(crate) fn set_retired(&self) -> bool {
        // Relaxed: whoever frees the root asks for `references` first.
        self.references.fetch_or(RETIRED, Ordering::Relaxed) == 1
    }

    /// Frames that its tables take.
    pub fn frames(&self) -> usize {
        self.tables.frames.load(Ordering::Relaxed)
    }

    /// Where tables have tables below them.
    pub(crate) fn children(&self) -> &Children {
        &self.tables.children
    }

    /// An empty table for this root.
    pub(crate) fn allocate_table(&self) -> Result<Pfn, Error> {
        let table = self.space.tables.allocate::<F>(0)?;
        self.tables.frames.fetch_add(1, Ordering::Relaxed);
        Ok(table)
    }

    /// Gives a table back, which no CPU can find any more.
    pub(crate) fn free_table(&self, table: Pfn) {
        self.tables.frames.fetch_sub(1, Ordering::Relaxed);
        self.space.tables.free(table, 0);
    }

    /// A table is not this root's any more; it is still to be freed.
    pub(crate) fn disowned_table(&self) {
        self.tables.frames.fetch_sub(1, Ordering::Relaxed);
    }

    /// The cell of `level` for `gfn` in `table`.
    #[inline]
    pub(crate) fn cell(&self, table: Pfn, level: Level, gfn: Gfn) -> Cell<'_, F> {
        self.space.tables.cell(table, level.index_in::<F>(gfn))
    }

    /// Whether a guest can have frame `gfn`.
    #[inline]
    pub(crate) fn reaches(gfn: Gfn) -> bool {
        gfn < Self::LIMIT
    }

    /// The frames of the entry of `level` that `gfn` lies in.
    pub(crate) fn span(gfn: Gfn, level: Level) -> Result<Range<Gfn>, Error> {
        let first = level.first(gfn);
        if Self::reaches(gfn) {
            Ok(first..Gfn::new(first.get() + level.pages()))
        } else {
            Err(Error::OutOfRange { gfn, limit: Self::LIMIT })
        }
    }

    /// # Panics
    ///
    /// If `section` does not keep this VM's tables.
    #[inline]
    pub(crate) fn check(&self, section: &impl Section) {
        assert!(self.space.srcu.is(section.domain()), "the section is one of another domain");
    }
}

impl<F: Format> core::fmt::Debug for Root<F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Root")
            .field("format", &F::NAME)
            .field("role", &self.role)
            .field("top", &self.top)
            .finish_non_exhaustive()
    }
}

/// A reference to a root, which is not reclaimed while there is one.
pub struct RootRef<F: Format> {
    root: NonNull<Root<F>>,
}

// SAFETY: a counted reference to a `Root`, which is shared between threads through atomics.
unsafe impl<F: Format> Send for RootRef<F> {}
// SAFETY: as above.
unsafe impl<F: Format> Sync for RootRef<F> {}

impl<F: Format> RootRef<F> {
    /// Another reference.
    ///
    /// # Safety
    ///
    /// `root` has a reference, which is not given up before this returns, and came from [`Root::try_new`].
    pub(crate) unsafe fn acquire(root: NonNull<Root<F>>) -> Self {
        // SAFETY: as the caller promises.
        // Relaxed: the reference that there is orders what came before.
        unsafe { root.as_ref() }.references.fetch_add(1, Ordering::Relaxed);
        Self { root }
    }

    /// Gives it up as a pointer, to be taken back with [`RootRef::from_raw`].
    pub(crate) fn into_raw(self) -> NonNull<Root<F>> {
        let root = self.root;
        core::mem::forget(self);
        root
    }

    /// Takes back a reference.
    ///
    /// # Safety
    ///
    /// `root` came from [`RootRef::into_raw`], and is taken back once.
    pub(crate) unsafe fn from_raw(root: NonNull<Root<F>>) -> Self {
        Self { root }
    }

    /// Whether this is the root there.
    pub(crate) fn is_at(&self, root: NonNull<Root<F>>) -> bool {
        self.root == root
    }

    /// Whether both are the same root.
    pub fn is(&self, other: &Self) -> bool {
        self.root == other.root
    }
}

impl<F: Format> Deref for RootRef<F> {
    type Target = Root<F>;

    #[inline]
    fn deref(&self) -> &Root<F> {
        // SAFETY: this reference keeps the root.
        unsafe { self.root.as_ref() }
    }
}

impl<F: Format> Clone for RootRef<F> {
    fn clone(&self) -> Self {
        // SAFETY: `self` is a reference that stays.
        unsafe { Self::acquire(self.root) }
    }
}

impl<F: Format> Drop for RootRef<F> {
    /// Never frees: the last reference is the reclaimer's, which is told when there is no other. The root may be gone
    /// by then, so the bell is held meanwhile.
    fn drop(&mut self) {
        let bell = Arc::clone(&self.space.bell);
        // Release, pairing with [look] behind `references`: what was done with the root comes before it is freed. Nothing is
        // done with it here any more, so nothing of others' is acquired.
        let before = self.references.fetch_sub(1, Ordering::Release);
        debug_assert!(before & !RETIRED > 1, "the last reference is the reclaimer's");
        if before == RETIRED | 2 {
            bell.ring();
        }
    }
}
