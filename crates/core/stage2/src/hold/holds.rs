//! The list of the holds of a VM's vCPUs, and how the reclaimer looks at them ([`hold`](super)).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::{NonNull, null_mut};

use mayfly_platform::Platform;
use mayfly_platform::lock::Lock;
use mayfly_platform::memory::Handle;
use mayfly_platform::sync::{AtomicBool, AtomicPtr, Ordering, fence};

/// The root that a vCPU is in its guest on. Written by the vCPU, at each entry and exit: a word of its own cache line.
#[derive(Debug)]
pub struct Hold {
    pub(super) root: AtomicPtr<()>,
    /// A [`Holder`](crate::Holder) has it.
    pub(super) taken: AtomicBool,
}

impl Hold {
    /// Of a vCPU that is outside.
    #[expect(clippy::new_without_default, reason = "a vCPU has one, which is made for it")]
    pub fn new() -> Self {
        Self { root: AtomicPtr::new(null_mut()), taken: AtomicBool::new(false) }
    }

    fn is_on(&self, root: *mut ()) -> bool {
        // Acquire, pairing with the release of the vCPU that comes out.
        self.root.load(Ordering::Acquire) == root
    }
}

/// What others have of a vCPU, its hold among it.
///
/// # Safety
///
/// [`Resident::hold`] gives the same hold every time.
pub unsafe trait Resident: Send + Sync + 'static {
    /// Its hold.
    fn hold(&self) -> &Hold;

    /// Has the vCPU call [`Stage2::came_out`](crate::Stage2::came_out) when it comes out of the guest that it is in,
    /// after its [`Held`](crate::Held) is dropped. Returns whether it is in one; if not, what it was in on it has been
    /// dropped. Does not wait.
    fn tell_when_out(&self) -> bool;
}

// SAFETY: a handle leads to the same value every time, and that to the same hold.
unsafe impl<T: Resident> Resident for Handle<T> {
    fn hold(&self) -> &Hold {
        (**self).hold()
    }

    fn tell_when_out(&self) -> bool {
        (**self).tell_when_out()
    }
}

/// The holds of a VM's vCPUs.
pub(crate) struct Holds {
    pub(super) list: Lock<Vec<Box<dyn Resident>>>,
}

impl Holds {
    pub(crate) fn new() -> Self {
        Self { list: Lock::new(Vec::new()) }
    }

    /// Whether some vCPU is in a guest on `root`, which is in its place no more. If one is, it tells when it comes out.
    #[inline]
    pub(crate) fn is_held(&self, root: NonNull<()>, platform: &dyn Platform) -> bool {
        // [look]
        fence(Ordering::SeqCst);
        let root = root.as_ptr();
        self.list.lock(platform).iter().any(|resident| is_in_guest_on(&**resident, root))
    }
}

/// A vCPU that is found outside has dropped what its hold was found to name, and is not looked at again. Should its hold
/// name the root once more, then for a moment: as the first look did not find that, [look] came before that \[enter\],
/// and the vCPU finds that it may not go in.
#[inline]
fn is_in_guest_on(resident: &dyn Resident, root: *mut ()) -> bool {
    let hold = resident.hold();
    hold.is_on(root) && resident.tell_when_out() && hold.is_on(root)
}

/// Of the word alone: the reclaimer executes no fence when it has looked, as it does where it looks for the VMID.
#[cfg(all(test, mayfly_loom))]
mod tests {
    use alloc::sync::Arc;

    use loom::cell::UnsafeCell;
    use loom::thread;

    use super::*;

    struct Guest {
        hold: Hold,
        /// What the vCPU uses while it is in its guest.
        root: UnsafeCell<u64>,
    }

    // SAFETY: loom checks every access to the cell.
    unsafe impl Sync for Guest {}
    // SAFETY: as above.
    unsafe impl Send for Guest {}

    #[test]
    fn what_a_vcpu_did_on_a_root_came_before_its_hold_is_found_empty() {
        loom::model(|| {
            let guest = Arc::new(Guest { hold: Hold::new(), root: UnsafeCell::new(0) });
            let root = NonNull::<()>::dangling().as_ptr();
            guest.hold.root.store(root, Ordering::Relaxed);
            let vcpu = {
                let guest = Arc::clone(&guest);
                thread::spawn(move || {
                    // SAFETY: the vCPU's, while its hold names the root.
                    guest.root.with_mut(|root| unsafe { *root = 1 });
                    guest.hold.root.store(null_mut(), Ordering::Release);
                })
            };
            if !guest.hold.is_on(root) {
                // SAFETY: the reclaimer's, since no hold names the root.
                guest.root.with_mut(|root| unsafe { *root = 2 });
            }
            vcpu.join().unwrap();
        });
    }
}
