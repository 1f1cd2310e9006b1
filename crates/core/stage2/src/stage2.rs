//! The stage-2 translation of a VM, all its roots together.

use alloc::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, Range};
use core::ptr::NonNull;
use core::time::Duration;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::lock::{Lock, LockGuard};
use mayfly_platform::memory::{Kept, Shared};
use mayfly_platform::sync::{AtomicU32, Ordering};
use mayfly_platform::{Mmu, Op, write_fields};
use mayfly_srcu::{Section, Srcu};

use crate::graveyard::Graveyard;
use crate::hold::Holds;
use crate::owed::Ledger;
use crate::own::{Entered, Own};
use crate::parking::Parking;
use crate::range::Slice;
use crate::reclaim::{Reclaimed, Reclaimer};
use crate::replace::Replacement;
use crate::root::{Root, RootRef};
use crate::roots::{Leaving, ROLES, Role, Roots};
use crate::sequence::{Announced, Announcement, InvalidationWaiters, Seen, Sequence};
use crate::space::{Ended, Space};
use crate::tables::Tables;
use crate::vmid::{VcpuMark, Vmids};
use crate::zap::{Tables as Emptied, Told};
use crate::{Error, Format, Leaf, Level};

/// How a VM's stage 2 is built: what it shares with the machine's other VMs.
pub struct Config<F: Format> {
    /// Frames, TLBs, waiting.
    pub mmu: Arc<dyn Mmu>,
    /// Where VMIDs come from.
    pub vmids: Vmids,
    /// Who frees the tables of retired roots.
    pub reclaimer: Arc<Reclaimer<F>>,
    /// The most frames that the VM's tables may take, so that no guest has the host run out of them:
    /// [`Error::TableLimit`]. Those that are unused by now, and not given back yet, count. What needs a table only to
    /// leave something mapped (a block that would be split) does without, as where there is no memory. A root takes
    /// `1 << ROOT_ORDER`, and replacing all of them as many again for a moment. `usize::MAX` is no limit.
    pub max_frames: usize,
}

impl<F: Format> Clone for Config<F> {
    fn clone(&self) -> Self {
        Self {
            mmu: Arc::clone(&self.mmu),
            vmids: self.vmids.clone(),
            reclaimer: Arc::clone(&self.reclaimer),
            max_frames: self.max_frames,
        }
    }
}

/// The stage-2 translation of a VM: a root a role, changed by any number of CPUs at once.
///
/// What vCPUs call ([`Stage2::root`], [`Stage2::sample`], [`Root::map`]) takes no lock. What works on a range goes
/// through every root that a vCPU may be running on.
pub struct Stage2<F: Format> {
    space: Shared<Space>,
    roots: Roots<F>,
    /// Held by those who take roots away.
    writer: Lock<()>,
    reclaimer: Arc<Reclaimer<F>>,
}

