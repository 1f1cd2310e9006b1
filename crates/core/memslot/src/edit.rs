//! What setting a region did.

use crate::{Backing, Slot};

/// How a slot was changed, and what it was and is.
///
/// Holds its slots itself, the log of dirty pages included: what was marked before a slot was deleted can still be
/// harvested here. So the memory of such a log is given back when the old snapshot and the edit are both gone, of which
/// the domain's bounds know the snapshot alone.
#[derive(Clone, Debug)]
pub enum Edit<B> {
    /// A new slot.
    Create {
        /// The slot.
        new: Slot<B>,
    },
    /// A slot is gone.
    Delete {
        /// The slot.
        old: Slot<B>,
    },
    /// A slot begins at another guest frame; its flags may have changed as well.
    Move {
        /// The slot before.
        old: Slot<B>,
        /// The slot now.
        new: Slot<B>,
    },
    /// Dirty pages are logged from now on, or no longer.
    Flags {
        /// The slot before.
        old: Slot<B>,
        /// The slot now.
        new: Slot<B>,
    },
}

impl<B> Edit<B> {
    /// The slot before, if there was one.
    pub fn before(&self) -> Option<&Slot<B>> {
        match self {
            Self::Create { .. } => None,
            Self::Delete { old } | Self::Move { old, .. } | Self::Flags { old, .. } => Some(old),
        }
    }

    /// The slot now, if there is one.
    pub fn after(&self) -> Option<&Slot<B>> {
        match self {
            Self::Delete { .. } => None,
            Self::Create { new } | Self::Move { new, .. } | Self::Flags { new, .. } => Some(new),
        }
    }
}

impl<B: Backing> Edit<B> {
    /// What the log takes that snapshots no longer have, in bytes.
    pub(crate) fn dropped_log(&self) -> usize {
        let new = self.after().and_then(Slot::log);
        match self.before().and_then(Slot::log) {
            Some(old) if !new.is_some_and(|new| new.is(old)) => old.held(),
            _ => 0,
        }
    }
}
