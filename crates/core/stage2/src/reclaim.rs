//! Reclaiming roots that are out of use.
//!
//! A root that is retired goes to the [`Reclaimer`], with the reference that its place in the VM had. The reclaimer
//! waits for everything that may still lead to the root, in this order:
//!
//! 1. It waits for a grace period, for the readers that have found the root in its place inside a section: vCPUs that
//!    handle an exit, and operations on ranges that are about to add a reference.
//! 2. It waits for the references, until only its own is left: operations on ranges give theirs up when they are done.
//!    The caller that gives up the last but one rings the [`Bell`]. The reclaimer also waits for the vCPUs that are in
//!    their guests on the root ([`hold`](crate::hold)); the last of these rings the bell too. It does not wait for a
//!    vCPU that is outside, however long that stays there. Steps 1 and 2 are repeated once for a root of a destroyed
//!    VM, because operations on ranges find such a root until no vCPU is in a guest on it.
//! 3. Some CPUs' translation base registers may still name the root, though no vCPU is in a guest there. Such a CPU may
//!    walk from the root speculatively. So the reclaimer takes the root from them
//!    ([`Vmids::leave`](crate::Vmids::leave)), and then invalidates everything under the root's VMID once. Both come
//!    after the vCPUs, since a vCPU that still ran on the root could fill its TLB from it again
//!    (`litmus/S2+leave+free`).
//! 4. It frees the tables, a slice at a time. Nothing else can find them, so this needs no atomic read-modify-write,
//!    and no look at the leaves: a leaf owns nothing. (A frame is dirty for the host from the moment that it is mapped
//!    writable, so no mark has to be saved either.)
//!
//! Neither a vCPU nor a caller that retires a root waits for any of that, as long as what awaits reclaim stays below a
//! bound. A caller that goes above the bound does some of the work. So does a caller that retires little, where freeing
//! it costs less than waking a thread ([`Reclaimer::freeing_at_once`]).

mod serve;
mod work;

use alloc::sync::Arc;
use core::ptr::NonNull;
use core::time::Duration;

use mayfly_platform::address::Gfn;
use mayfly_platform::lock::{Lock, LockGuard};
use mayfly_platform::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use mayfly_platform::tlb::Scope;
use mayfly_platform::{Mmu, Op};
use mayfly_srcu::{Asked, Cookie, Srcu};

use work::{Advanced, Freeing, Gone, Stage, Work};

use crate::Format;
use crate::bell::Bell;
use crate::list::List;
use crate::range::{Budget, Slice};
use crate::root::Root;
use crate::space::Space;

/// The slice of a caller that destroys a VM of few tables: their number bounds it, and a part of the work would be of
/// no use.
const AT_ONCE: Slice = Slice { entries: u32::MAX, time: Duration::from_secs(1) };

/// Of what is in the attic, so much is looked at in a slice of reclaim.
const ATTIC_SLICE: usize = 64;

/// What a slice of reclaim came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimed {
    /// Nothing is left to do.
    All,
    /// There is more to do at once.
    More,
    /// What is left waits: for vCPUs that handle an exit, or are in their guests on a root; or for operations on
    /// ranges.
    Waits,
}

/// Frees the tables of retired roots, in the background, for all VMs of a machine.
///
/// The embedder calls [`Reclaimer::run_slice`] when it has time, or gives it a thread that calls [`Reclaimer::serve`].
pub struct Reclaimer<F: Format> {
    bell: Arc<Bell>,
    /// The most frames that may await reclaim before callers that retire roots help.
    bound: usize,
    /// The most frames that may await reclaim for a caller that destroys a VM to free its tables itself.
    at_once: usize,
    /// What of the work others do at a time.
    slice: Slice,
    /// Frames of roots on the list.
    frames: AtomicUsize,
    peak: AtomicUsize,
    list: Lock<List<F>>,
    /// Roots in which empty tables hang, or whose VMs have buried tables ([`prune`](crate::prune)).
    pub(crate) hanging: Lock<List<F>>,
    /// Held by the caller that frees.
    work: Lock<Freeing<F>>,
    /// Something is waited for that may come to pass without the bell being rung.
    blind: AtomicBool,
    /// Slices that [`Reclaimer::serve`] has run.
    turns: AtomicU64,
    stopped: AtomicBool,
}

impl<F: Format> Reclaimer<F> {
    /// 1 GiB of tables: those of 512 GiB of guest memory in pages.
    pub const BOUND: usize = 1 << 18;

    /// For roots whose tables take at most `bound` frames together, beyond which a caller that retires one helps.
    ///
    /// `mmu` is that of the VMs' machine: the reclaimer takes its locks, sleeps and is woken there. A table is freed by
    /// the VM's own, so that another machine's makes no call unsafe; but then a caller may wait for ever.
    pub fn new(mmu: Arc<dyn Mmu>, bound: usize) -> Self {
        Self {
            bell: Arc::new(Bell::new(mmu)),
            blind: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            bound,
            at_once: 0,
            slice: Slice::default(),
            frames: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            list: Lock::new(List::new(|root| &root.next)),
            hanging: Lock::new(List::new(|root| &root.next_hanging)),
            work: Lock::new(Freeing { present: None, gone: Gone::new() }),
            stopped: AtomicBool::new(false),
        }
    }