impl<F: Format> Stage2<F> {
    /// No roots yet; walkers are readers of `srcu`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    pub fn try_new(config: Config<F>, srcu: &Srcu) -> Result<Self, Error> {
        let ended = Kept::try_new(AtomicU32::new(0))?;
        let bell = config.reclaimer.bell();
        let write = |place| {
            let ended_handle = ended.handle();
            // SAFETY: the place is one to put a space, as `try_new_with` says.
            unsafe {
                write_fields!(place => Space {
                    tables: Tables::new(config.mmu, config.max_frames),
                    parking: Parking::new(),
                    sequence: Sequence::new(ended_handle),
                    own: Own::new(),
                    graveyard: Graveyard::new(),
                    owed: Ledger::new(),
                    srcu: srcu.clone(),
                    vmids: config.vmids,
                    bell: Arc::clone(bell),
                    leaving: Leaving::new(),
                    holds: Holds::new(),
                    _ended: Ended { word: Some(ended), bell: Arc::clone(bell) },
                });
            }
        };
        // SAFETY: all fields are written.
        let space = unsafe { Shared::try_new_with(write) }?;
        let (roots, writer) = (Roots::new(), Lock::new(()));
        Ok(Self { space, roots, writer, reclaimer: config.reclaimer })
    }

    /// What tells a vCPU from all others of the machine, to be entered with.
    pub fn vcpu(&self) -> VcpuMark {
        self.space.vmids.vcpu()
    }

    /// The root of `role`, made if there is none. Takes no lock and waits for nobody.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::Destroyed`] after [`Stage2::retire`].
    ///
    /// # Panics
    ///
    /// If `section` is not one of the VM's domain.
    pub fn root(&self, role: Role, section: &impl Section) -> Result<RootRef<F>, Error> {
        self.check(section);
        self.roots.find_or_create(role, &self.space, section)
    }

    /// Sees to it that there is a root of `role`, for [`Holder::enter`](crate::Holder::enter). Takes no lock and waits for
    /// nobody.
    ///
    /// # Errors
    ///
    /// As [`Stage2::root`].
    pub fn ensure_root(&self, role: Role) -> Result<(), Error> {
        self.roots.ensure(role, &self.space)
    }

    /// The root of `role` that vCPUs load at this moment, if there is one; without a reference of its own, so it is
    /// read inside the section alone.
    ///
    /// # Panics
    ///
    /// If `section` is not one of the VM's domain.
    pub fn find_root<'a>(&'a self, role: Role, section: &'a impl Section) -> Option<&'a Root<F>> {
        self.check(section);
        self.roots.find(role, section)
    }

    /// Every root that a vCPU may be running on, or come to run on, at this moment.
    ///
    /// # Panics
    ///
    /// If `section` is not one of the VM's domain.
    pub fn roots(&self, section: &impl Section) -> impl Iterator<Item = RootRef<F>> {
        self.check(section);
        self.roots.sample(&self.space.leaving, section)
    }

    /// The notifier sequence, for [`Root::map`] of whatever frames: to be sampled before the memslots are read and the
    /// host is asked.
    #[inline]
    pub fn sample(&self) -> Seen {
        self.space.sequence.sample()
    }

    /// Whether what the host said of `gfns`, which are some, after `seen` was sampled is still so: no invalidation of them has begun or
    /// ended since. [`Root::map`] asks for itself; this is for what is not to be mapped for what the host said.
    pub fn is_current(&self, gfns: &Range<Gfn>, seen: Seen) -> bool {
        self.space.sequence.permits(gfns, seen)
    }

    /// Announces that the host takes something of `gfns` away. Until the end, which is the drop of what this returns,
    /// no fault installs anything there.
    pub fn begin_invalidation(&self, gfns: &Range<Gfn>) -> Invalidation<'_> {
        self.begin_invalidation_of(|announce| announce(gfns.clone()))
    }

    /// As [`Stage2::begin_invalidation`], of the ranges that `places` announces, which sees all memslots as they will
    /// be until the end ([`Stage2::change_slots`]). What lies between them is left alone.
    pub fn begin_invalidation_of(
        &self,
        places: impl FnOnce(&mut dyn FnMut(Range<Gfn>)),
    ) -> Invalidation<'_> {
        self.invalidation(self.space.sequence.begin(places, self.mmu()))
    }

    /// Ends an invalidation that was [left](Invalidation::leave).
    ///
    /// # Panics
    ///
    /// If it was begun elsewhere.
    pub fn end_invalidation(&self, announcement: Announcement) {
        self.space.sequence.end(announcement.into_announced(), self.mmu());
    }

    fn check_outside(&self) {
        assert!(
            !self.space.own.has(self.mmu()),
            "memslots are changed inside an invalidation of the caller's own, and would wait for its end"
        );
    }

    fn invalidation(&self, announced: Announced) -> Invalidation<'_> {
        let entered = self.space.own.enter(self.mmu());
        let (space, announcement) = (&*self.space, Announcement(announced));
        Invalidation { space, announcement, entered, stays: PhantomData }
    }

    /// Whether `announcement` is of all of `gfns` in this VM: whether they may be taken away by it.
    ///
    /// Where more than 16 ranges are announced at once, those beyond count as one that reaches from the first to the
    /// last.
    pub fn is_announced(&self, announcement: &Announcement, gfns: &Range<Gfn>) -> bool {
        self.space.sequence.is_announced(announcement.announced(), gfns)
    }

    /// Panics if not: what is mapped again meanwhile would be used when the host has given it to somebody else.
    pub(crate) fn check_announced(&self, announcement: &Announcement, gfns: &Range<Gfn>) {
        assert!(self.is_announced(announcement, gfns), "not all of {gfns:?} was announced here");
    }

    /// Whether an invalidation is under way in `gfns`, which are some: something there may be frozen for longer than a
    /// compare-exchange.
    #[inline]
    pub fn is_invalidating(&self, gfns: &Range<Gfn>) -> bool {
        self.space.sequence.is_active_in(gfns)
    }

    /// Waits until no invalidation is under way in `gfns`.
    pub fn wait_invalidation(&self, gfns: &Range<Gfn>) {
        self.wait_invalidation_unless(gfns, || false);
    }

    /// As [`Stage2::wait_invalidation`], but returns if `called_off` says so, which is asked at first, and when
    /// those who wait are [made to look again](InvalidationWaiters::look_again); what changes before that is not missed.
    pub fn wait_invalidation_unless(&self, gfns: &Range<Gfn>, called_off: impl FnMut() -> bool) {
        self.space.sequence.wait(gfns, called_off, self.mmu());
    }

    /// Those who wait for an invalidation to end.
    pub fn invalidation_waiters(&self) -> InvalidationWaiters {
        self.space.sequence.waiters()
    }

    /// Leaves `kept` to be freed when nobody has a handle to it any more: now, or by the reclaimer, or by whoever leaves
    /// something there later.
    pub fn leave<T: Send + Sync + 'static>(&self, kept: Kept<T>) {
        self.space.bell.leave(kept);
    }

    /// Runs `publish`, which publishes new memslots, while no invalidation is under way; it waits for those that are,
    /// and those that come wait for it. Every fault in `gfns` that had sampled the sequence is refused: that is where
    /// somebody may have found a memslot that has changed.
    ///
    /// So an invalidation, which looks up in the memslots where the host's memory is mapped, knows all the places until
    /// its end.
    ///
    /// # Panics
    ///
    /// In debug builds, where the platform says what [runs here](mayfly_platform::Platform::context), if that has an
    /// [`Invalidation`] under way itself: it would wait for ever.
    pub fn change_slots<T>(&self, gfns: &Range<Gfn>, publish: impl FnOnce() -> T) -> T {
        self.check_outside();
        self.space.sequence.exclude(gfns, publish, self.mmu())
    }

    /// As [`Stage2::change_slots`], where something of `gfns` may have to be taken away: an invalidation of them has
    /// begun before anybody finds the new memslots.
    ///
    /// # Panics
    ///
    /// As [`Stage2::change_slots`].
    pub fn change_slots_and_invalidate<T>(
        &self,
        gfns: &Range<Gfn>,
        publish: impl FnOnce() -> T,
    ) -> (T, Invalidation<'_>) {
        self.check_outside();
        let (published, announced) =
            self.space.sequence.exclude_and_begin(gfns, publish, self.mmu());
        (published, self.invalidation(announced))
    }

    /// Refuses every fault in `gfns` that had sampled the sequence: what it found since is no longer so. Waits for no
    /// invalidation.
    pub fn refuse_faults(&self, gfns: &Range<Gfn>) {
        self.space.sequence.refuse(gfns, self.mmu());
    }

    /// Zaps `gfns` in every root, slice by slice: every page and block that maps something of it, blocks as a whole.
    /// When this returns no CPU uses what was mapped there.
    ///
    /// Until `announcement` ends no fault installs anything of the range again.
    ///
    /// Waits for TLBs, and for entries that others are changing; for no reader. Where too many tables await their
    /// readers, more are emptied and stay, and the [`Reclaimer`] takes them out later.
    ///
    /// # Panics
    ///
    /// If `announcement` is not [of all of `gfns`](Stage2::is_announced).
    pub fn zap(
        &self,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        tables: Emptied,
        slice: Slice,
    ) {
        self.zap_in(None, announcement, gfns, tables, slice);
    }

    /// As [`Stage2::zap`], in the roots of `role` alone.
    ///
    /// # Panics
    ///
    /// As [`Stage2::zap`].
    pub fn zap_role(
        &self,
        role: Role,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        tables: Emptied,
        slice: Slice,
    ) {
        self.zap_in(Some(role), announcement, gfns, tables, slice);
    }

    fn zap_in(
        &self,
        role: Option<Role>,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        tables: Emptied,
        slice: Slice,
    ) {
        self.check_announced(announcement, &gfns);
        self.in_slices_of(role, gfns, |root, left| {
            let from = left.start;
            let zapped = root.zap_slice(left, tables, slice, None);
            if zapped.hanging {
                self.reclaimer.leave_hanging(root, &(from..left.start));
            }
            zapped.done
        });
    }

    /// As [`Stage2::zap`] with [`Tables::Keep`](Emptied::Keep). `each` is told of every leaf, when no CPU uses it any
    /// more: what is then cleaned out of the caches does not get into them again.
    ///
    /// # Panics
    ///
    /// As [`Stage2::zap`].
    pub fn zap_each(
        &self,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        slice: Slice,
        mut each: impl FnMut(Gfn, Level, Leaf),
    ) {
        self.check_announced(announcement, &gfns);
        self.in_slices(gfns, |root, left| {
            let mut told = Told::new();
            let zapped = root.zap_slice(left, Emptied::Keep, slice, Some(&mut told));
            told.leaves().for_each(|(gfn, level, leaf)| each(gfn, level, leaf));
            zapped.done
        });
    }

    /// Write-protects `gfns` in every root, slice by slice. When this returns no CPU writes there without a fault. A
    /// block that juts out is split, so that the guest goes on writing beside; without memory for a table it is
    /// protected as a whole.
    ///
    /// `each` is called with the first frame, and the number of frames, of each leaf that was writable.
    ///
    /// Needs no announcement: every frame stays where it is. A fault that is under way may map a page to be written
    /// right after; who must not have that [refuses](Stage2::refuse_faults) those of before, as who takes marks out of a
    /// dirty log, which those that come later put there again; or is inside an invalidation, as who takes the right
    /// away for the host.
    pub fn write_protect(&self, gfns: Range<Gfn>, slice: Slice, mut each: impl FnMut(Gfn, u64)) {
        self.in_slices(gfns, |root, left| root.write_protect_slice(left, slice, None, &mut each));
    }

    /// As [`Stage2::write_protect`], of those frames of `gfns` that are meant: `meant` says of some, of which each lies in
    /// an entry of its own or all in one table, whether any is. However they lie, TLBs are invalidated once a root and
    /// slice. Blocks are split.
    pub fn write_protect_those(
        &self,
        gfns: Range<Gfn>,
        slice: Slice,
        meant: impl Fn(Range<Gfn>) -> bool,
    ) {
        self.in_slices(gfns, |root, left| {
            root.write_protect_slice(left, slice, Some(&meant), &mut |_, _| ())
        });
    }

    /// Has the pages of `gfns` for which `with` says so mapped to their new frames, to be read, in every root that maps
    /// them to the old ones; with no moment in which they are absent, and one invalidation for each root and slice. A
    /// page becomes absent where that cannot be: where the guest could write to the old frame, or the contents differ;
    /// or where it is mapped to something else. Where it is absent it stays so. When this returns no CPU uses the old
    /// frames for them. `prepare` is called before any CPU can find a new frame, for each root that will have
    /// it, with the leaf that names it.
    ///
    /// Until `announcement` ends no fault brings an old frame back. One change of a page at a time. May be called from
    /// inside a section: it waits for TLBs alone.
    ///
    /// # Panics
    ///
    /// As [`Stage2::zap`].
    pub fn replace(
        &self,
        announcement: &Announcement,
        gfns: Range<Gfn>,
        slice: Slice,
        with: impl Fn(Gfn) -> Option<Replacement>,
        mut prepare: impl FnMut(&Leaf),
    ) {
        self.check_announced(announcement, &gfns);
        self.in_slices(gfns, |root, left| {
            root.replace_slice(left, &with, slice, None, &mut prepare)
        });
    }

    /// Has page `gfn` writable in every root that maps it to frame `pfn`, in place; but for [`Role::MARKED`], where the
    /// first write has to fault. Nothing is done while another invalidation of the page than `announcement` is under
    /// way, which may be about to take away the right to write: a fault gives it then.
    ///
    /// When no CPU has the page by another frame any more.
    ///
    /// # Panics
    ///
    /// As [`Stage2::zap`].
    pub fn allow_writes(&self, announcement: &Announcement, gfn: Gfn, pfn: Pfn) {
        let (page, frame) = (gfn..Gfn::new(gfn.get() + 1), pfn..Pfn::new(pfn.get() + 1));
        self.check_announced(announcement, &page);
        self.space.owed.pay_for(&page, &frame, self.mmu());
        self.in_slices(page, |root, _| {
            root.widen_page(gfn, pfn);
            true
        });
    }

    /// Clears the accessed marks of `gfns` in every root, slice by slice. `each` is called for each leaf that had one.
    /// Needs no announcement: nothing is taken away but a mark, which the next access puts there again.
    pub fn age(&self, gfns: Range<Gfn>, slice: Slice, mut each: impl FnMut(Gfn, u64)) {
        self.in_slices(gfns, |root, left| root.age_slice(left, slice, &mut each));
    }

    /// Puts fresh roots in the places of all that there are. vCPUs load those when they next enter the guest; the
    /// caller has every vCPU leave it, and then calls [`Retiring::finish`], which waits for those who have not.
    ///
    /// Needs no announcement: what faults map in the fresh roots is what the host says. Who means to take something away
    /// by this has announced it.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; nothing is changed then.
    pub fn replace_roots(&self) -> Result<Retiring<'_, F>, Error> {
        let writer = self.writer.lock(self.mmu());
        let mut fresh = [None; ROLES];
        for (place, role) in fresh.iter_mut().zip(self.roots.occupied()) {
            match Root::try_new(&self.space, role) {
                Ok(root) => *place = Some(root),
                Err(error) => {
                    for root in fresh.into_iter().flatten() {
                        // SAFETY: nobody has found it.
                        unsafe { Root::discard(root) };
                    }
                    return Err(error);
                }
            }
        }
        for root in fresh.into_iter().flatten() {
            // SAFETY: made above, and not reclaimed before its place is changed again, which takes the lock.
            let role = unsafe { root.as_ref() }.role();
            self.roots.replace(role, root, &self.space.leaving);
        }
        Ok(Retiring { stage2: self, writer: Some(writer) })
    }

    /// Has no root made any more, and leaves those that there are to the reclaimer. Returns at once. Few tables, which
    /// nobody has to be waited for, it frees itself where the reclaimer is [told
    /// so](crate::Reclaimer::freeing_at_once).
    ///
    /// vCPUs may still be in their guests on them: operations on ranges go through a root until none is.
    pub fn retire(&self) {
        let mut free = false;
        {
            let _writer = self.writer.lock(self.mmu());
            for root in self.roots.close(&self.space.leaving) {
                free |= self.reclaimer.retire(root);
            }
        }
        if free && !self.reclaimer.free_at_once() {
            self.reclaimer.bell().ring();
        }
        self.reclaimer.help();
    }

    /// Waits until every table is freed, after [`Stage2::retire`]: until every vCPU has left its guest, and nobody has a
    /// reference to a root; helps to free them. Not from inside a section.
    pub fn wait_reclaimed(&self) {
        loop {
            while self.reclaimer.run_slice(self.reclaimer.slice()) == Reclaimed::More {
                self.mmu().preemption_point();
            }
            self.space.graveyard.collect_all(&self.space.tables, &self.space.srcu);
            if self.space.tables.wait_empty(Duration::from_millis(1)) {
                return;
            }
        }
    }

    /// Frames that are tables, buried ones and those of retired roots included.
    pub fn frames(&self) -> usize {
        self.space.tables.frames()
    }

    pub(crate) fn in_slices(
        &self,
        gfns: Range<Gfn>,
        one: impl FnMut(&RootRef<F>, &mut Range<Gfn>) -> bool,
    ) {
        self.in_slices_of(None, gfns, one);
    }

    /// In the roots of `role`, or of all roles.
    pub(crate) fn in_slices_of(
        &self,
        role: Option<Role>,
        gfns: Range<Gfn>,
        mut one: impl FnMut(&RootRef<F>, &mut Range<Gfn>) -> bool,
    ) {
        // Collected inside a section, worked on outside: a reference keeps each root.
        let roots: [Option<RootRef<F>>; 2 * ROLES] = {
            let section = self.space.srcu.read_lock();
            let mut roots = self.roots.sample(&self.space.leaving, &section);
            core::array::from_fn(|_| roots.next())
        };
        let is_meant = |root: &RootRef<F>| role.is_none_or(|role| root.role() == role);
        for root in roots.into_iter().flatten().filter(is_meant) {
            let mut left = gfns.clone();
            loop {
                self.mmu().charge(Op::SliceBegin);
                let done = one(&root, &mut left);
                self.mmu().charge(Op::SliceEnd);
                self.mmu().preemption_point();
                if done || root.is_unreachable() {
                    break;
                }
            }
        }
    }

    /// Waits until no vCPU is in its guest on `root`, which is in its place no more.
    fn wait_left(&self, root: NonNull<Root<F>>) {
        let rung = self.reclaimer.rung();
        loop {
            // Before the look: who comes out of the guest that he is found in changes it.
            let before = rung.load(Ordering::Acquire);
            if !self.space.holds.is_held(root, self.mmu()) {
                return;
            }
            self.mmu().wait(rung, before);
        }
    }

    fn check(&self, section: &impl Section) {
        assert!(self.space.srcu.is(section.domain()), "the section is one of another domain");
    }

    pub(crate) fn space(&self) -> &Shared<Space> {
        &self.space
    }

    #[inline]
    pub(crate) fn present(&self, role: Role) -> Option<NonNull<Root<F>>> {
        self.roots.present(role)
    }

    fn mmu(&self) -> &dyn Mmu {
        &*self.space.tables.mmu
    }
}

