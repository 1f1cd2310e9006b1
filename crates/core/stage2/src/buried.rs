//! Noted roots: how the reclaimer learns of buried tables that no other caller would free.
//!
//! A fault that puts a block in the place of a table buries tables ([`graveyard`](crate::graveyard)). The fault neither
//! waits for their readers nor looks whether there are any, and there need not be another caller that collects. A zap
//! collects when it is done, and leaves the tables that a reader may still be reading. So a caller that leaves buried
//! tables behind *notes* the root, and the reclaimer collects.
//!
//! Noted roots are on a stack that takes no lock, since vCPUs put them there. Each has a reference, and is on the stack
//! once.
//!
//! - **\[note\]** is the exchange of a root's `noted` for true, after the tables were buried. A caller that finds it
//!   true already does nothing more. **\[heed\]** is the reclaimer's exchange for false, when it has taken the root off
//!   the stack and before it collects. Both are steps of one word. So a caller that did nothing more has buried before
//!   \[heed\], and the reclaimer collects its tables.

use core::ptr::NonNull;

use mayfly_platform::sync::Ordering;

use crate::Format;
use crate::reclaim::Reclaimer;
use crate::root::{Root, RootRef};

impl<F: Format> Root<F> {
    /// Has the reclaimer free what is buried, if anything is. Takes no lock.
    pub(crate) fn note_buried(&self) {
        let space = self.space();
        // [note]
        if space.graveyard.count() == 0 || self.noted.swap(true, Ordering::AcqRel) {
            return;
        }
        // SAFETY: the root has a reference: its place's, or one of the caller's; and one in a place, or the reclaimer's
        // after that, is not given up before the caller's section ends.
        let root = unsafe { RootRef::acquire(NonNull::from(self)) }.into_raw().as_ptr();
        let first = &space.bell.noted.0;
        let mut next = first.load(Ordering::Relaxed);
        loop {
            self.next_noted.store(next.cast(), Ordering::Relaxed);
            // Release, pairing with the acquire in `heed_noted`: the link.
            let put =
                first.compare_exchange(next, root.cast(), Ordering::Release, Ordering::Relaxed);
            match put {
                Ok(_) => break,
                Err(other) => next = other,
            }
        }
        space.bell.ring();
    }
}

impl<F: Format> Reclaimer<F> {
    /// Puts the noted roots on the list of those that there is something to be done about.
    pub(crate) fn heed_noted(&self) {
        let mut next = self.bell().noted.0.swap(core::ptr::null_mut(), Ordering::Acquire);
        while let Some(root) = NonNull::new(next.cast::<Root<F>>()) {
            // SAFETY: put there by `note_buried` as a reference, which is taken back once.
            let root = unsafe { RootRef::from_raw(root) };
            next = root.next_noted.load(Ordering::Relaxed).cast();
            // [heed]
            root.noted.swap(false, Ordering::AcqRel);
            // A retired one sees to it itself what its VM has buried.
            if !root.is_retired() {
                self.collect_later(&root);
            }
        }
    }
}
