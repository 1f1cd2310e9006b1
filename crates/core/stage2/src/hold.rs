//! Holds: on which root each vCPU is in its guest.
//!
//! A vCPU does not count itself in a root. It has a word of its own, its [`Hold`], which says on which root the vCPU is
//! in the guest, and which is empty while the vCPU is outside. So a vCPU that is outside keeps no table alive, for
//! however long it stays there. The reclaimer waits for the vCPUs that are in a guest on the very root, and for SRCU
//! sections.
//!
//! # The protocol
//!
//! - *A vCPU goes in* ([`Holder::enter`]): it loads the present root of its role, *publishes* it in its hold, executes
//!   **\[enter\]** `fence(SeqCst)`, and loads the present root again. If that is another root, or none, the vCPU does
//!   not go in. The result of the first load is only an address. The vCPU looks at the root behind it, and has hardware
//!   walk it, only when the second load has found it too. (Suppose that the first root was freed, and a new root has
//!   its place and its address: then the new root is what the vCPU holds, and what the second load finds.)
//! - *It comes out* ([`Held`] is dropped): no instruction on its CPU translates by the root any more. The vCPU empties
//!   the hold, a release. The CPU may walk speculatively as long as its register names the root;
//!   [`Vmids::leave`](crate::Vmids::leave) ends that when the root is freed.
//! - *The reclaimer* has a root that is no longer in its place. It executes **\[look\]** `fence(SeqCst)`, and loads
//!   every hold, with acquire. While a hold names the root, its vCPU is in a guest on the root, or is about to find
//!   that it may not go in.
//!
//! \[enter\] and \[look\] are store buffering: either the reclaimer finds the hold, or the vCPU's second load finds the
//! place changed. A hold that was emptied carries with it everything that the vCPU did on the root. So if no hold names
//! a root, no vCPU walks it, or will. What TLBs remember of it is invalidated after that, and then it is freed.
//!
//! *Outside its guest* a vCPU uses the root that it finds in its place inside an SRCU section, for as long as the
//! section lasts. It does not use the root on which it was in the guest.
//!
//! *Registering.* The holds are on a list, under a lock that no vCPU takes while it runs. A vCPU whose hold is put
//! there after the reclaimer has looked finds the places as they were changed before.
//!
//! *Waking.* Where a hold names the root, the reclaimer has its vCPU tell when it comes out
//! ([`Resident::tell_when_out`]), and looks at the hold once more: the mark may have come too late for that stay in the
//! guest, or be on a later one. A vCPU finds such a mark by an atomic step that it executes anyhow on its way out,
//! after it has emptied the hold. So the reclaimer that it wakes finds the hold empty.
//!
//! \[enter\] is also the fence by which a vCPU finds the requests to it: an entry executes one fence, and an exit none.

mod holds;

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::{NonNull, null_mut};

use mayfly_platform::memory::{Handle, OutOfMemory, Shared, try_box};
use mayfly_platform::sync::{Ordering, fence};

pub(crate) use holds::Holds;
pub use holds::{Hold, Resident};

use crate::root::Root;
use crate::space::Space;
use crate::{Format, Role, Stage2};

/// A vCPU's right to be in its guest on a VM's roots. It may move between threads.
pub struct Holder<T: Resident> {
    resident: Handle<T>,
    space: Shared<Space>,
}

impl<F: Format> Stage2<F> {
    /// Has the hold of `resident` looked at before a root is freed. Takes a lock.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    ///
    /// # Panics
    ///
    /// If the hold has a holder already.
    pub fn register_holder<T: Resident>(
        &self,
        resident: Handle<T>,
    ) -> Result<Holder<T>, OutOfMemory> {
        let entry = try_box(resident.clone())?;
        let space = self.space();
        let mut list = space.holds.list.lock(&*space.tables.mmu);
        list.try_reserve(1)?;
        assert!(!resident.hold().taken.swap(true, Ordering::Acquire), "the hold has a holder");
        list.push(entry);
        drop(list);
        Ok(Holder { resident, space: space.clone() })
    }

    /// A vCPU that was to tell so has come out of its guest.
    pub fn came_out(&self) {
        self.space().bell.ring();
    }
}

impl<T: Resident> Holder<T> {
    /// Holds the present root of `role`, from before the guest is entered until after it was left; `None` if there is
    /// none, or another has just come in its place. Executes a full fence, which what the caller has stored before, and
    /// what it loads afterwards, are ordered by, unless there is no root.
    ///
    /// # Panics
    ///
    /// If `stage2` is not where this was registered.
    #[inline]
    pub fn enter<'a, F: Format>(
        &'a mut self,
        stage2: &'a Stage2<F>,
        role: Role,
    ) -> Option<Held<'a, F>> {
        assert!(self.space.is(stage2.space()), "the holder is one of another VM");
        let root = stage2.present(role)?;
        let hold = self.resident.hold();
        // Release, pairing with the acquire of the reclaimer: if it finds the hold, it finds the vCPU in its guest.
        hold.root.store(root.as_ptr().cast(), Ordering::Release);
        // [enter]
        fence(Ordering::SeqCst);
        // From here on it is emptied whatever comes.
        let entered = Held { root, hold, _stage2: PhantomData };
        (stage2.present(role) == Some(root)).then_some(entered)
    }
}

impl<T: Resident> Drop for Holder<T> {
    fn drop(&mut self) {
        let hold = self.resident.hold();
        let mut list = self.space.holds.list.lock(&*self.space.tables.mmu);
        if let Some(at) = list.iter().position(|other| core::ptr::eq(other.hold(), hold)) {
            list.swap_remove(at);
        }
        drop(list);
        hold.taken.store(false, Ordering::Release);
    }
}

impl<T: Resident> fmt::Debug for Holder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder").field("hold", self.resident.hold()).finish_non_exhaustive()
    }
}

/// A root that a vCPU is in its guest on, or about to go in. Dropped when the guest was left.
#[must_use = "the root is held until this is dropped"]
pub struct Held<'a, F: Format> {
    root: NonNull<Root<F>>,
    hold: &'a Hold,
    _stage2: PhantomData<&'a Stage2<F>>,
}

impl<F: Format> Deref for Held<'_, F> {
    type Target = Root<F>;

    #[inline]
    fn deref(&self) -> &Root<F> {
        // SAFETY: found in its place after the hold was published and [enter] executed. So the caller that frees it
        // finds the hold first, and waits until it is emptied. What is given out was found so; what was not is dropped
        // unseen.
        unsafe { self.root.as_ref() }
    }
}

impl<F: Format> Drop for Held<'_, F> {
    #[inline]
    fn drop(&mut self) {
        // Release, pairing with the acquire in `is_on`: what was done on the root comes before it is freed.
        self.hold.root.store(null_mut(), Ordering::Release);
    }
}

impl<F: Format> fmt::Debug for Held<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&**self).finish()
    }
}
