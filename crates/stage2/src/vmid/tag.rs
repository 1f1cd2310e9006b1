//! A root's tag: a number, and the generation in which it is the root's.

use mayfly_platform::sync::{AtomicU64, Ordering};
use mayfly_platform::tlb::Vmid;

const NUMBER_BITS: u32 = 16;

/// A generation (48 bits: enough for a roll-over every microsecond for eight years) and a number (16 bits), 0 where
/// there is none. A line holds the same, so that the two are compared as they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u64);

impl Tag {
    /// What to add for the next generation.
    pub(super) const GENERATION: u64 = 1 << NUMBER_BITS;
    /// The bits of the number.
    pub(super) const NUMBER: u64 = Self::GENERATION - 1;

    const UNASSIGNED: Self = Self(0);

    pub(super) fn new(generation: u64, number: Vmid) -> Self {
        Self(generation << NUMBER_BITS | u64::from(number.0))
    }

    pub(super) fn generation(self) -> u64 {
        self.0 >> NUMBER_BITS
    }

    pub(super) fn number(self) -> Option<Vmid> {
        let number = (self.0 & Self::NUMBER) as u16;
        (number != 0).then_some(Vmid(number))
    }
}

/// The VMID of a root, as far as it has one. Each root has one such tag, made with it and retired with it
/// ([`Vmids::retire`](crate::Vmids::retire)).
#[derive(Debug)]
pub struct VmidTag {
    tag: AtomicU64,
}

impl VmidTag {
    /// The tag of a root that no vCPU has entered.
    pub fn new() -> Self {
        Self { tag: AtomicU64::new(Tag::UNASSIGNED.0) }
    }

    /// Acquire, pairing with the release in `replace`: the number was claimed before, in a generation that had begun.
    #[inline]
    pub(super) fn load(&self) -> Tag {
        Tag(self.tag.load(Ordering::Acquire))
    }

    /// Whether it was still `old`, and is `new` now.
    pub(super) fn replace(&self, old: Tag, new: Tag) -> bool {
        self.tag.compare_exchange(old.0, new.0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes the tag out.
    pub(super) fn take(&self) -> Tag {
        Tag(self.tag.swap(Tag::UNASSIGNED.0, Ordering::Acquire))
    }
}

impl Default for VmidTag {
    fn default() -> Self {
        Self::new()
    }
}