impl<F: Format> Drop for Stage2<F> {
    fn drop(&mut self) {
        self.retire();
    }
}

impl<F: Format> fmt::Debug for Stage2<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage2")
            .field("format", &F::NAME)
            .field("frames", &self.frames())
            .finish_non_exhaustive()
    }
}

/// An invalidation under way, from [`Stage2::begin_invalidation`]; dropped, it ends. Until then its [`Announcement`] can
/// be shown. It stays with the thread that began it; one that another is to end is [left](Invalidation::leave).
#[must_use = "dropped at once, it ends before anything was taken away"]
pub struct Invalidation<'a> {
    space: &'a Space,
    announcement: Announcement,
    entered: Entered,
    stays: PhantomData<*const ()>,
}

impl Invalidation<'_> {
    /// Leaves it to [`Stage2::end_invalidation`] to end it: for hosts that tell of the start and of the end by different
    /// calls.
    pub fn leave(self) -> Announcement {
        let left = ManuallyDrop::new(self);
        left.space.own.leave(&left.entered);
        Announcement(*left.announced())
    }
}

impl Deref for Invalidation<'_> {
    type Target = Announcement;

    fn deref(&self) -> &Announcement {
        &self.announcement
    }
}

impl Drop for Invalidation<'_> {
    fn drop(&mut self) {
        self.space.own.leave(&self.entered);
        self.space.sequence.end(*self.announced(), &*self.space.tables.mmu);
    }
}

