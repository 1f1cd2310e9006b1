//! Replacing all roots by fresh ones, and leaving the old ones to the reclaimer ([`roots`](crate::roots)).

use core::marker::PhantomData;
use core::ptr::NonNull;

use mayfly_platform::lock::LockGuard;
use mayfly_platform::sync::Ordering;

use crate::own::Entered;
use crate::role::ROLES;
use crate::root::Root;
use crate::{Error, Format, Stage2};

impl<F: Format> Stage2<F> {
    /// Replaces all roots by fresh ones. vCPUs load those when they next enter the guest. The caller has every vCPU
    /// leave the guest, and then calls [`Retiring::finish`], which waits for those that have not left.
    ///
    /// Needs no announcement: what faults map in the fresh roots is what the host says. A caller that takes something
    /// away by this has announced it.
    ///
    /// One caller at a time: the next waits until the [`Retiring`] of the one before has ended. If that was
    /// [forgotten](core::mem::forget), it waits for ever.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; and [`Error::Destroyed`] after [`Stage2::retire`], when there are no roots to replace, and
    /// vCPUs may still be in their guests on those that there were. Nothing is changed then. A caller that takes
    /// something away zaps it by its range.
    ///
    /// # Panics
    ///
    /// In debug builds, where the platform says what [runs here](mayfly_platform::Platform::context), if the caller has
    /// a [`Retiring`] of this VM's itself, or has forgotten one: it would wait for ever.
    pub fn replace_roots(&self) -> Result<Retiring<'_, F>, Error> {
        self.check_not_retiring();
        let writer = self.writer.lock(self.mmu());
        if self.roots.is_closed() {
            return Err(Error::Destroyed);
        }
        let mut fresh = [None; ROLES];
        for (place, role) in fresh.iter_mut().zip(self.roots.occupied()) {
            match Root::try_new(&self.space, role) {
                Ok(root) => *place = Some(root),
                Err(error) => {
                    for root in fresh.into_iter().flatten() {
                        // SAFETY: no CPU has found it.
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
        let entered = self.space.retiring.enter(self.mmu());
        Ok(Retiring { stage2: self, writer: Some(writer), entered, stays: PhantomData })
    }

    pub(crate) fn check_not_retiring(&self) {
        assert!(
            !self.space.retiring.has(self.mmu()),
            "roots are replaced while the caller's own `Retiring` has not ended, and would wait for its end"
        );
    }

    /// Waits until no vCPU is in its guest on `root`, which is in its place no more.
    fn wait_left(&self, root: NonNull<Root<F>>) {
        let rung = self.reclaimer.rung();
        loop {
            // Before the look: a vCPU that comes out of the guest in which it is found changes it.
            let before = rung.load(Ordering::Acquire);
            if !self.space.holds.is_held(root.cast(), self.mmu()) {
                return;
            }
            self.mmu().wait(rung, before);
        }
    }
}

/// Roots that were replaced, and on which vCPUs may still be running. Dropping this is [`Retiring::finish`].
///
/// It stays with the thread that replaced them. If it is [forgotten](core::mem::forget), the old roots last as long as
/// the VM, and roots can neither be replaced nor [retired](Stage2::retire) any more: such a call waits for ever. Debug
/// builds find it where the thread that has forgotten it makes the call. The VM can be dropped.
///
/// ```compile_fail,E0277
/// fn sent<T: Send>() {}
/// sent::<mayfly_stage2::Retiring<'static, mayfly_stage2::Ept>>();
/// ```
#[must_use = "dropped at once, it ends before the vCPUs have left the old roots"]
pub struct Retiring<'a, F: Format> {
    stage2: &'a Stage2<F>,
    writer: Option<LockGuard<'a, ()>>,
    entered: Entered,
    stays: PhantomData<*const ()>,
}

impl<F: Format> Retiring<'_, F> {
    /// Leaves the old roots to the reclaimer when no vCPU is in its guest on any of them, and so none will be.
    /// Operations on ranges go through the old roots until then. If every vCPU has left already, this does not wait.
    /// The drop does the same.
    ///
    /// No TLB is invalidated here. What TLBs remember of the old roots is under VMIDs under which no vCPU runs. The
    /// reclaimer invalidates them, once each, before it frees the tables.
    pub fn finish(self) {}

    /// Returns when no vCPU is in its guest on any of the old roots, and so none will be: [`Retiring::finish`] does not wait
    /// then.
    pub fn wait_left(&self) {
        let Self { stage2, .. } = self;
        stage2.roots.leaving(&stage2.space.leaving).for_each(|root| stage2.wait_left(root));
    }
}

impl<F: Format> Drop for Retiring<'_, F> {
    fn drop(&mut self) {
        // No other call takes them out meanwhile: it would have the lock.
        self.wait_left();
        for root in self.stage2.roots.take_leaving(&self.stage2.space.leaving) {
            // SAFETY: its reference came with it.
            unsafe { root.as_ref() }.set_unreachable();
            if self.stage2.reclaimer.retire(root) {
                self.stage2.reclaimer.bell().ring();
            }
        }
        self.stage2.space.retiring.leave(&self.entered);
        self.writer = None;
        self.stage2.reclaimer.help();
    }
}
