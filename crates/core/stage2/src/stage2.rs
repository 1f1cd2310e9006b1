//! The stage-2 translation of a VM: how it is built, its roots, and its end.
//!
//! Each operation on it has its `impl Stage2` in the operation's own file ([`zap`](crate::zap),
//! [`protect`](crate::protect), [`replace`](crate::replace), ...).

use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;
use core::time::Duration;

use mayfly_platform::address::Gfn;
use mayfly_platform::lock::Lock;
use mayfly_platform::memory::{Kept, Shared};
use mayfly_platform::sync::AtomicU32;
use mayfly_platform::{Mmu, Op, write_fields};
use mayfly_srcu::{Section, Srcu};

use crate::graveyard::Graveyard;
use crate::hold::Holds;
use crate::owed::Ledger;
use crate::own::Own;
use crate::parking::Parking;
use crate::reclaim::{Reclaimed, Reclaimer};
use crate::role::{ROLES, Role};
use crate::root::{Root, RootRef};
use crate::roots::{Leaving, Roots};
use crate::sequence::Sequence;
use crate::space::{Ended, Space};
use crate::tables::Tables;
use crate::vmid::{VcpuMark, Vmids};
use crate::{Error, Format};

/// How a VM's stage 2 is built: what it shares with the machine's other VMs.
pub struct Config<F: Format> {
    /// Frames, TLBs, waiting.
    pub mmu: Arc<dyn Mmu>,
    /// Where VMIDs come from.
    pub vmids: Vmids,
    /// Frees the tables of retired roots.
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

/// The stage-2 translation of a VM: a root for each role, which any number of CPUs change at once.
///
/// The calls that vCPUs make ([`Stage2::root`], [`Stage2::sample`], [`Grant::map`](crate::Grant::map)) take no lock. A call that works on a
/// range goes through every root on which a vCPU may be running.
pub struct Stage2<F: Format> {
    pub(crate) space: Shared<Space>,
    pub(crate) roots: Roots<F>,
    /// Held by callers that take roots away.
    pub(crate) writer: Lock<()>,
    pub(crate) reclaimer: Arc<Reclaimer<F>>,
}

impl<F: Format> Stage2<F> {
    /// A translation without roots. The readers of `srcu` are its walkers.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    ///
    /// # Panics
    ///
    /// If the [`Vmids`] are those of other TLBs (`Tlb::tlbs`): their roll-overs would leave what these hold.
    pub fn try_new(config: Config<F>, srcu: &Srcu) -> Result<Self, Error> {
        assert!(config.vmids.are_of(&config.mmu), "the VMIDs are those of another machine");
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
                    retiring: Own::new(),
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

    /// A mark that tells a vCPU from all others of the machine, with which it enters.
    pub fn vcpu(&self) -> VcpuMark {
        self.space.vmids.vcpu()
    }

    /// The root of `role`. It is made if there is none. Takes no lock and does not wait.
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

    /// Makes a root of `role` if there is none, for [`Holder::enter`](crate::Holder::enter). Takes no lock and does not
    /// wait.
    ///
    /// # Errors
    ///
    /// As [`Stage2::root`].
    pub fn ensure_root(&self, role: Role) -> Result<(), Error> {
        self.roots.ensure(role, &self.space)
    }

    /// The root of `role` that vCPUs load at this moment, if there is one. It has no reference of its own, so it may be
    /// read inside the section only.
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

    /// Whether `is` is true of one of those of [`Stage2::roots`].
    pub(crate) fn any_root(&self, section: &impl Section, is: impl Fn(&Root<F>) -> bool) -> bool {
        self.roots.any(&self.space.leaving, section, is)
    }

    /// Leaves `kept` to be freed when nothing has a handle to it any more: now, or by the reclaimer, or by a caller
    /// that leaves something there later.
    pub fn leave<T: Send + Sync + 'static>(&self, kept: Kept<T>) {
        self.space.bell.leave(kept);
    }

    /// Closes the VM's roots: no root is made any more, and the present ones go to the reclaimer. Returns at once. If
    /// few tables await reclaim, and nothing has to be waited for, this call frees them itself where the reclaimer is
    /// [told so](crate::Reclaimer::freeing_at_once).
    ///
    /// vCPUs may still be in their guests on these roots. Operations on ranges go through a root until no vCPU is on
    /// it.
    ///
    /// Waits for the end of a [`Retiring`](crate::Retiring), which waits for vCPUs: for ever if that was forgotten. The
    /// drop does the same, and waits for none.
    ///
    /// # Panics
    ///
    /// In debug builds, where the platform says what [runs here](mayfly_platform::Platform::context), if the caller has
    /// a [`Retiring`](crate::Retiring) of this VM's itself, or has forgotten one.
    pub fn retire(&self) {
        self.check_not_retiring();
        let writer = self.writer.lock(self.mmu());
        let free = self.close();
        drop(writer);
        self.hand_over(free);
    }

    /// Has no root made any more, and leaves those that there are to the reclaimer. Returns whether one can be freed at
    /// once. One at a time.
    fn close(&self) -> bool {
        let mut free = false;
        for root in self.roots.close(&self.space.leaving) {
            free |= self.reclaimer.retire(root);
        }
        free
    }

    /// Has the reclaimer see to what it was left.
    fn hand_over(&self, free: bool) {
        if free && !self.reclaimer.free_at_once() {
            self.reclaimer.bell().ring();
        }
        self.reclaimer.help();
    }

    /// Waits until every table is freed, after [`Stage2::retire`]: until every vCPU has left its guest, and no
    /// reference to a root is left. Helps to free them. Must not be called from inside a section.
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
        let mut roots = [const { None::<RootRef<F>> }; 2 * ROLES];
        {
            let section = self.space.srcu.read_lock();
            let mut places = roots.iter_mut();
            // From within: from outside, each step of the iterator looks for where it is.
            self.roots.sample(&self.space.leaving, &section).for_each(|root| {
                if let Some(place) = places.next() {
                    *place = Some(root);
                }
            });
        }
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

    pub(crate) fn mmu(&self) -> &dyn Mmu {
        &*self.space.tables.mmu
    }
}

impl<F: Format> Drop for Stage2<F> {
    /// As [`Stage2::retire`], without the lock: no other caller has it. If it is held, a [`Retiring`](crate::Retiring)
    /// was forgotten. Then the roots that it would have left to the reclaimer are still in their second places.
    fn drop(&mut self) {
        let mut free = false;
        for root in self.roots.take_leaving(&self.space.leaving) {
            free |= self.reclaimer.retire(root);
        }
        free |= self.close();
        self.hand_over(free);
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
