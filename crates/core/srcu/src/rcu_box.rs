//! A box with room for what deferring its drop takes.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use mayfly_platform::memory::{OutOfMemory, try_box};

use crate::callback::{Act, Callback, Head, Node};

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
            // SAFETY: `try_new_holding` leaked a `Node<T>` whose first field is `head`; the thread that calls `act`
            // gives it up. Run or discarded, the value is dropped.
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

    /// Where the value is, which no thread looks at here, until the box is opened or dropped.
    pub fn as_ptr(&self) -> NonNull<T> {
        // SAFETY: the node is valid, so its fields have addresses.
        unsafe { NonNull::new_unchecked(&raw mut (*self.node.as_ptr()).value) }
    }

    pub(crate) fn into_raw(self) -> *mut Node<T> {
        ManuallyDrop::new(self).node.as_ptr()
    }

    /// # Safety
    ///
    /// `node` came from [`RcuBox::into_raw`], and is given up.
    pub(crate) unsafe fn from_raw(node: NonNull<Node<T>>) -> Self {
        Self { node, owns: PhantomData }
    }

    /// Counts `bytes` more as given back by the drop, which the value has come to be the last to hold.
    pub(crate) fn hold(&mut self, bytes: usize) {
        // SAFETY: owned; readers look at the value alone, and no queue has the node yet.
        let held = unsafe { &mut (*self.node.as_ptr()).head.bytes };
        *held = held.saturating_add(bytes);
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
