//! How a processor's accesses reach memory.

use std::sync::atomic::Ordering;

use mayfly_platform::address::Hpa;
use mayfly_stage2::MemoryType;

use crate::Arena;
use crate::cache::{Oracle, View};

/// A processor's way to the arena's memory: through the caches, or past them where there is a model of what is there.
#[derive(Clone, Copy)]
pub(crate) struct Reach<'a> {
    arena: &'a Arena,
    modelled: Option<(&'a Oracle, View)>,
}

impl<'a> Reach<'a> {
    /// For a processor whose caches are on, or off.
    pub(crate) fn new(arena: &'a Arena, has_caches_on: bool) -> Self {
        let modelled = arena.oracle().map(|oracle| (&**oracle, oracle.view(has_caches_on)));
        Self { arena, modelled }
    }

    /// The way to memory of that type: what is not cached is reached past the caches, whatever the guest does with its
    /// own, and also where stage 2 forces write-back for memory that is (Arm: DDI 0487, "Combining memory type
    /// attributes", where the one that is cached least wins; x86 and RISC-V have the like).
    pub(crate) fn of(self, memory: MemoryType) -> Self {
        let view = |(oracle, view)| match memory {
            MemoryType::WriteBack => (oracle, view),
            MemoryType::Uncached | MemoryType::Device => (oracle, View::Memory),
        };
        Self { modelled: self.modelled.map(view), ..self }
    }

    /// The word at `hpa`, a multiple of eight.
    pub(crate) fn load(self, hpa: Hpa) -> u64 {
        match self.modelled {
            Some((oracle, view)) => oracle.load(self.arena.memory(), hpa, view),
            None => self.arena.word(hpa).load(Ordering::Acquire),
        }
    }

    /// Writes the word at `hpa`, a multiple of eight.
    pub(crate) fn store(self, hpa: Hpa, value: u64) {
        match self.modelled {
            Some((oracle, view)) => oracle.update(self.arena.memory(), hpa, view, |_| value),
            None => self.arena.word(hpa).store(value, Ordering::Release),
        }
    }

    /// The byte at `hpa`.
    pub(crate) fn load_byte(self, hpa: Hpa) -> u8 {
        match self.modelled {
            Some((oracle, view)) => {
                let (word, shift) = containing(hpa);
                (oracle.load(self.arena.memory(), word, view) >> shift) as u8
            }
            None => self.arena.byte(hpa).load(Ordering::Acquire),
        }
    }

    /// Writes the byte at `hpa`.
    pub(crate) fn store_byte(self, hpa: Hpa, byte: u8) {
        match self.modelled {
            Some((oracle, view)) => {
                let (word, shift) = containing(hpa);
                oracle.update(self.arena.memory(), word, view, |old| {
                    old & !(0xff << shift) | u64::from(byte) << shift
                });
            }
            None => self.arena.byte(hpa).store(byte, Ordering::Release),
        }
    }

    /// How words are read, and what the other way gives of the one at `hpa`; `None` where there is only one way.
    pub(crate) fn other_way(self, hpa: Hpa) -> Option<(View, u64)> {
        let (oracle, view) = self.modelled?;
        let other = match view {
            View::Cached => View::Memory,
            View::Memory => View::Cached,
        };
        Some((view, oracle.load(self.arena.memory(), hpa, other)))
    }
}

/// The word that a byte is in, and its place there.
fn containing(hpa: Hpa) -> (Hpa, u64) {
    (Hpa::new(hpa.get() & !7), hpa.get() % 8 * 8)
}
