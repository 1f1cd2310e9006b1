//! Who owns a registered device, and who only knows where it is.
//!
//! A device lives in a box of its own. Versions of the bus hold pointers to devices, so copying a version copies
//! pointers and counts nothing. The boxes themselves are kept apart:
//!
//! - until the version that adds the device is published, in its [`Draft`](crate::draft::Draft);
//! - then with the bus, under the writers' lock;
//! - once a version without the device is published, in what that publication returned ([`Replaced`](crate::Replaced)),
//!   which lets go of it after a grace period, and otherwise rather leaks it.

use core::ptr::NonNull;

use mayfly_srcu::{Callback, RcuBox};

/// A device in its box. Always `Some`; `None` only while the box is made.
pub(crate) struct Owner<D>(RcuBox<Option<D>>);

impl<D> Owner<D> {
    /// Boxes `device`, or gives it back where there is no memory.
    pub(crate) fn try_new(device: D) -> Result<Self, D> {
        let Ok(mut boxed) = RcuBox::try_new(None) else { return Err(device) };
        *boxed = Some(device);
        Ok(Self(boxed))
    }

    pub(crate) fn into_device(self) -> D {
        self.0.into_inner().expect("an owner has its device")
    }

    /// Where the device is, until it is dropped or moved.
    ///
    /// # Safety
    ///
    /// [`Pointer::device`] of the pointer, and of its copies, is called, and what it returns used, only before that.
    pub(crate) unsafe fn pointer(&self) -> Pointer<D> {
        Pointer(NonNull::from(self.0.as_ref().expect("an owner has its device")))
    }

    pub(crate) fn owns(&self, pointer: Pointer<D>) -> bool {
        self.0.as_ref().is_some_and(|device| NonNull::from(device) == pointer.0)
    }
}

impl<D: Send + 'static> Owner<D> {
    /// The device's drop, to be deferred.
    pub(crate) fn into_callback(self) -> Callback {
        self.0.into_callback()
    }
}

/// Where a device is.
pub(crate) struct Pointer<D>(NonNull<D>);

// SAFETY: gives `&D` and nothing else, as `&D` itself does.
unsafe impl<D: Sync> Send for Pointer<D> {}
// SAFETY: as above.
unsafe impl<D: Sync> Sync for Pointer<D> {}

impl<D> Clone for Pointer<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Pointer<D> {}

impl<D> Pointer<D> {
    #[inline]
    pub(crate) fn device(&self) -> &D {
        // SAFETY: the device is there, as whoever made this with `Owner::pointer` has promised.
        unsafe { self.0.as_ref() }
    }
}
