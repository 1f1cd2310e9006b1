//! How a fork gets its memory.

use super::names::{COPY, MAP_PRIVATE, PREFETCH, USERFAULT};

/// How a fork gets its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Design {
    /// All of it is copied.
    Copy,
    /// What is shared is mapped privately. A page that gets a copy is taken from the guest, which faults for it again.
    MapPrivate,
    /// A thread of this process serves its faults.
    Userfault,
    /// As [`Design::MapPrivate`], with the pages that an earlier fork has written written ahead.
    Prefetch,
    /// What is shared is an image. A page that gets a copy has it in place.
    Mayfly,
}

impl Design {
    pub(super) fn of(variant: &str) -> Self {
        match variant {
            COPY => Self::Copy,
            MAP_PRIVATE => Self::MapPrivate,
            USERFAULT => Self::Userfault,
            PREFETCH => Self::Prefetch,
            _ => Self::Mayfly,
        }
    }

    /// Whether forks have pages in common that they have not written.
    pub(super) fn shares(self) -> bool {
        self != Self::Copy
    }
}