/// Roots that were replaced, and on which vCPUs may still be running. Dropping this is [`Retiring::finish`].
#[must_use = "dropped at once, it ends before the vCPUs have left the old roots"]
pub struct Retiring<'a, F: Format> {
    stage2: &'a Stage2<F>,
    writer: Option<LockGuard<'a, ()>>,
}

impl<F: Format> Retiring<'_, F> {
    /// Leaves the old roots to the reclaimer when no vCPU is in its guest on any of them, and so none will be: operations
    /// on ranges go through them until then. Who has had every vCPU leave waits for nobody. So does the drop.
    ///
    /// No TLB is invalidated here. What TLBs remember of the old roots is under VMIDs that nobody runs under; the
    /// reclaimer invalidates them, once each, before it frees the tables.
    pub fn finish(self) {}
}

impl<F: Format> Drop for Retiring<'_, F> {
    fn drop(&mut self) {
        let (roots, leaving) = (&self.stage2.roots, &self.stage2.space.leaving);
        // Nobody else takes them out meanwhile, who would have the lock.
        roots.leaving(leaving).for_each(|root| self.stage2.wait_left(root));
        for root in self.stage2.roots.take_leaving(&self.stage2.space.leaving) {
            // SAFETY: its reference came with it.
            unsafe { root.as_ref() }.set_unreachable();
            if self.stage2.reclaimer.retire(root) {
                self.stage2.reclaimer.bell().ring();
            }
        }
        self.writer = None;
        self.stage2.reclaimer.help();
    }
}
