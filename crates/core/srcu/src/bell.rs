//! A word by which one party sleeps for several domains, and for other things beside.
//!
//! A thread that waits for a grace period sleeps on its domain's own word, and so for one domain. A party that waits
//! for grace periods of many domains, or for the first of many events, has a [`Bell`]. It loads the word, asks
//! ([`Srcu::poll_or_ring`](crate::Srcu::poll_or_ring)), and sleeps while the word is what it was. A domain rings one
//! bell, the first that it was given, for as long as the domain lasts.
//!
//! *The protocol.* The party that asks puts the bell in its place, **\[bell\]** `fence(SeqCst)`, asks the readers that
//! hold the grace period up to say when they leave, and scans (see `domain`, *Sleeping*). A reader that was asked
//! stores `section`, and when it has found that it was asked, **\[haste\]** `fence(SeqCst)`, loads the bell. A reader
//! that this party asked has acquired nothing by that, but its [haste] comes after the party's [bell], because it has
//! read a mark that was set after that. A reader that another party had asked before is left with store buffering:
//! either the scan sees that the reader left, or the reader sees the bell.

use alloc::sync::Arc;
use core::ptr::null_mut;

use mayfly_platform::Platform;
use mayfly_platform::sync::{AtomicPtr, AtomicU32, Ordering};
use mayfly_platform::time::Instant;

use crate::world::World;

/// A word that changes when there may be something to do for the party that sleeps on it.
pub struct Bell {
    rung: AtomicU32,
    world: World,
}

impl Bell {
    /// A bell on `platform`.
    pub fn new(platform: Arc<dyn Platform>) -> Self {
        Self { rung: AtomicU32::new(0), world: World::new(platform) }
    }

    /// Makes the party that sleeps on it look again. Takes no lock and waits for no thread: calls [`Platform::wake`].
    pub fn ring(&self) {
        // Release, pairing with the acquire of the party that looks again.
        self.rung.fetch_add(1, Ordering::Release);
        self.world.wake(&self.rung);
    }

    /// The word itself, which each ring changes: to be loaded, with acquire, before one looks what there is to do, and to
    /// be slept on if it is the same still.
    pub fn rung(&self) -> &AtomicU32 {
        &self.rung
    }

    /// Sleeps until it is rung, or has been since the word was `seen`.
    pub fn wait(&self, seen: u32) {
        while self.rung.load(Ordering::Acquire) == seen {
            self.world.wait(&self.rung, seen);
        }
    }

    /// As [`Bell::wait`], until `deadline` at the latest.
    pub fn wait_until(&self, seen: u32, deadline: Instant) {
        self.world.wait_until(&self.rung, seen, deadline);
    }
}

impl core::fmt::Debug for Bell {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bell").field("rung", &self.rung).finish_non_exhaustive()
    }
}

/// What [`Srcu::poll_or_ring`](crate::Srcu::poll_or_ring) has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The grace period is over.
    Over,
    /// It is not, and the bell is rung whenever a reader has left that holds it up.
    Rings,
    /// It is not, and the bell may be rung, or not: look again after a while.
    MayRing,
}

/// The bell of a domain.
pub(crate) struct BellPull(AtomicPtr<Bell>);

impl BellPull {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Has `bell` rung, unless another one is. Returns whether it is.
    pub(crate) fn hang(&self, bell: &Arc<Bell>) -> bool {
        let ours = Arc::as_ptr(bell).cast_mut();
        let there = self.0.load(Ordering::Acquire);
        if !there.is_null() {
            return there == ours;
        }
        let given = Arc::into_raw(Arc::clone(bell)).cast_mut();
        // Release, pairing with the acquire in `ring`: the bell itself.
        match self.0.compare_exchange(null_mut(), given, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(there) => {
                // SAFETY: given a moment ago, and no thread has it.
                drop(unsafe { Arc::from_raw(given) });
                there == ours
            }
        }
    }

    pub(crate) fn ring(&self) {
        // SAFETY: it is given up with the domain alone, which the caller has a handle to.
        if let Some(bell) = unsafe { self.0.load(Ordering::Acquire).as_ref() } {
            bell.ring();
        }
    }
}

impl Drop for BellPull {
    fn drop(&mut self) {
        let bell = self.0.load(Ordering::Acquire);
        if !bell.is_null() {
            // SAFETY: given in `hang`, and no thread rings it any more.
            drop(unsafe { Arc::from_raw(bell) });
        }
    }
}
