//! A value with several owners.

use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use super::boxed::{OutOfMemory, try_box_with};
use crate::sync::{AtomicUsize, Ordering, fence};
use crate::write_fields;

/// A value with several owners, freed with the last of them: an `Arc` whose allocation may fail.
#[derive(Debug)]
pub struct Shared<T> {
    inner: NonNull<Counted<T>>,
    owns: PhantomData<Counted<T>>,
}

#[derive(Debug)]
struct Counted<T> {
    owners: AtomicUsize,
    value: T,
}

// SAFETY: as for `Arc`: owners on several threads share `&T` (so `T: Sync`) and the last of them drops it, wherever it
// is (so `T: Send`).
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above; `&Shared<T>` gives `&T` and clones.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// A first owner of `value`.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]; `value` is dropped.
    #[inline]
    pub fn try_new(value: T) -> Result<Self, OutOfMemory> {
        // SAFETY: the value is written.
        unsafe { Self::try_new_with(|place| place.write(value)) }
    }

    /// A first owner of the value that `write` puts where it is told: as [`try_box_with`].
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]; `write` is not called.
    ///
    /// # Safety
    ///
    /// As for [`try_box_with`].
    #[inline]
    pub unsafe fn try_new_with(write: impl FnOnce(NonNull<T>)) -> Result<Self, OutOfMemory> {
        let write_counted = |counted: NonNull<Counted<T>>| {
            // SAFETY: the place is one to put the whole, as `try_box_with` says.
            unsafe {
                write_fields!(counted => Counted { owners: AtomicUsize::new(1), value => write });
            }
        };
        // SAFETY: the count is written, and the value, as the caller promises.
        let counted = unsafe { try_box_with(write_counted) }?;
        Ok(Self { inner: NonNull::from(Box::leak(counted)), owns: PhantomData })
    }

    /// Whether both own the same value.
    #[inline]
    pub fn is(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: an owner exists (`self`), so the value has not been dropped.
        unsafe { &self.inner.as_ref().value }
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        // SAFETY: as in `deref`.
        let owners = unsafe { &self.inner.as_ref().owners };
        // Relaxed: the thread that clones has an ownership already, which is how the new one reaches other threads.
        let before = owners.fetch_add(1, Ordering::Relaxed);
        assert!(before < usize::MAX / 2, "too many owners");
        Self { inner: self.inner, owns: PhantomData }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: this owner has not been given up yet.
        let owners = unsafe { &self.inner.as_ref().owners };
        // Release, so that what this owner did with the value happens before the drop; pairs with the fence below.
        if owners.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: this was the last owner, and the pointer came from `Box::leak`.
            drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
        }
    }
}

#[cfg(all(test, not(mayfly_loom), not(mayfly_shuttle)))]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    #[test]
    fn a_shared_value_is_dropped_with_its_last_owner_and_not_before() {
        let witness = Arc::new(());
        let first = Shared::try_new(Arc::clone(&witness)).unwrap();
        let second = first.clone();
        assert!(first.is(&second));
        drop(first);
        assert_eq!(Arc::strong_count(&witness), 2);
        drop(second);
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    /// Miri finds a race where it is not so.
    #[test]
    fn what_an_owner_has_read_it_has_read_before_another_frees_it() {
        let value = Shared::try_new([7_u64; 8]).unwrap();
        let owners = [value.clone(), value];
        std::thread::scope(|threads| {
            for owner in owners {
                threads.spawn(move || assert_eq!(owner.iter().sum::<u64>(), 56));
            }
        });
    }
}
