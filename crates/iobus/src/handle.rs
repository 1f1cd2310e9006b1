//! Who owns a registered device.
//!
//! A device lives in a box of its own. Every version of the bus refers to it by a bitwise copy of that box, a [`Handle`], so copying a
//! version copies pointers and counts nothing. One of the copies is the owner:
//!
//! - until the version that adds the device is published, the [`Owner`] in its [`Draft`](crate::draft::Draft);
//! - then the handle in the present version, whichever that is;
//! - once a version without the device is published, the handle in what that publication returned
//!   ([`Replaced`](crate::Replaced)), which lets go of it after a grace period.
//!
//! A handle drops nothing. So versions are freed without a look at their devices, and what goes wrong (a panic, a leak) at worst
//! leaks a device.

use core::mem::ManuallyDrop;

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
}

impl<D: Send + 'static> Owner<D> {
    /// The device's drop, to be deferred.
    pub(crate) fn into_callback(self) -> Callback {
        self.0.into_callback()
    }
}

/// A copy of an [`Owner`] that refers to its device.
pub(crate) struct Handle<D>(ManuallyDrop<Owner<D>>);

impl<D> Handle<D> {
    /// # Safety
    ///
    /// [`Handle::device`] of the copy, and of its copies, is called only before the device is dropped or moved.
    pub(crate) unsafe fn of(owner: &Owner<D>) -> Self {
        // SAFETY: a copy that is not dropped; `ManuallyDrop` has the layout of what it holds.
        Self(unsafe { core::ptr::from_ref(owner).cast::<ManuallyDrop<Owner<D>>>().read() })
    }

    #[inline]
    pub(crate) fn device(&self) -> &D {
        let boxed = &*self.0.0;
        // SAFETY: `Owner::try_new` puts the device there before anybody can ask, and it stays until the owner goes.
        unsafe { boxed.as_ref().unwrap_unchecked() }
    }

    /// Makes this copy the owner.
    ///
    /// # Safety
    ///
    /// No other copy is one, or becomes one, and the promise made in [`Handle::of`] is kept when the owner lets go.
    pub(crate) unsafe fn own(&self) -> Owner<D> {
        // SAFETY: as the caller promises.
        unsafe { core::ptr::from_ref(&*self.0).read() }
    }
}
