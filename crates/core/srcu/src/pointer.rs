//! A pointer whose old values stay valid for the readers that are reading them.

use core::fmt;
use core::marker::PhantomData;
use core::mem;
use core::ptr::{NonNull, null_mut};

use mayfly_platform::sync::{AtomicPtr, Ordering};

use crate::callback::Node;
use crate::rcu_box::RcuBox;
use crate::{Retired, Section, Srcu};

/// A pointer that readers follow while writers replace what it points to. There may be nothing.
///
/// Publishing is a release, loading an acquire: a reader that finds a value finds it initialised.
pub struct RcuOption<T: Send + 'static> {
    node: AtomicPtr<Node<T>>,
    domain: Srcu,
    owns: PhantomData<Node<T>>,
}

// SAFETY: readers on several threads share `&T`, and the thread that reclaims an old value drops it, wherever that is.
unsafe impl<T: Send + Sync> Sync for RcuOption<T> {}
// SAFETY: owns a `T` and a handle of a domain.
unsafe impl<T: Send + Sync> Send for RcuOption<T> {}

impl<T: Send + Sync + 'static> RcuOption<T> {
    /// Points to `value`, if there is one, for readers of `domain`.
    pub fn new(domain: &Srcu, value: Option<RcuBox<T>>) -> Self {
        Self { node: AtomicPtr::new(into_raw(value)), domain: domain.clone(), owns: PhantomData }
    }

    /// The present value, valid until the section ends.
    ///
    /// # Panics
    ///
    /// If `section` is one of another domain, which would not keep the value.
    #[inline]
    pub fn load<'a>(&'a self, section: &'a impl Section) -> Option<&'a T> {
        // SAFETY: a value that was replaced is freed only after a grace period of `self.domain`, which waits for
        // `section` (see the protocol in `domain`).
        NonNull::new(self.find(section)).map(|node| unsafe { &(*node.as_ptr()).value })
    }

    /// Publishes `value`, or that there is none. The old one, if there was one, is no longer found by sections that
    /// begin after this, and is the caller's to retire.
    pub fn replace(&self, value: Option<RcuBox<T>>) -> Option<Retired<T>> {
        self.retire(self.node.swap(into_raw(value), Ordering::AcqRel))
    }

    /// Publishes that there is no value: [`RcuOption::replace`].
    pub fn take(&self) -> Option<Retired<T>> {
        self.replace(None)
    }

    /// Publishes `value` if the present one is `present`, which was loaded in a section that lasts: so it is not
    /// another value at the same address.
    ///
    /// # Errors
    ///
    /// Gives `value` back if another is present.
    pub fn compare_exchange(
        &self,
        present: Option<&T>,
        value: Option<RcuBox<T>>,
    ) -> Result<Option<Retired<T>>, Option<RcuBox<T>>> {
        let present = present.map_or(null_mut(), node_of);
        let fresh = into_raw(value);
        match self.node.compare_exchange(present, fresh, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(old) => Ok(self.retire(old)),
            // SAFETY: null, or from `into_raw` just now, and not published.
            Err(_) => Err(NonNull::new(fresh).map(|fresh| unsafe { RcuBox::from_raw(fresh) })),
        }
    }

    /// The value itself, if there is one: no reader shares it with the owner of this.
    pub fn into_inner(mut self) -> Option<RcuBox<T>> {
        self.take_unshared()
    }

    /// The domain whose readers may load this.
    pub fn domain(&self) -> &Srcu {
        &self.domain
    }

    #[inline]
    fn find(&self, section: &impl Section) -> *mut Node<T> {
        if !self.domain.is(section.domain()) {
            wrong_domain();
        }
        // Acquire, pairing with the release of the thread that published it.
        self.node.load(Ordering::Acquire)
    }

    /// What was found here, and is not any more.
    fn retire(&self, old: *mut Node<T>) -> Option<Retired<T>> {
        // SAFETY: what was published came from `into_raw`; it has been replaced, so it is ours alone to free, when the
        // readers of the domain are done with it.
        NonNull::new(old).map(|old| unsafe { Retired::new(old, &self.domain) })
    }
}

impl<T: Send + 'static> RcuOption<T> {
    fn take_unshared(&mut self) -> Option<RcuBox<T>> {
        let node = self.node.swap(null_mut(), Ordering::Acquire);
        // SAFETY: from `into_raw`; what `load` returned borrows `self`, so no thread reads the value any more.
        NonNull::new(node).map(|node| unsafe { RcuBox::from_raw(node) })
    }
}