    /// Has a caller that destroys a VM free its tables itself where no more than `frames` await reclaim, and they can
    /// be freed without waiting: for so few, waking a thread takes longer, and costs the waker about as much. Where
    /// there is something to wait for, or another caller is freeing, they are left to the background as ever.
    #[must_use]
    pub fn freeing_at_once(mut self, frames: usize) -> Self {
        self.at_once = frames;
        self
    }

    /// Has callers other than [`Reclaimer::serve`] work by such slices: those that retire a root beyond the bound, and
    /// those that wait.
    #[must_use]
    pub fn with_slice(mut self, slice: Slice) -> Self {
        self.slice = slice;
        self
    }

    /// What others work by.
    pub(crate) fn slice(&self) -> Slice {
        self.slice
    }

    /// Frames of tables that await reclaim.
    pub fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    /// The most that there were.
    pub fn peak_frames(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// The bell: a word that changes, and is then [woken](mayfly_platform::Platform::wake), when there may be more to
    /// reclaim than before. A caller that calls [`Reclaimer::run_slice`] itself loads it before that, and where it came
    /// to [`Reclaimed::All`] need not come again while it is the same:
    /// [`Platform::wait`](mayfly_platform::Platform::wait). Only the reclaimer writes it.
    pub fn rung(&self) -> &AtomicU32 {
        self.bell.word.rung()
    }

    pub(crate) fn mmu(&self) -> &dyn Mmu {
        &*self.bell.mmu
    }

    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Takes over `root`, with the reference that its place had. Does not wait. Returns whether no other reference
    /// exists: then the caller rings, or [frees](Reclaimer::free_at_once) it. A caller that retires some
    /// [helps](Reclaimer::help) afterwards.
    #[must_use]
    pub(crate) fn retire(&self, root: NonNull<Root<F>>) -> bool {
        let mmu = &*self.bell.mmu;
        // SAFETY: the reference that came with it.
        let retired = unsafe { root.as_ref() };
        let frames = retired.frames();
        retired.retired_frames.store(frames, Ordering::Relaxed);
        *retired.readers.lock(mmu) = Some(retired.space().srcu.cookie());
        let before = self.frames.fetch_add(frames, Ordering::Relaxed);
        self.peak.fetch_max(before + frames, Ordering::Relaxed);
        let mut list = self.list.lock(mmu);
        list.push(root);
        // With the lock still held, so that the root is not gone yet.
        retired.set_retired()
    }

    /// Frees what awaits reclaim, where that is [little](Reclaimer::freeing_at_once) and nothing has to be waited for.
    /// Returns whether nothing is left. Not with a lock held that a vCPU may take.
    pub(crate) fn free_at_once(&self) -> bool {
        let mmu = &*self.bell.mmu;
        if self.frames() > self.at_once {
            return false;
        }
        // The holder of the lock may be through with the list already, and need the bell.
        let Some(mut work) = self.work.try_lock(mmu) else { return false };
        mmu.charge(Op::SliceBegin);
        let reclaimed = self.run(&mut work, Budget::new(AT_ONCE, mmu));
        mmu.charge(Op::SliceEnd);
        Freeing::release(work);
        reclaimed == Reclaimed::All
    }

    /// Frees what is past the bound, as far as nothing has to be waited for. Not with a lock held that a vCPU may take.
    ///
    /// The caller may have the lock of its VM's slots. So it leaves to others what runs code of VMs that are gone.
    pub(crate) fn help(&self) {
        while self.frames() > self.bound {
            let (reclaimed, work) = self.free_slice(self.slice);
            if !work.gone.is_empty() {
                self.bell.ring();
            }
            drop(work);
            if reclaimed != Reclaimed::More {
                return;
            }
            self.mmu().preemption_point();
        }
    }

    /// Frees for a slice, or finds that there is nothing to do now. Waits only for TLBs, and for another caller that
    /// does the same work.
    ///
    /// With the last of a VM, what it has deferred runs here, and its devices are dropped, under no lock.
    pub fn run_slice(&self, slice: Slice) -> Reclaimed {
        let (reclaimed, work) = self.free_slice(slice);
        Freeing::release(work);
        reclaimed
    }

    /// Frees for a slice. The caller releases the lock, and sees to what is gone.
    fn free_slice(&self, slice: Slice) -> (Reclaimed, LockGuard<'_, Freeing<F>>) {
        let mmu = &*self.bell.mmu;
        self.bell.look_through_attic(ATTIC_SLICE);
        self.heed_noted();
        let mut work = self.work.lock(mmu);
        mmu.charge(Op::SliceBegin);
        let reclaimed = match self.run(&mut work, Budget::new(slice, mmu)) {
            Reclaimed::More => Reclaimed::More,
            // Retired roots first.
            waits_or_all => match self.prune(slice) {
                Reclaimed::All => waits_or_all,
                other => other,
            },
        };
        mmu.charge(Op::SliceEnd);
        (reclaimed, work)
    }

    fn run(&self, work: &mut Freeing<F>, mut budget: Budget<'_>) -> Reclaimed {
        let mmu = &*self.bell.mmu;
        let mut waiting: Option<NonNull<Root<F>>> = None;
        loop {
            let Some(present) = work.present.take().or_else(|| self.next()) else {
                return Reclaimed::All;
            };
            let root = present.root;
            match self.advance(present, &mut budget) {
                Advanced::Done => {
                    work.gone.push(root);
                    waiting = waiting.filter(|waiting| *waiting != root);
                }
                Advanced::Spent(present) => {
                    work.present = Some(present);
                    return Reclaimed::More;
                }
                Advanced::Waits(present) => {
                    // Others first; it comes up again when all have been tried.
                    if waiting == Some(root) || self.is_list_empty() {
                        work.present = Some(present);
                        return Reclaimed::Waits;
                    }
                    waiting = waiting.or(Some(root));
                    self.list.lock(mmu).push(root);
                }
            }
        }
    }

    /// Whether the grace period is over; if it is not, the bell is rung when something of it is.
    fn is_over(&self, srcu: &Srcu, cookie: Cookie) -> bool {
        let asked = srcu.poll_or_ring(cookie, &self.bell.word);
        if asked == Asked::MayRing {
            self.look_again();
        }
        asked == Asked::Over
    }

    /// Frees of what `space` has buried what can be freed now. Returns whether nothing is left; if something is, the
    /// bell is rung when more can be freed.
    pub(crate) fn collect(&self, space: &Space) -> bool {
        let is_over = |cookie| self.is_over(&space.srcu, cookie);
        if !space.graveyard.collect_if(&space.tables, &space.srcu, is_over) {
            // Another caller is freeing, and does not ring when it is through.
            self.look_again();
        }
        space.graveyard.count() == 0
    }

    fn is_list_empty(&self) -> bool {
        self.list.lock(&*self.bell.mmu).is_empty()
    }

    /// The root that came first, off the list.
    fn next(&self) -> Option<Work<F>> {
        let mmu = &*self.bell.mmu;
        let root = self.list.lock(mmu).pop()?;
        // SAFETY: the reclaimer's reference.
        let is_empty = unsafe { root.as_ref() }.buried_before.lock(mmu).is_some();
        Some(Work { root, stage: if is_empty { Stage::Buried } else { Stage::Held } })
    }

    fn advance(&self, mut work: Work<F>, budget: &mut Budget<'_>) -> Advanced<F> {
        // SAFETY: the reclaimer's reference.
        let root = unsafe { work.root.as_ref() };
        if let Stage::Held = work.stage {
            let mut readers = root.readers.lock(&*self.bell.mmu);
            loop {
                if readers.is_some_and(|cookie| !self.is_over(&root.space().srcu, cookie)) {
                    return Advanced::Waits(work);
                }
                *readers = None;
                if root.references() > 1
                    || root.space().holds.is_held(work.root.cast(), &*self.bell.mmu)
                {
                    return Advanced::Waits(work);
                }
                if !root.space().leaving.remove(root.role(), work.root.cast()) {
                    break;
                }
                *readers = Some(root.space().srcu.cookie());
            }
            // In this order: what a CPU may still walk from cannot be invalidated for good, and the root that gets the
            // VMID next is not to find anything under it.
            // SAFETY: no vCPU is in its guest on the root: no hold names it, and it is in no place where one finds it.
            // What is under its number has been invalidated when that is retired.
            unsafe {
                root.space().vmids.leave(root.tag());
                root.invalidate_tlb(Scope::All);
                root.space().vmids.retire(root.tag());
            }
            work.stage = Stage::Tables(Gfn::new(0));
        }
        if let Stage::Tables(mut from) = work.stage {
            let freed = root.free_tables(root.top(), F::TOP, &mut from, budget);
            if freed.is_break() {
                work.stage = Stage::Tables(from);
                return Advanced::Spent(work);
            }
            self.frames.fetch_sub(root.retired_frames.load(Ordering::Relaxed), Ordering::Relaxed);
            *root.buried_before.lock(&*self.bell.mmu) = Some(root.space().graveyard.batches());
            work.stage = Stage::Buried;
        }
        let before = *root.buried_before.lock(&*self.bell.mmu);
        let is_freed = |before| root.space().graveyard.has_freed_what_was_there(before);
        if !self.collect(root.space()) && !before.is_some_and(is_freed) {
            return Advanced::Waits(work);
        }
        // SAFETY: no other reference is left.
        unsafe { Root::free_top(work.root) };
        Advanced::Done
    }
}

impl<F: Format> core::fmt::Debug for Reclaimer<F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reclaimer").field("frames", &self.frames()).finish_non_exhaustive()
    }
}

impl<F: Format> Drop for Reclaimer<F> {
    /// Frees what is left. A root that still has another reference, or on which a vCPU is in a guest, is never freed.
    fn drop(&mut self) {
        // Before the rest, since these hold roots.
        self.heed_noted();
        while self.next_hanging().is_some() {}
        while self.run_slice(self.slice) == Reclaimed::More {
            self.mmu().preemption_point();
        }
    }
}
