//! The roots that a VM has.
//!
//! Protocol: there is one place for each role (*current*). It has the root on which vCPUs enter their guests, with a
//! reference of its own. A root is put there by compare-exchange from nothing, so there is at most one; a vCPU that
//! comes second drops its own root and uses the present one. A vCPU that enters its guest holds the root that it finds
//! in the place ([`hold`](crate::hold)). Outside its guest it uses the root that it finds there inside an SRCU section,
//! for as long as the section lasts: the place's own reference is given up only after a grace period that begins when
//! the place has been changed. A user that needs a root for longer (an operation on a range, which works in slices)
//! adds a reference inside the section.
//!
//! A root that leaves its place while vCPUs run on it is first put into its role's second place (*leaving*).
//! **\[leave\]** is the release of the exchange of *current*; **\[sample\]** is the acquire of its load. A caller that
//! samples a place that has been changed finds the old root in the other place.
//!
//! - *Invalidating all roots* puts fresh ones in the places of the old ones. When no vCPU runs on the old roots any
//!   more, they leave the second place, and go to the reclaimer.
//! - *Destroying the VM* closes the places, and gives the roots to the reclaimer at once. The reclaimer takes them out
//!   of the second place when no vCPU is in its guest on them, and no other reference is left: until then the host may
//!   take away memory that a vCPU on its way out uses.
//!
//! The value that destroying puts in the places is no root, and stays: no root can be made there any more.
//!
//! *An operation on a range* announces itself first (see [`sequence`](crate::sequence)), then samples both places of
//! each role. A root that it does not find was put in its place later. Faults install in that root under the
//! announcement, or after it, and so correctly.
//!
//! No lock and no wait is on a vCPU's path to its root, and a vCPU writes nothing here that vCPUs share.

mod leaving;

use core::ptr::{NonNull, null_mut, without_provenance_mut};

use mayfly_platform::memory::Shared;
use mayfly_platform::sync::{AtomicPtr, Ordering};
use mayfly_srcu::Section;

pub(crate) use leaving::Leaving;

use crate::role::{ROLES, Role};
use crate::root::{Root, RootRef};
use crate::space::Space;
use crate::{Error, Format};

pub(crate) struct Roots<F: Format> {
    /// A root, null, or [`closed`]. Read when a vCPU loads a root, and written when one is made or goes, so they need
    /// no lines of their own.
    current: [AtomicPtr<Root<F>>; ROLES],
}

/// In the place of a root: none is wanted any more.
fn closed<F: Format>() -> *mut Root<F> {
    without_provenance_mut(1)
}

impl<F: Format> Roots<F> {
    pub(crate) fn new() -> Self {
        Self { current: [(); ROLES].map(|()| AtomicPtr::new(null_mut())) }
    }

    /// Where the root of `role` is that vCPUs enter their guests on, if there is one: an address, until it is held.
    #[inline]
    pub(crate) fn present(&self, role: Role) -> Option<NonNull<Root<F>>> {
        Self::there(self.current(role).load(Ordering::Acquire))
    }

    /// Has a root of `role` made if there is none.
    pub(crate) fn ensure(&self, role: Role, space: &Shared<Space>) -> Result<(), Error> {
        let mut root = self.current(role).load(Ordering::Acquire);
        if root.is_null() {
            root = self.create(role, space)?;
        }
        if root == closed() { Err(Error::Destroyed) } else { Ok(()) }
    }

    /// The root of `role`, which is made if there is none.
    pub(crate) fn find_or_create(
        &self,
        role: Role,
        space: &Shared<Space>,
        section: &impl Section,
    ) -> Result<RootRef<F>, Error> {
        let mut root = self.current(role).load(Ordering::Acquire);
        if root.is_null() {
            root = self.create(role, space)?;
        }
        Self::take(root, section).ok_or(Error::Destroyed)
    }

    /// The root of `role`, if there is one, for as long as the section lasts: nothing is written that vCPUs share.
    pub(crate) fn find<'a>(&'a self, role: Role, section: &'a impl Section) -> Option<&'a Root<F>> {
        Self::read(self.current(role).load(Ordering::Acquire), section)
    }

