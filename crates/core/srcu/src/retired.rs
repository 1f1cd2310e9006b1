//! What becomes of a value that was replaced.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use crate::callback::{Callback, Node};
use crate::rcu_box::RcuBox;
use crate::{Cookie, Srcu};

/// A value that no new section finds, and old ones may still read. Dropping it defers its drop, as [`Retired::defer`]
/// does, which waits at the domain's hard bound: so inside a section of the domain, use [`Retired::try_defer`].
///
/// Dropping it, and each call that defers it, panics where the domain is paced as Linux and can count no more
/// ([`Pace::Linux`](crate::Pace::Linux)): then the value is leaked. No other domain has it panic.
#[must_use = "say how long it may take: `defer`, or `synchronize_expedited` and the like"]
pub struct Retired<T: Send + 'static> {
    value: ManuallyDrop<RcuBox<T>>,
    domain: Srcu,
}

impl<T: Send + 'static> Retired<T> {
    /// # Safety
    ///
    /// `node` came from [`RcuBox::into_raw`], and only readers of `domain` may still have it.
    pub(crate) unsafe fn new(node: NonNull<Node<T>>, domain: &Srcu) -> Self {
        // SAFETY: as the caller says.
        let value = ManuallyDrop::new(unsafe { RcuBox::from_raw(node) });
        Self { value, domain: domain.clone() }
    }

    /// Counts `bytes` more against the domain's bounds, if the drop is deferred: what the value has come to be the last
    /// to hold.
    pub fn hold(&mut self, bytes: usize) {
        self.value.hold(bytes);
    }

    /// Drops the value after a grace period that no caller hurries: [`Srcu::call`]. At once where the domain has
    /// no reader at all, as before a VM's first vCPU: then there is nothing to wait for.
    pub fn defer(self) {
        drop(self);
    }

    /// As [`Retired::defer`], and never waits ([`Srcu::try_call`]), so it may be called from inside a section.
    ///
    /// # Errors
    ///
    /// Gives itself back where the domain's hard bound is reached.
    pub fn try_defer(self) -> Result<(), Self> {
        let (value, domain) = self.into_parts();
        if domain.is_without_readers() {
            drop(ManuallyDrop::into_inner(value));
            return Ok(());
        }
        let deferred = domain.try_call(ManuallyDrop::into_inner(value).into_callback());
        deferred.map_err(|callback| {
            let node = callback.into_head().cast();
            // SAFETY: the callback is the one that the value has just been made.
            unsafe { Self::new(node, &domain) }
        })
    }

    /// Drops the value as soon as the readers that may have it have left: [`Srcu::call_expedited`].
    pub fn defer_expedited(self) {
        let domain = self.domain.clone();
        domain.call_expedited(self.into_callback());
    }

    /// The drop of the value, to be deferred in this domain with others' ([`Srcu::call`], [`Srcu::expedite`]). One that
    /// is dropped instead leaks the value.
    pub fn into_callback(self) -> Callback {
        let (value, domain) = self.into_parts();
        let mut callback = ManuallyDrop::into_inner(value).into_callback();
        callback.bind(domain.at());
        callback
    }

    /// To be asked now and then whether the readers have left, without waiting. Starts no grace period before it is
    /// asked.
    pub fn into_polled(self) -> Polled<T> {
        let cookie = self.domain.cookie();
        Polled { retired: self, cookie }
    }

    /// Waits for the readers that may have the value ([`Srcu::synchronize`]) and returns it.
    pub fn synchronize(self) -> RcuBox<T> {
        self.wait(Srcu::synchronize)
    }

    /// Waits for the readers that may have the value ([`Srcu::synchronize_expedited`]) and returns it.
    pub fn synchronize_expedited(self) -> RcuBox<T> {
        self.wait(Srcu::synchronize_expedited)
    }

    fn wait(self, wait: impl FnOnce(&Srcu)) -> RcuBox<T> {
        // A panic on the way leaks the value: its readers may have it until the wait is over.
        let (value, domain) = self.into_parts();
        wait(&domain);
        ManuallyDrop::into_inner(value)
    }

    fn into_parts(self) -> (ManuallyDrop<RcuBox<T>>, Srcu) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so each field is moved out once.
        unsafe { (core::ptr::read(&raw const this.value), core::ptr::read(&raw const this.domain)) }
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

/// A [`Retired`] value, with the grace period after which no reader has it. Dropped, it defers the value's drop.
#[derive(Debug)]
#[must_use = "ask it, or drop it"]
pub struct Polled<T: Send + 'static> {
    retired: Retired<T>,
    cookie: Cookie,
}

impl<T: Send + 'static> Polled<T> {
    /// The value, if no reader can have it any more. Looks at the readers; never sleeps.
    ///
    /// # Errors
    ///
    /// Gives itself back while one may.
    pub fn try_take(self) -> Result<RcuBox<T>, Self> {
        if !self.retired.domain.poll(self.cookie) {
            return Err(self);
        }
        let (value, _) = self.retired.into_parts();
        Ok(ManuallyDrop::into_inner(value))
    }

    /// The grace period that is asked about.
    pub fn cookie(&self) -> Cookie {
        self.cookie
    }
}
