//! A tag: a number, and the generation in which it is a root's ([`vmid`](super)).

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

    pub(super) const UNASSIGNED: Self = Self(0);

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
