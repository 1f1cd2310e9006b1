//! Lists of roots, linked through the roots themselves, so that adding one never allocates.

use core::ptr::{NonNull, null_mut};

use mayfly_platform::sync::{AtomicPtr, Ordering};

use crate::Format;
use crate::root::{Root, RootRef};

/// Roots linked by one of their links, each with a reference, in the order in which they came. Adding one and taking
/// one takes the same time however many there are: a caller that retires a root waits for the list.
pub(crate) struct List<F: Format> {
    first: *mut Root<F>,
    /// Null where there is no first.
    last: *mut Root<F>,
    link: fn(&Root<F>) -> &AtomicPtr<Root<F>>,
}

impl<F: Format> List<F> {
    pub(crate) fn new(link: fn(&Root<F>) -> &AtomicPtr<Root<F>>) -> Self {
        Self { first: null_mut(), last: null_mut(), link }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Whether `root` is on it, and no other.
    pub(crate) fn is_only(&self, root: &RootRef<F>) -> bool {
        self.first == self.last && NonNull::new(self.first).is_some_and(|first| root.is_at(first))
    }

    /// Adds `root`, with a reference of it.
    pub(crate) fn push(&mut self, root: NonNull<Root<F>>) {
        // SAFETY: the reference that comes with it.
        (self.link)(unsafe { root.as_ref() }).store(null_mut(), Ordering::Relaxed);
        if let Some(last) = NonNull::new(self.last) {
            // SAFETY: roots on the list are held by the list's references.
            let last = unsafe { last.as_ref() };
            (self.link)(last).store(root.as_ptr(), Ordering::Relaxed);
        } else {
            self.first = root.as_ptr();
        }
        self.last = root.as_ptr();
    }

    /// Takes off the root that came first, with its reference.
    pub(crate) fn pop(&mut self) -> Option<NonNull<Root<F>>> {
        let root = NonNull::new(self.first)?;
        // SAFETY: as in `push`.
        self.first = (self.link)(unsafe { root.as_ref() }).load(Ordering::Relaxed);
        if self.first.is_null() {
            self.last = null_mut();
        }
        Some(root)
    }
}

// SAFETY: the list owns references of roots, which are shared between threads.
unsafe impl<F: Format> Send for List<F> {}
