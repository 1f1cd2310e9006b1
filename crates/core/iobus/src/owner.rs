//! The owner of a registered device, and the pointers that only know where the device is.
//!
//! A device lives in a place of its own. Versions of the bus hold pointers to devices, so copying a version copies
//! pointers and updates no counts. The owners themselves are kept apart:
//!
//! - until the version that adds the device is published, in its [`Draft`](crate::draft::Draft);
//! - then with the bus, under the writers' lock;
//! - once a version without the device is published, with the last version that had it, which is freed after a grace
//!   period ([`Version`](crate::version::Version)).
//!
//! vCPUs use a device while its owner is moved and looked for. So a writer looks only at where the device is, and not
//! at the device. No owner is a `Box`, because a `Box` would claim to have the device to itself.

use alloc::boxed::Box;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;

use mayfly_platform::memory::try_box;

/// A device in its place.
pub(crate) struct Owner<D> {
    place: NonNull<Place<D>>,
    owns: PhantomData<D>,
}

struct Place<D> {
    /// There as long as the owner is.
    device: MaybeUninit<D>,
    /// So that two devices are never in one place, whatever their size.
    _room: u8,
}

// SAFETY: as `Box<D>`; owns its device.
unsafe impl<D: Send> Send for Owner<D> {}
// SAFETY: as above.
unsafe impl<D: Sync> Sync for Owner<D> {}

impl<D> Owner<D> {
    /// What a device takes with its place, in bytes.
    pub(crate) const BYTES: usize = size_of::<Place<D>>();

    /// Gives `device` a place, or gives it back where there is no memory.
    pub(crate) fn try_new(device: D) -> Result<Self, D> {
        let Ok(mut place) = try_box(Place { device: MaybeUninit::uninit(), _room: 0 }) else {
            return Err(device);
        };
        place.device.write(device);
        Ok(Self { place: NonNull::from(Box::leak(place)), owns: PhantomData })
    }

    pub(crate) fn into_device(self) -> D {
        let place = ManuallyDrop::new(self).place;
        // SAFETY: the place came from `Box::leak`, and its owner gives it up.
        let place = unsafe { Box::from_raw(place.as_ptr()) };
        // SAFETY: the device is there as long as the owner was.
        unsafe { place.device.assume_init() }
    }

    /// Where the device is, until it is dropped or moved.
    ///
    /// # Safety
    ///
    /// [`Pointer::device`] of the pointer, and of its copies, is called, and what it returns used, only before that.
    pub(crate) unsafe fn pointer(&self) -> Pointer<D> {
        Pointer(self.address())
    }

    pub(crate) fn owns(&self, pointer: Pointer<D>) -> bool {
        self.address() == pointer.0
    }

    fn address(&self) -> NonNull<D> {
        // SAFETY: the place is valid, so its fields have addresses.
        unsafe { NonNull::new_unchecked(&raw mut (*self.place.as_ptr()).device) }.cast()
    }
}

impl<D> Drop for Owner<D> {
    fn drop(&mut self) {
        // SAFETY: the place came from `Box::leak`, and its owner goes.
        let mut place = unsafe { Box::from_raw(self.place.as_ptr()) };
        // SAFETY: the device is there as long as the owner was, and dropped once.
        unsafe { place.device.assume_init_drop() }
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
        // SAFETY: the device is there, as the thread that made this with `Owner::pointer` has promised.
        unsafe { self.0.as_ref() }
    }
}

#[cfg(all(test, not(mayfly_loom), not(mayfly_shuttle)))]
mod tests {
    use core::num::NonZeroU8;
    use core::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::{Owner, Pointer};

    /// Writes to a device's memory without ceasing, what is no device in between, until `over`.
    fn keep_writing(device: Pointer<NonZeroU8>, began: &AtomicBool, over: &AtomicBool) {
        for value in [0, 1].into_iter().cycle() {
            // SAFETY: the device is there, and no other party looks at it.
            unsafe { device.0.cast::<u8>().write_volatile(value) };
            began.store(true, Ordering::Relaxed);
            if value == 1 && over.load(Ordering::Relaxed) {
                break;
            }
        }
    }

    #[test]
    fn an_owner_is_known_by_where_its_device_is_and_not_by_what_others_write_there() {
        let owners = [1, 2].map(|id| Owner::try_new(NonZeroU8::new(id).unwrap()).unwrap());
        // SAFETY: no thread looks at the devices by these.
        let pointers = owners.each_ref().map(|owner| unsafe { owner.pointer() });
        let (began, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let busy = pointers[0];
        thread::scope(|threads| {
            threads.spawn(|| keep_writing(busy, &began, &over));
            while !began.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            let rounds = if cfg!(miri) { 100 } else { 100_000 };
            let known = || pointers.map(|at| owners.each_ref().map(|owner| owner.owns(at)));
            let always = (0..rounds).all(|_| known() == [[true, false], [false, true]]);
            over.store(true, Ordering::Relaxed);
            assert!(always);
        });
    }

    #[test]
    fn devices_without_a_size_have_places_of_their_own() {
        let owners = [(), ()].map(|device| Owner::try_new(device).unwrap());
        // SAFETY: no thread looks at the devices by these.
        let pointers = owners.each_ref().map(|owner| unsafe { owner.pointer() });
        assert!(owners[0].owns(pointers[0]) && !owners[0].owns(pointers[1]));
    }
}
