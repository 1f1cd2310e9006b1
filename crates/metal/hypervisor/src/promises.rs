//! What VMs are guaranteed of the heap.
//!
//! A VM is guaranteed twice the bytes that its pieces [take](taken) at most ([`needs`](crate::needs)): the heap is one large
//! piece or a few, which its allocator cuts up, and what is free may lie in pieces that are too small. A part of the heap is
//! guaranteed to no VM: it is the hypervisor's own.

use core::sync::atomic::{AtomicUsize, Ordering};

/// What the heap's allocator (talc) adds to a piece, and the unit of what it takes, to which each piece is aligned.
pub(crate) const TAG: usize = 8;
pub(crate) const UNIT: usize = 32;

/// Bytes of the heap that its allocator takes for a piece of so many.
pub const fn taken(bytes: usize) -> usize {
    (bytes + TAG).next_multiple_of(UNIT)
}

/// The part of the heap that is the hypervisor's own: one in eight.
pub const OWN: usize = 8;

/// How many bytes VMs are guaranteed.
#[derive(Debug, Default)]
pub struct Promises(AtomicUsize);

impl Promises {
    /// None.
    pub const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Guarantees `bytes` of a heap of `all` bytes, which [`Promises::release`] takes back.
    ///
    /// # Errors
    ///
    /// How many bytes are left to be guaranteed, if that is less.
    pub fn guarantee(&self, all: usize, bytes: usize) -> Result<(), usize> {
        let most = all - all / OWN;
        let more = |before: usize| before.checked_add(bytes).filter(|after| *after <= most);
        let set = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        set.map(|_| ()).map_err(|before| most - before)
    }

    /// Takes back what [`Promises::guarantee`] has given.
    pub fn release(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that are guaranteed.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
