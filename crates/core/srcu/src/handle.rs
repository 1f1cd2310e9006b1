//! The handles of a domain, counted: its last handle ends it.
//!
//! A worker's list knows domains without owning them, so a worker that no thread turns keeps no domain alive. A thread
//! that takes a domain off the list, under the list's lock, asks for a handle ([`Handle::revive`]). It gets none once
//! the last handle has been given up. A thread that gives up the last handle takes the domain off the list under the
//! same lock before it frees the domain. So what is on the list is valid memory. (Counting is as in `Arc`. *[last]*:
//! each thread gives up its handle with release, and the thread that finds that its handle was the last passes an
//! acquire fence.)

use alloc::boxed::Box;
use core::ops::Deref;
use core::ptr::NonNull;

use mayfly_platform::memory::{OutOfMemory, try_box_with};
use mayfly_platform::sync::{AtomicUsize, Ordering, fence};
use mayfly_platform::write_fields;

use crate::Config;
use crate::domain::Domain;
use crate::roster::Link;
use crate::world::World;

/// A domain, and what others know of it.
pub(crate) struct Counted {
    handles: AtomicUsize,
    pub(crate) link: Link,
    domain: Domain,
}

impl Counted {
    /// Says that no worker has the domain on its list. It may be freed as soon as this is said.
    pub(crate) fn detach(&self) {
        self.domain.attached.store(false, Ordering::Release);
    }
}

pub(crate) struct Handle(NonNull<Counted>);

// SAFETY: as for `Arc`: handles on several threads share `&Domain`, which is `Sync`, and the last of them frees it,
// wherever it is, which `Send` allows.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// The two impls above rest on this.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Domain>();
};

impl Handle {
    /// The first handle of a domain that is put together where it stays.
    pub(crate) fn try_new(world: World, config: Config) -> Result<Self, OutOfMemory> {
        let write = |counted: NonNull<Counted>| {
            // SAFETY: the place is one to put the whole, as `try_box_with` says.
            unsafe {
                write_fields!(counted => Counted {
                    handles: AtomicUsize::new(1),
                    link: Link::new(),
                    domain => |domain| Domain::write_new(domain, world, config),
                });
            }
        };
        // SAFETY: all fields are written.
        let counted = unsafe { try_box_with(write) }?;
        Ok(Self(NonNull::from(Box::leak(counted))))
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Where the domain is. Valid for as long as a handle is kept.
    pub(crate) fn at(&self) -> NonNull<Counted> {
        self.0
    }

    /// A handle of the domain at `at`, if it has one still.
    ///
    /// # Safety
    ///
    /// `at` has not been freed.
    pub(crate) unsafe fn revive(at: NonNull<Counted>) -> Option<Self> {
        // SAFETY: as the caller says.
        let handles = unsafe { &at.as_ref().handles };
        let add = |handles: usize| (handles != 0).then_some(handles + 1);
        handles.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok().then_some(Self(at))
    }

    fn counted(&self) -> &Counted {
        // SAFETY: valid while there is a handle.
        unsafe { self.0.as_ref() }
    }
}

impl Deref for Handle {
    type Target = Domain;

    #[inline]
    fn deref(&self) -> &Domain {
        &self.counted().domain
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        // Relaxed: the thread that clones has a handle already, which is how the new one reaches other threads.
        let before = self.counted().handles.fetch_add(1, Ordering::Relaxed);
        assert!(before < usize::MAX / 2, "too many handles");
        Self(self.0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        /// Frees the domain, also where what was deferred in it panics.
        struct Free(NonNull<Counted>);
        impl Drop for Free {
            fn drop(&mut self) {
                // SAFETY: it came from `Box::leak`, no handle is left, and no list has it.
                drop(unsafe { Box::from_raw(self.0.as_ptr()) });
            }
        }
        // [last]
        if self.counted().handles.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let domain = &self.counted().domain;
        if let Some(worker) = domain.attached_to() {
            worker.forget(self.0);
        }
        let _free = Free(self.0);
        // No thread is left to read (a reader keeps its domain), so everything deferred can run at once.
        domain.run_rest();
    }
}
