//! Values whose users may end where no memory may be freed: in an interrupt handler.
//!
//! A value has one keeper ([`Kept`]) and any number of [`Handle`]s, which are counted and free nothing. When the keeper
//! no longer needs the value, it leaves it in an [`Attic`]. When the attic is looked through, it frees the values that
//! have no handle any more.
//!
//! - **\[give up\]** is the release of a handle's last step. **\[find\]** is the acquire of the count by the thread
//!   that frees. What was done through handles comes before the value is dropped. A handle does not touch the value,
//!   nor its count, after that step. Handles are made only from the keeper or from other handles, so a count of zero
//!   stays once the keeper is gone.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::{NonNull, null_mut};

use super::boxed::{OutOfMemory, try_box};
use crate::sync::{AtomicPtr, AtomicUsize, Ordering};

/// The keeper of a value, through which it can be given up for good. Dropped while there are handles, it leaves the
/// value where it is, for ever: leave it in an [`Attic`].
pub struct Kept<T> {
    inner: NonNull<Counted<T>>,
    owns: PhantomData<Counted<T>>,
}

/// One of the users of a value. Cloning and dropping it take no lock, and neither allocate nor free.
pub struct Handle<T> {
    inner: NonNull<Counted<T>>,
    shares: PhantomData<T>,
}

/// First in it is what is known of it when its type is forgotten.
#[repr(C)]
struct Counted<T> {
    node: Node,
    value: T,
}

struct Node {
    handles: AtomicUsize,
    /// The next in the attic.
    next: AtomicPtr<Self>,
    /// Frees the whole.
    ///
    /// Safety: there is no handle, and no keeper, and this is done once.
    free: unsafe fn(NonNull<Self>),
}

// SAFETY: the keeper gives `&T`, and handles, to several threads (`T: Sync`), and the value is dropped wherever it is
// freed (`T: Send`).
unsafe impl<T: Send + Sync> Send for Kept<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Kept<T> {}
// SAFETY: as above; a handle does not drop the value, but lets the thread that frees it do so after it, on any thread.
unsafe impl<T: Send + Sync> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Handle<T> {}

impl<T> Kept<T> {
    /// The keeper of `value`, to which there is no handle yet.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]; `value` is dropped.
    pub fn try_new(value: T) -> Result<Self, OutOfMemory> {
        let (handles, next) = (AtomicUsize::new(0), AtomicPtr::new(null_mut()));
        let counted = try_box(Counted { node: Node { handles, next, free: free::<T> }, value })?;
        Ok(Self { inner: NonNull::from(Box::leak(counted)), owns: PhantomData })
    }

    /// Another handle.
    pub fn handle(&self) -> Handle<T> {
        // SAFETY: the keeper is there, so the value has not been freed.
        let node = unsafe { &self.inner.as_ref().node };
        node.add_handle();
        Handle { inner: self.inner, shares: PhantomData }
    }

    fn into_node(self) -> NonNull<Node> {
        let node = self.inner.cast();
        core::mem::forget(self);
        node
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the keeper is there, so the value has not been freed.
        unsafe { &self.inner.as_ref().value }
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        // SAFETY: the keeper ends here, and no other party frees what is in no attic.
        unsafe { Node::free_if_unused(self.inner.cast()) };
    }
}

impl<T> Deref for Handle<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this handle is counted, and nothing is freed before the count is zero.
        unsafe { &self.inner.as_ref().value }
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        // SAFETY: as in `deref`.
        unsafe { self.inner.as_ref() }.node.add_handle();
        Self { inner: self.inner, shares: PhantomData }
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // SAFETY: as in `deref`.
        let handles = unsafe { &self.inner.as_ref().node.handles };
        // [give up]
        handles.fetch_sub(1, Ordering::Release);
    }
}

impl<T: fmt::Debug> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Node {
    fn add_handle(&self) {
        // Relaxed: the thread that adds one has the keeper or a handle already.
        let before = self.handles.fetch_add(1, Ordering::Relaxed);
        assert!(before < usize::MAX / 2, "too many handles");
    }

    fn is_unused(&self) -> bool {
        // [find]
        self.handles.load(Ordering::Acquire) == 0
    }

    /// # Safety
    ///
    /// There is no keeper, and no other party frees `node`.
    unsafe fn free_if_unused(node: NonNull<Self>) -> bool {
        // SAFETY: not freed yet.
        let Self { free, .. } = unsafe { node.as_ref() };
        // SAFETY: as above.
        let unused = unsafe { node.as_ref() }.is_unused();
        if unused {
            // SAFETY: without keeper and handles, and with the caller's promise.
            unsafe { free(node) };
        }
        unused
    }
}

/// # Safety
///
/// As [`Node::free`] says; `node` is that of a `Counted<T>`.
unsafe fn free<T>(node: NonNull<Node>) {
    // SAFETY: `node` is the first field of what `Kept::try_new` has leaked, and points to the whole.
    drop(unsafe { Box::from_raw(node.cast::<Counted<T>>().as_ptr()) });
}

