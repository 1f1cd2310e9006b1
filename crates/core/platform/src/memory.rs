//! Memory that may be refused.
//!
//! `Box::new` and `Arc::new` abort where no memory is left; the core returns an error instead and stays as it was.

use alloc::alloc::{Layout, alloc};
use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::sync::{AtomicUsize, Ordering, fence};

mod kept;

pub use kept::{Attic, Handle, Kept};

/// The allocator had no memory to give. Maps to `ENOMEM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory")]
pub struct OutOfMemory;

impl From<alloc::collections::TryReserveError> for OutOfMemory {
    fn from(_: alloc::collections::TryReserveError) -> Self {
        Self
    }
}

/// A [`Box`] of `value`.
///
/// # Errors
///
/// [`OutOfMemory`]; `value` is dropped.
#[inline]
pub fn try_box<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    // SAFETY: the value is written.
    unsafe { try_box_with(|place| place.write(value)) }
}

/// A [`Box`] of the value that `write` puts where it is told, which is for values that are too large to be put together
/// on a stack and then moved ([`write_fields`](crate::write_fields)).
///
/// # Errors
///
/// [`OutOfMemory`]; `write` is not called.
///
/// # Safety
///
/// There is a `T` in the place when `write` returns. (If it panics, the memory is leaked, with what is in it.)
#[inline]
pub unsafe fn try_box_with<T>(write: impl FnOnce(NonNull<T>)) -> Result<Box<T>, OutOfMemory> {
    const { assert!(size_of::<T>() > 0, "a zero-sized value needs no memory") };
    // SAFETY: the layout is not zero-sized, as asserted above.
    let memory = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    // Valid for writes of a `T`, aligned for it, and nobody else's.
    let memory = NonNull::new(memory).ok_or(OutOfMemory)?;
    write(memory);
    // SAFETY: there is a `T` now, as the caller promises; `Box` frees it with the same layout and the same (global)
    // allocator.
    Ok(unsafe { Box::from_raw(memory.as_ptr()) })
}

/// Writes each field of a structure where it belongs, so that the whole is never anywhere else: all of them, or it does
/// not compile.
///
/// ```
/// use core::mem::MaybeUninit;
/// use core::ptr::NonNull;
/// use mayfly_platform::write_fields;
///
/// struct Pair {
///     left: u8,
///     right: [u64; 100],
/// }
///
/// let mut place = MaybeUninit::<Pair>::uninit();
/// let at = NonNull::from(&mut place).cast::<Pair>();
/// // SAFETY: the place is there, and nobody else looks at it.
/// unsafe { write_fields!(at => Pair { left: 1, right: [2; 100] }) };
/// // SAFETY: all of it is written.
/// let pair = unsafe { place.assume_init() };
/// assert_eq!((pair.left, pair.right[99]), (1, 2));
/// ```
///
/// `field => write` in the place of `field: value` calls `write` with where the field is, a [`NonNull`], for one that is
/// large itself.
///
/// A field that is left out is an error:
///
/// ```compile_fail,E0027
/// # use core::mem::MaybeUninit;
/// # use core::ptr::NonNull;
/// # use mayfly_platform::write_fields;
/// # struct Pair {
/// #     left: u8,
/// #     right: [u64; 100],
/// # }
/// # let mut place = MaybeUninit::<Pair>::uninit();
/// # let at = NonNull::from(&mut place).cast::<Pair>();
/// unsafe { write_fields!(at => Pair { left: 1 }) };
/// ```
///
/// # Safety
///
/// The place, a [`NonNull`], is valid for writes of the structure, aligned for it, and nobody else's. Whatever is there
/// is overwritten, and not dropped.
#[macro_export]
macro_rules! write_fields {
    (@ $field:ident, $at:expr, $value:expr) => { $at.write($value) };
    (@ $field:ident, $at:expr, @ $write:expr) => { $write(::core::ptr::NonNull::new_unchecked($at)) };
    (@ $field:ident, $at:expr,) => { $at.write($field) };
    ($place:expr => $structure:ident {
        $($field:ident $(: $value:expr)? $(=> $write:expr)?),* $(,)?
    }) => {{
        let place = ::core::ptr::NonNull::as_ptr($place);
        if false {
            // Names every field, and looks at none.
            let $structure { $($field: _),* } = *place;
        }
        $( $crate::write_fields!(@ $field, (&raw mut (*place).$field), $($value)? $(@ $write)?); )*
    }};
}

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
        // Relaxed: whoever clones has an ownership already, which is how the new one reaches other threads.
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
}