    /// Puts a new root in its place, unless something is there. Returns what is there now.
    fn create(&self, role: Role, space: &Shared<Space>) -> Result<*mut Root<F>, Error> {
        let fresh = Root::try_new(space, role)?;
        let (none, new) = (null_mut(), fresh.as_ptr());
        match self.current(role).compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(new),
            Err(other) => {
                // SAFETY: no other CPU has found it.
                unsafe { Root::discard(fresh) };
                Ok(other)
            }
        }
    }

    /// Every root that a vCPU may be running on, or come to run on: what an operation on a range has to go through.
    pub(crate) fn sample(
        &self,
        leaving: &Leaving,
        section: &impl Section,
    ) -> impl Iterator<Item = RootRef<F>> {
        Role::all().flat_map(move |role| {
            let [current, old] = self.both(role, leaving).map(|root| Self::take(root, section));
            let twice = current.as_ref().zip(old.as_ref()).is_some_and(|(a, b)| a.is(b));
            [current, old.filter(|_| !twice)].into_iter().flatten()
        })
    }

    /// Whether `is` is true of one that [`Roots::sample`] gives. It has no reference of its own.
    pub(crate) fn any(
        &self,
        leaving: &Leaving,
        section: &impl Section,
        is: impl Fn(&Root<F>) -> bool,
    ) -> bool {
        let is = |root| Self::read(root, section).is_some_and(&is);
        Role::all().any(|role| self.both(role, leaving).into_iter().any(is))
    }

    /// What is in both places of a role.
    fn both(&self, role: Role, leaving: &Leaving) -> [*mut Root<F>; 2] {
        // [sample]: current first.
        let current = self.current(role).load(Ordering::Acquire);
        [current, leaving.of(role).load(Ordering::Acquire).cast()]
    }

    /// Whether no root is made any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.open().next().is_none()
    }

    /// Which roles have a root; none after [`Roots::close`].
    pub(crate) fn occupied(&self) -> impl Iterator<Item = Role> {
        let is_there = |place: *mut Root<F>| !place.is_null() && place != closed();
        Role::all().filter(move |&role| is_there(self.current(role).load(Ordering::Acquire)))
    }

    /// Puts `fresh`, with its reference, in the place of the root of `role`, which is [there](Roots::occupied), and
    /// leaving from now on. One at a time.
    pub(crate) fn replace(&self, role: Role, fresh: NonNull<Root<F>>, leaving: &Leaving) {
        self.leave(role, fresh.as_ptr(), leaving);
    }

    /// The roots that were replaced, and have not left their second places yet.
    pub(crate) fn leaving(&self, leaving: &Leaving) -> impl Iterator<Item = NonNull<Root<F>>> {
        let look = |role| leaving.of(role).load(Ordering::Acquire).cast();
        self.open().filter_map(move |role| NonNull::new(look(role)))
    }

    /// The roots that were replaced, with the references of their places. One at a time with [`Roots::close`].
    pub(crate) fn take_leaving(&self, leaving: &Leaving) -> impl Iterator<Item = NonNull<Root<F>>> {
        // What has left a closed place is the reclaimer's.
        let take = |role| leaving.of(role).swap(null_mut(), Ordering::AcqRel).cast();
        self.open().filter_map(move |role| NonNull::new(take(role)))
    }

    /// Has no root made any more, and gives those that there are, with the references of their places; they are
    /// leaving. One at a time with [`Roots::replace`].
    pub(crate) fn close(&self, leaving: &Leaving) -> impl Iterator<Item = NonNull<Root<F>>> {
        let close = |role| self.leave(role, closed(), leaving);
        self.open().filter_map(move |role| NonNull::new(close(role)))
    }

    /// Puts `next` in the place of the root of `role`, and that in the second place before.
    fn leave(&self, role: Role, next: *mut Root<F>, leaving: &Leaving) -> *mut Root<F> {
        let current = self.current(role);
        let mut old = current.load(Ordering::Acquire);
        loop {
            leaving.of(role).store(old.cast(), Ordering::Release);
            // [leave]
            match current.compare_exchange(old, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return old,
                Err(other) => old = other,
            }
        }
    }

    /// The roles whose places are not closed.
    fn open(&self) -> impl Iterator<Item = Role> {
        Role::all().filter(|&role| self.current(role).load(Ordering::Acquire) != closed())
    }

    fn current(&self, role: Role) -> &AtomicPtr<Root<F>> {
        &self.current[usize::from(role.get())]
    }

    /// A reference to the root, if it is one, that was found in a place inside `_section`.
    fn take(root: *mut Root<F>, _section: &impl Section) -> Option<RootRef<F>> {
        // SAFETY: the place's reference, or the reclaimer's after it, is given up after a grace period only, which
        // waits for the section.
        Self::there(root).map(|root| unsafe { RootRef::acquire(root) })
    }

    /// The root, if it is one, that was found in a place inside the section, for as long as that lasts.
    fn read(root: *mut Root<F>, _section: &impl Section) -> Option<&Root<F>> {
        // SAFETY: as above.
        Self::there(root).map(|root| unsafe { root.as_ref() })
    }

    /// The root that was found in a place, if it is one.
    fn there(root: *mut Root<F>) -> Option<NonNull<Root<F>>> {
        NonNull::new(root).filter(|root| root.as_ptr() != closed())
    }
}
