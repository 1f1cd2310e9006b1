//! Which roots a VM has.
//!
//! Protocol: there is one place a role (*current*), which holds the root that vCPUs load, with a reference of its own.
//! A root is put there by compare-exchange from nothing, so there is at most one, and whoever comes second drops his
//! own and uses that. A vCPU loads the place inside an SRCU section and adds a reference; it may, since the place's own
//! reference is given up only after a grace period that begins when the place has been changed.
//!
//! *Invalidating all roots* puts fresh roots in the places of the old ones, each old one in its role's second place
//! (*retiring*) first: **\[retire\]** is the release of the swap of *current*, **\[sample\]** the acquire of its load.
//! Who samples a place that has been changed finds the old root in the other. When no vCPU runs on the old roots any
//! more, they leave the second place, and the reclaimer has them.
//!
//! *An operation on a range* announces itself first (see [`sequence`](crate::sequence)), then samples both places of
//! each role. A root that it does not find was put in its place later; what faults install there they install under
//! the announcement, or after it, and so correctly.
//!
//! No lock, and no wait, is on a vCPU's way to its root. What vCPUs share here and write is the count of references of a
//! root, once for each load of another root.

use core::ptr::{NonNull, null_mut};

use mayfly_platform::memory::Shared;
use mayfly_platform::sync::{AtomicBool, AtomicPtr, CacheLine, Ordering, fence};
use mayfly_srcu::Section;

use crate::root::{Root, RootRef};
use crate::space::Space;
use crate::{Error, Format};

/// Roots of a VM at one moment are at most so many, twice as many while all are invalidated.
pub(crate) const ROLES: usize = 4;

/// What a root is for. A role names a way of seeing the VM's memory (an address space, a kind of access); what it means
/// is its user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Role(u8);

impl Role {
    /// The number of roles.
    pub const COUNT: u8 = ROLES as u8;

    /// Role `number`, which is below [`Role::COUNT`].
    pub const fn new(number: u8) -> Option<Self> {
        if number < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// Its number.
    pub const fn get(self) -> u8 {
        self.0
    }

    fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }
}

pub(crate) struct Roots<F: Format> {
    places: [Places<F>; ROLES],
    /// No root is wanted any more.
    closed: AtomicBool,
}

struct Places<F: Format> {
    current: CacheLine<AtomicPtr<Root<F>>>,
    retiring: AtomicPtr<Root<F>>,
}

impl<F: Format> Roots<F> {
    pub(crate) fn new() -> Self {
        let place = || Places {
            current: CacheLine(AtomicPtr::new(null_mut())),
            retiring: AtomicPtr::new(null_mut()),
        };
        Self { places: [(); ROLES].map(|()| place()), closed: AtomicBool::new(false) }
    }

    /// The root of `role`, if there is one.
    pub(crate) fn find(&self, role: Role, section: &impl Section) -> Option<RootRef<F>> {
        Self::take(&self.place(role).current, section)
    }

    /// The root of `role`, which is made if there is none. After [`Error::Destroyed`] the caller has to [`Roots::close`]
    /// again, since a root may be in its place all the same.
    pub(crate) fn find_or_create(
        &self,
        role: Role,
        space: &Shared<Space>,
        section: &impl Section,
    ) -> Result<RootRef<F>, Error> {
        if let Some(root) = self.find(role, section) {
            return Ok(root);
        }
        if self.is_closed() {
            return Err(Error::Destroyed);
        }
        let fresh = Root::try_new(space, role)?;
        let current = &self.place(role).current;
        if current
            .compare_exchange(null_mut(), fresh.as_ptr(), Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
        {
            // SAFETY: the place's reference is not given up before the end of `section`.
            let root = unsafe { RootRef::acquire(fresh) };
            // Store buffering with `close`, which stores `closed` and then takes what is in the places: it finds the
            // root, or the root's maker finds it closed.
            fence(Ordering::SeqCst);
            return if self.is_closed() { Err(Error::Destroyed) } else { Ok(root) };
        }
        // SAFETY: nobody else has found it.
        unsafe { Root::discard(fresh) };
        self.find(role, section).ok_or(Error::Destroyed)
    }

    /// Every root that a vCPU may be running on, or come to run on: what an operation on a range has to go through.
    pub(crate) fn sample(&self, section: &impl Section) -> impl Iterator<Item = RootRef<F>> {
        self.places.iter().flat_map(|place| {
            // [sample]: current first.
            let current = Self::take(&place.current, section);
            let retiring = Self::take(&place.retiring, section);
            let twice = current.as_ref().zip(retiring.as_ref()).is_some_and(|(a, b)| a.is(b));
            [current, retiring.filter(|_| !twice)].into_iter().flatten()
        })
    }

    /// Which roles have a root; none after [`Roots::close`].
    pub(crate) fn present(&self) -> impl Iterator<Item = Role> {
        let is_there = |role| !self.place(role).current.load(Ordering::Acquire).is_null();
        Role::all().filter(move |&role| !self.is_closed() && is_there(role))
    }

    /// Puts `fresh`, with its reference, in the place of the root of `role`, which is [present](Roots::present), and
    /// retiring from now on. One at a time.
    pub(crate) fn replace(&self, role: Role, fresh: NonNull<Root<F>>) {
        let place = self.place(role);
        let old = place.current.load(Ordering::Acquire);
        place.retiring.store(old, Ordering::Release);
        // [retire]
        let swapped = place.current.swap(fresh.as_ptr(), Ordering::AcqRel);
        debug_assert_eq!(swapped, old, "only a writer takes a root away, and there was one");
    }

    /// The roots that were retiring, with the references of their places.
    pub(crate) fn take_retiring(&self) -> impl Iterator<Item = NonNull<Root<F>>> {
        self.places
            .iter()
            .filter_map(|place| NonNull::new(place.retiring.swap(null_mut(), Ordering::AcqRel)))
    }

    /// Has no root made any more, and gives those that there are, with the references of their places. The first time,
    /// one at a time with [`Roots::replace`].
    ///
    /// A root that is put in its place after this has looked there is found by whoever put it, who finds `closed` and
    /// closes again.
    pub(crate) fn close(&self) -> impl Iterator<Item = NonNull<Root<F>>> {
        self.closed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.places
            .iter()
            .filter_map(|place| NonNull::new(place.current.swap(null_mut(), Ordering::AcqRel)))
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn place(&self, role: Role) -> &Places<F> {
        &self.places[usize::from(role.0)]
    }

    fn take(place: &AtomicPtr<Root<F>>, _section: &impl Section) -> Option<RootRef<F>> {
        let root = NonNull::new(place.load(Ordering::Acquire))?;
        // SAFETY: the place's reference, or the reclaimer's after it, is given up after a grace period only, which
        // waits for the section.
        Some(unsafe { RootRef::acquire(root) })
    }
}
