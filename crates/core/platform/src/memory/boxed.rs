//! Boxes whose allocation may fail, put together where they stay.

use alloc::alloc::{Layout, alloc};
use alloc::boxed::Box;
use core::ptr::NonNull;

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
    // Valid for writes of a `T`, aligned for it, and no other party's.
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
/// // SAFETY: the place is there, and no other party looks at it.
/// unsafe { write_fields!(at => Pair { left: 1, right: [2; 100] }) };
/// // SAFETY: all of it is written.
/// let pair = unsafe { place.assume_init() };
/// assert_eq!((pair.left, pair.right[99]), (1, 2));
/// ```
///
/// `field => write` in the place of `field: value` calls `write` with where the field is, a [`NonNull`], for one that
/// is large itself.
///
/// A field that is left out is an error:
///
/// ```compile_fail
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
/// The place, a [`NonNull`], is valid for writes of the structure, aligned for it, and no other party's. Whatever is
/// there is overwritten, and not dropped.
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
