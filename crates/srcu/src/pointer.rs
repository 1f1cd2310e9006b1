//! A pointer whose old values stay valid for whoever is reading them.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use mayfly_platform::memory::{OutOfMemory, try_box};
use mayfly_platform::sync::{AtomicPtr, Ordering};

use crate::callback::{Act, Callback, Head, Node};
use crate::{Section, Srcu};

/// A boxed value with room for what deferring its drop takes, so that deferring never allocates.
pub struct RcuBox<T> {
    node: NonNull<Node<T>>,
    owns: PhantomData<Node<T>>,
}

// SAFETY: as `Box<T>`; the head's pointers are used only by a queue that owns the node.
unsafe impl<T: Send> Send for RcuBox<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for RcuBox<T> {}

impl<T> RcuBox<T> {
    /// A box of `value`, whose drop gives back `size_of::<T>()` bytes (and a header of 40).
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]; `value` is dropped.
    pub fn try_new(value: T) -> Result<Self, OutOfMemory> {
        Self::try_new_holding(value, 0)
    }

    /// A box of `value`, which itself holds `bytes` bytes elsewhere: so much more does its drop give back.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]; `value` is dropped.
    pub fn try_new_holding(value: T, bytes: usize) -> Result<Self, OutOfMemory> {
        unsafe fn act<T>(head: NonNull<Head>, _: Act) {
            // SAFETY: `try_new_holding` leaked a `Node<T>` whose first field is `head`; whoever calls `act` gives it
            // up. Run or discarded, the value is dropped.
            drop(unsafe { Box::from_raw(head.cast::<Node<T>>().as_ptr()) });
        }
        let bytes = bytes.saturating_add(size_of::<Node<T>>());
        let node = try_box(Node { head: Head::new(bytes, act::<T>), value })?;
        Ok(Self { node: NonNull::from(Box::leak(node)), owns: PhantomData })
    }

    /// The value, out of its box.
    pub fn into_inner(self) -> T {
        // SAFETY: the node came from `Box::leak`, and `self` owns it.
        unsafe { Box::from_raw(self.into_raw()) }.value
    }

    fn into_raw(self) -> *mut Node<T> {
        ManuallyDrop::new(self).node.as_ptr()
    }
}

impl<T: Send + 'static> RcuBox<T> {
    /// The drop of this, to be deferred.
    pub fn into_callback(self) -> Callback {
        let head = ManuallyDrop::new(self).node.cast();
        // SAFETY: valid until `act` consumes it; `T: Send`; `self` owned it.
        unsafe { Callback::from_head(head) }
    }
}

impl<T> Deref for RcuBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: owned, and valid until dropped. (Only the value is borrowed: the head is a queue's to write.)
        unsafe { &(*self.node.as_ptr()).value }
    }
}

impl<T> DerefMut for RcuBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and borrowed exclusively.
        unsafe { &mut (*self.node.as_ptr()).value }
    }
}

impl<T> Drop for RcuBox<T> {
    fn drop(&mut self) {
        // SAFETY: the node came from `Box::leak`, and `self` is its last owner.
        drop(unsafe { Box::from_raw(self.node.as_ptr()) });
    }
}

impl<T: fmt::Debug> fmt::Debug for RcuBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuBox").field(&**self).finish()
    }
}

/// A pointer that readers follow while writers replace what it points to.
///
/// Publishing is a release, loading an acquire: a reader that finds a value finds it initialised.
pub struct Rcu<T: Send + 'static> {
    node: AtomicPtr<Node<T>>,
    domain: Srcu,
    owns: PhantomData<Node<T>>,
}

