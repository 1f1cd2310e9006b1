//! The bell of a machine's reclaimer: the VMs ring it, note roots on it, and leave it what it frees later.

use alloc::sync::Arc;

use mayfly_platform::Mmu;
use mayfly_platform::lock::Lock;
use mayfly_platform::memory::{Attic, Kept};
use mayfly_platform::sync::AtomicPtr;

/// Told when a retired root may have become free to reclaim.
pub(crate) struct Bell {
    pub(crate) word: Arc<mayfly_srcu::Bell>,
    pub(crate) mmu: Arc<dyn Mmu>,
    /// Roots whose VMs have buried tables.
    pub(crate) noted: Noted,
    /// Values of all VMs to which a handle may still exist.
    attic: Lock<Attic>,
}

/// Of what is in the attic, so much is looked at when something is put there: more than one, so that what nobody has a
/// handle to any more is found in time.
const LOOKS: usize = 2;

impl Bell {
    pub(crate) fn new(mmu: Arc<dyn Mmu>) -> Self {
        Self {
            word: Arc::new(mayfly_srcu::Bell::new(mmu.clone())),
            mmu,
            noted: Noted::new(),
            attic: Lock::new(Attic::new()),
        }
    }

    pub(crate) fn ring(&self) {
        self.word.ring();
    }

    /// Frees `kept` when no handle to it exists any more.
    pub(crate) fn leave<T: Send + Sync + 'static>(&self, kept: Kept<T>) {
        let mut arrived = Attic::new();
        arrived.put(kept);
        drop(arrived.unused(1));
        self.attic.lock(&*self.mmu).append(arrived);
        self.look_through_attic(LOOKS);
    }

    pub(crate) fn look_through_attic(&self, looks: usize) {
        let unused = self.attic.lock(&*self.mmu).unused(looks);
        // Dropped without the lock.
        drop(unused);
    }
}

/// The stack of noted roots: of the format of the reclaimer that it belongs to.
pub(crate) struct Noted(pub(crate) AtomicPtr<()>);

impl Noted {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }
}