impl<T: Send + 'static> Drop for RcuOption<T> {
    fn drop(&mut self) {
        drop(self.take_unshared());
    }
}

impl<T: Send + Sync + 'static + fmt::Debug> fmt::Debug for RcuOption<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuOption").field(&self.load(&self.domain.read_lock())).finish()
    }
}

/// As [`RcuOption`], and there always is a value.
pub struct Rcu<T: Send + 'static>(RcuOption<T>);

impl<T: Send + Sync + 'static> Rcu<T> {
    /// Points to `value`, for readers of `domain`.
    pub fn new(domain: &Srcu, value: RcuBox<T>) -> Self {
        Self(RcuOption::new(domain, Some(value)))
    }

    /// The present value, valid until the section ends.
    ///
    /// # Panics
    ///
    /// If `section` is one of another domain, which would not keep the value.
    #[inline]
    pub fn load<'a>(&'a self, section: &'a impl Section) -> &'a T {
        let node = self.0.find(section);
        // SAFETY: as in `RcuOption::load`; and there always is a value.
        unsafe { &(*node).value }
    }

    /// The present value, for a writer that keeps other writers out: no section is needed, since no writer retires what
    /// no writer replaces. (Linux' `rcu_dereference_protected`.)
    ///
    /// # Safety
    ///
    /// No writer replaces the value while what this returns is used.
    #[inline]
    pub unsafe fn load_protected(&self) -> &T {
        // Acquire, pairing with the release of the thread that published it.
        let node = self.0.node.load(Ordering::Acquire);
        // SAFETY: only what was replaced is freed, and the caller sees to it that this is not.
        unsafe { &(*node).value }
    }

    /// Publishes `value`. The old one is no longer found by sections that begin after this, and is the caller's to
    /// retire.
    pub fn replace(&self, value: RcuBox<T>) -> Retired<T> {
        there_was(self.0.replace(Some(value)))
    }

    /// Publishes `value` if the present one is `present`, which was loaded in a section that lasts: so it is not
    /// another value at the same address.
    ///
    /// # Errors
    ///
    /// Gives `value` back if another is present.
    pub fn compare_exchange(&self, present: &T, value: RcuBox<T>) -> Result<Retired<T>, RcuBox<T>> {
        match self.0.compare_exchange(Some(present), Some(value)) {
            Ok(old) => Ok(there_was(old)),
            Err(value) => Err(there_was(value)),
        }
    }

    /// Publishes what `make` makes of the present value, as one step: if another writer comes between, `make` is called
    /// again.
    ///
    /// `make` runs inside a section of the domain, so it must not wait for a grace period of it.
    ///
    /// # Errors
    ///
    /// What `make` returns; nothing is changed then.
    pub fn update<E>(
        &self,
        mut make: impl FnMut(&T) -> Result<RcuBox<T>, E>,
    ) -> Result<Retired<T>, E> {
        loop {
            let section = self.domain().read_lock();
            let present = self.load(&section);
            let lost = match self.compare_exchange(present, make(present)?) {
                Ok(old) => return Ok(old),
                Err(lost) => lost,
            };
            // Its drop may wait for a grace period.
            drop(section);
            drop(lost);
        }
    }

    /// The value itself: no reader shares it with the owner of this.
    pub fn into_inner(self) -> RcuBox<T> {
        there_was(self.0.into_inner())
    }

    /// The domain whose readers may load this.
    #[inline]
    pub fn domain(&self) -> &Srcu {
        self.0.domain()
    }
}

impl<T: Send + Sync + 'static + fmt::Debug> fmt::Debug for Rcu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rcu").field(self.load(&self.domain().read_lock())).finish()
    }
}

fn into_raw<T>(value: Option<RcuBox<T>>) -> *mut Node<T> {
    value.map_or(null_mut(), RcuBox::into_raw)
}

/// The node of a value that was loaded.
fn node_of<T>(value: &T) -> *mut Node<T> {
    let value: *const T = value;
    value.cast_mut().wrapping_byte_sub(mem::offset_of!(Node<T>, value)).cast()
}

/// Of a pointer that always points to something.
fn there_was<V>(value: Option<V>) -> V {
    value.expect("there always is a value")
}

#[cold]
#[inline(never)]
fn wrong_domain() -> ! {
    panic!("the section is one of another domain");
}