// SAFETY: readers on several threads share `&T`, and whoever reclaims an old value drops it, wherever that is.
unsafe impl<T: Send + Sync> Sync for Rcu<T> {}
// SAFETY: owns a `T` and a handle of a domain.
unsafe impl<T: Send + Sync> Send for Rcu<T> {}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// Points to `value`, for readers of `domain`.
    pub fn new(domain: &Srcu, value: RcuBox<T>) -> Self {
        Self { node: AtomicPtr::new(value.into_raw()), domain: domain.clone(), owns: PhantomData }
    }

    /// The present value, valid until the section ends.
    ///
    /// # Panics
    ///
    /// If `section` is one of another domain, which would not keep the value.
    #[inline]
    pub fn load<'a>(&'a self, section: &'a impl Section) -> &'a T {
        if !self.domain.is(section.domain()) {
            wrong_domain();
        }
        // Acquire, pairing with the release of whoever published it.
        let node = self.node.load(Ordering::Acquire);
        // SAFETY: a value that was replaced is freed only after a grace period of `self.domain`, which waits for
        // `section` (see the protocol in `domain`).
        unsafe { &(*node).value }
    }

    /// The present value, for a writer who keeps other writers out: no section is needed, since nobody retires what
    /// nobody replaces. (Linux' `rcu_dereference_protected`.)
    ///
    /// # Safety
    ///
    /// Nobody replaces the value while what this returns is used.
    #[inline]
    pub unsafe fn load_protected(&self) -> &T {
        // Acquire, pairing with the release of whoever published it.
        let node = self.node.load(Ordering::Acquire);
        // SAFETY: only what was replaced is freed, and the caller sees to it that this is not.
        unsafe { &(*node).value }
    }

    /// Publishes `value`. The old one is no longer found by sections that begin after this, and is the caller's to
    /// retire.
    pub fn replace(&self, value: RcuBox<T>) -> Retired<T> {
        let old = self.node.swap(value.into_raw(), Ordering::AcqRel);
        // SAFETY: the pointer is never null, and what was replaced is ours alone to free.
        unsafe { Retired::new(old, &self.domain) }
    }

    /// Publishes what `make` makes of the present value, as one step: if another writer comes between, `make` is called
    /// again.
    ///
    /// # Errors
    ///
    /// What `make` returns; nothing is changed then.
    pub fn update<E>(
        &self,
        mut make: impl FnMut(&T) -> Result<RcuBox<T>, E>,
    ) -> Result<Retired<T>, E> {
        // While the section lasts the present value is not freed, so its address does not come back as another value.
        let section = self.domain.read_lock();
        loop {
            let present: *const T = self.load(&section);
            // SAFETY: valid until the section ends.
            let fresh = make(unsafe { &*present })?.into_raw();
            let old = present.cast_mut().wrapping_byte_sub(core::mem::offset_of!(Node<T>, value));
            match self.node.compare_exchange(old.cast(), fresh, Ordering::AcqRel, Ordering::Relaxed)
            {
                // SAFETY: as in `replace`.
                Ok(old) => return Ok(unsafe { Retired::new(old, &self.domain) }),
                // SAFETY: `fresh` came from `into_raw` and was not published.
                Err(_) => drop(unsafe { Box::from_raw(fresh) }),
            }
        }
    }

    /// The domain whose readers may load this.
    pub fn domain(&self) -> &Srcu {
        &self.domain
    }
}

#[cold]
#[inline(never)]
fn wrong_domain() -> ! {
    panic!("the section is one of another domain");
}

impl<T: Send + 'static> Drop for Rcu<T> {
    fn drop(&mut self) {
        let node = self.node.load(Ordering::Acquire);
        // SAFETY: the pointer is never null; what `load` returned borrows `self`, so nobody reads the value any more.
        drop(unsafe { Box::from_raw(node) });
    }
}

impl<T: Send + Sync + 'static + fmt::Debug> fmt::Debug for Rcu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rcu").field(self.load(&self.domain.read_lock())).finish()
    }
}

/// A value that no new section finds, and old ones may still read. Dropping it defers its drop, as [`Retired::defer`]
/// does.
#[must_use = "say how long it may take: `defer`, or `synchronize_expedited` and the like"]
pub struct Retired<T: Send + 'static> {
    value: ManuallyDrop<RcuBox<T>>,
    domain: Srcu,
}

impl<T: Send + 'static> Retired<T> {
    /// # Safety
    ///
    /// `node` came from [`RcuBox::into_raw`], and only readers of `domain` may still have it.
    unsafe fn new(node: *mut Node<T>, domain: &Srcu) -> Self {
        // SAFETY: a pointer from a box is not null.
        let node = unsafe { NonNull::new_unchecked(node) };
        let value = ManuallyDrop::new(RcuBox { node, owns: PhantomData });
        Self { value, domain: domain.clone() }
    }

    /// Drops the value after a grace period that nobody is in a hurry for: [`Srcu::call`]. At once where the domain has
    /// no reader at all, as before a VM's first vCPU: then there is nothing to wait for.
    pub fn defer(self) {
        drop(self);
    }

    /// Drops the value as soon as the readers that may have it have left: [`Srcu::call_expedited`].
    pub fn defer_expedited(self) {
        let (value, domain) = self.into_parts();
        domain.call_expedited(value.into_callback());
    }

    /// Waits for the readers that may have the value ([`Srcu::synchronize`]) and returns it.
    pub fn synchronize(self) -> RcuBox<T> {
        let (value, domain) = self.into_parts();
        domain.synchronize();
        value
    }

    /// Waits for the readers that may have the value ([`Srcu::synchronize_expedited`]) and returns it.
    pub fn synchronize_expedited(self) -> RcuBox<T> {
        let (value, domain) = self.into_parts();
        domain.synchronize_expedited();
        value
    }

    fn into_parts(self) -> (RcuBox<T>, Srcu) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so each field is moved out once.
        unsafe {
            (
                ManuallyDrop::into_inner(core::ptr::read(&raw const this.value)),
                core::ptr::read(&raw const this.domain),
            )
        }
    }
}

impl<T: Send + 'static> Drop for Retired<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, here; `into_parts` does not drop.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        if !self.domain.is_without_readers() {
            self.domain.call(value.into_callback());
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Retired<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Retired")
    }
}