/// Values that their keepers have left, until no user has a handle to them. Dropped, it leaves those that a user still
/// has where they are, for ever.
pub struct Attic {
    first: *mut Node,
    last: *mut Node,
}

// SAFETY: what is in it may be dropped on any thread, see `Attic::put`.
unsafe impl Send for Attic {}

impl Attic {
    /// With nothing in it.
    pub const fn new() -> Self {
        Self { first: null_mut(), last: null_mut() }
    }

    /// Takes over `kept`, behind what is there.
    pub fn put<T: Send + Sync + 'static>(&mut self, kept: Kept<T>) {
        self.push(kept.into_node());
    }

    /// Takes out what is used no more, of the `looks` values that were looked at longest ago. Freed with what this
    /// returns.
    #[must_use = "dropped under a lock, it drops others' values there"]
    pub fn unused(&mut self, looks: usize) -> Self {
        let mut unused = Self::new();
        for _ in 0..looks {
            let Some(node) = self.pop() else { break };
            // SAFETY: what is in an attic is not freed.
            let into = if unsafe { node.as_ref() }.is_unused() { &mut unused } else { &mut *self };
            into.push(node);
        }
        unused
    }

    /// Takes over what is in `other`, behind what is there.
    pub fn append(&mut self, mut other: Self) {
        while let Some(node) = other.pop() {
            self.push(node);
        }
    }

    fn push(&mut self, node: NonNull<Node>) {
        // SAFETY: what is in an attic, or comes in, is not freed; its link is the attic's alone.
        unsafe { node.as_ref() }.next.store(null_mut(), Ordering::Relaxed);
        match NonNull::new(self.last) {
            // SAFETY: as above.
            Some(last) => unsafe { last.as_ref() }.next.store(node.as_ptr(), Ordering::Relaxed),
            None => self.first = node.as_ptr(),
        }
        self.last = node.as_ptr();
    }

    fn pop(&mut self) -> Option<NonNull<Node>> {
        let node = NonNull::new(self.first)?;
        // SAFETY: as in `push`.
        self.first = unsafe { node.as_ref() }.next.load(Ordering::Relaxed);
        if self.first.is_null() {
            self.last = null_mut();
        }
        Some(node)
    }
}

impl Default for Attic {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Attic {
    fn drop(&mut self) {
        while let Some(node) = self.pop() {
            // SAFETY: it came without its keeper, and is in no attic any more.
            unsafe { Node::free_if_unused(node) };
        }
    }
}

impl fmt::Debug for Attic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attic").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(mayfly_loom), not(mayfly_shuttle)))]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    #[test]
    fn a_value_is_freed_when_its_keeper_has_left_it_and_no_handle_is_there_and_not_before() {
        let witness = Arc::new(());
        let kept = Kept::try_new(Arc::clone(&witness)).unwrap();
        let (first, mut attic) = (kept.handle(), Attic::new());
        let second = first.clone();
        attic.put(kept);
        drop(attic.unused(8));
        drop(first);
        drop(attic.unused(8));
        assert!(Arc::ptr_eq(&second, &witness));
        assert_eq!(Arc::strong_count(&witness), 2);
        drop(second);
        assert_eq!(Arc::strong_count(&witness), 2, "the last handle frees nothing");
        drop(attic.unused(8));
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    #[test]
    fn one_that_is_still_used_keeps_no_other_from_being_freed() {
        let witness = Arc::new(());
        let mut attic = Attic::new();
        let mut put = || {
            let kept = Kept::try_new(Arc::clone(&witness)).unwrap();
            let handle = kept.handle();
            attic.put(kept);
            handle
        };
        let (used, _) = (put(), [put(), put()]);
        drop(attic.unused(1));
        assert_eq!(Arc::strong_count(&witness), 4);
        drop(attic.unused(1));
        assert_eq!(Arc::strong_count(&witness), 3, "it went behind the others");
        drop(attic);
        assert_eq!(Arc::strong_count(&witness), 2);
        assert!(Arc::ptr_eq(&used, &witness), "what somebody has is never freed under him");
        // SAFETY: for Miri's sake, which calls it a leak otherwise: the attic has left it, and this was its last use.
        unsafe { free::<Arc<()>>(used.inner.cast()) };
        core::mem::forget(used);
    }

    /// Miri finds a race where it is not so.
    #[test]
    fn what_was_read_by_a_handle_was_read_before_the_value_is_freed() {
        let kept = Kept::try_new([7_u64; 8]).unwrap();
        let handle = kept.handle();
        std::thread::scope(|threads| {
            threads.spawn(move || assert_eq!(handle.iter().sum::<u64>(), 56));
            let mut attic = Attic::new();
            attic.put(kept);
            while attic.unused(1).first.is_null() {
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn a_keeper_without_handles_frees_what_it_keeps() {
        let witness = Arc::new(());
        drop(Kept::try_new(Arc::clone(&witness)).unwrap());
        assert_eq!(Arc::strong_count(&witness), 1);
    }
}
