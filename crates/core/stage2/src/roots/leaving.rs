//! The roots that have left their places and on which vCPUs may still run ([`roots`](super)).

use core::ptr::{NonNull, null_mut};

use mayfly_platform::sync::{AtomicPtr, Ordering};

use crate::role::{ROLES, Role};

/// For each role, the root that has left its place, and that vCPUs may still be running on: a root of the VM's format.
///
/// Among what a VM's roots share, since the last to look here is the reclaimer.
pub(crate) struct Leaving([AtomicPtr<()>; ROLES]);

impl Leaving {
    pub(crate) fn new() -> Self {
        Self([(); ROLES].map(|()| AtomicPtr::new(null_mut())))
    }

    pub(super) fn of(&self, role: Role) -> &AtomicPtr<()> {
        &self.0[usize::from(role.get())]
    }

    /// Takes out `root`, of `role`. Returns whether it was there: then it has to wait once more for readers that have
    /// found it inside a section.
    #[inline]
    pub(crate) fn remove(&self, role: Role, root: NonNull<()>) -> bool {
        let (root, place) = (root.as_ptr(), self.of(role));
        place.compare_exchange(root, null_mut(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
