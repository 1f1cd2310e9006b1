//! The numbers: which are free, which are claimed, and which were kept through a roll-over.

use alloc::vec::Vec;

use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU64, AtomicUsize, Ordering};
use mayfly_platform::tlb::Vmid;

use super::tag::Tag;

/// Every number but 0; number `n` is at `n - 1`.
pub(super) struct Numbers {
    numbers: Vec<Number>,
    /// Where a free number is likely: after the one claimed last, or where one was freed since.
    hint: AtomicUsize,
}

struct Number {
    /// A [`Held`].
    held: AtomicU64,
    /// For a number that is kept: in which generation its tenant claimed it. Written by roll-overs.
    since: AtomicU64,
}

/// The last generation that a number is held in, and whether it was kept from the one before or claimed in it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Held(u64);

impl Held {
    /// Free in every generation.
    const NEVER: Self = Self(0);

    fn claimed(generation: u64) -> Self {
        Self(generation << 1)
    }

    fn kept(generation: u64) -> Self {
        Self(generation << 1 | 1)
    }

    fn generation(self) -> u64 {
        self.0 >> 1
    }

    fn is_kept(self) -> bool {
        self.0 & 1 == 1
    }
}

impl Numbers {
    pub(super) fn try_new(bits: u32) -> Result<Self, OutOfMemory> {
        let count = (1 << bits) - 1;
        let mut numbers = Vec::new();
        numbers.try_reserve_exact(count)?;
        numbers.resize_with(count, || Number {
            held: AtomicU64::new(Held::NEVER.0),
            since: AtomicU64::new(0),
        });
        Ok(Self { numbers, hint: AtomicUsize::new(0) })
    }

    pub(super) fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Claims a number that is free in `generation`. `None`: there was none at the moment each was looked at, or the
    /// generation is over.
    pub(super) fn claim(&self, generation: u64) -> Option<Vmid> {
        let hint = self.hint.load(Ordering::Relaxed) % self.count();
        let index = (hint..self.count()).chain(0..hint).find(|index| {
            let number = &self.numbers[*index];
            let held = number.held();
            held.generation() < generation && number.replace(held, Held::claimed(generation))
        })?;
        self.hint.store(index + 1, Ordering::Relaxed);
        Some(Vmid(index as u16 + 1))
    }

    /// Keeps `number`, active when `generation` ends, through the next one. Returns whether that is news: it is not,
    /// where several vCPUs are active on one root, nor where the number was retired when its vCPU had just left.
    ///
    /// Called by one roll-over at a time.
    pub(super) fn keep(&self, number: Vmid, generation: u64) -> bool {
        let number = self.number(number);
        let held = number.held();
        if held.generation() != generation {
            return false;
        }
        if !held.is_kept() {
            // Release, pairing with the acquire in `is_held_by`.
            number.since.store(generation, Ordering::Release);
        }
        number.replace(held, Held::kept(generation + 1))
    }

    /// Whether the number of `tag` was kept into `generation` or a later one for the root that `tag` is of.
    pub(super) fn is_kept(&self, tag: Tag, generation: u64) -> bool {
        tag.number().is_some_and(|number| {
            let number = self.number(number);
            let held = number.held();
            held.is_kept() && held.generation() >= generation && number.is_held_by(held, tag)
        })
    }

    /// Frees the number of `tag`, if the root that it was of has it still. Returns it then.
    pub(super) fn release(&self, tag: Tag) -> Option<Vmid> {
        let vmid = tag.number()?;
        let number = self.number(vmid);
        loop {
            let held = number.held();
            if !number.is_held_by(held, tag) {
                return None;
            }
            if number.replace(held, Held::NEVER) {
                self.hint.store(usize::from(vmid.0) - 1, Ordering::Relaxed);
                return Some(vmid);
            }
        }
    }

    fn number(&self, number: Vmid) -> &Number {
        &self.numbers[usize::from(number.0) - 1]
    }
}

impl Number {
    /// Acquire, pairing with the release in `replace`.
    fn held(&self) -> Held {
        Held(self.held.load(Ordering::Acquire))
    }

    /// Release: what made the number free, or was written down of it, happened before. Acquire, for the next in line.
    fn replace(&self, held: Held, new: Held) -> bool {
        self.held.compare_exchange(held.0, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether `held`, which this number was, is the tenancy of the root that `tag` is of.
    fn is_held_by(&self, held: Held, tag: Tag) -> bool {
        if held.is_kept() {
            // Acquire, pairing with the release in `keep`: a later tenant's claim, and the invalidation before it,
            // happened before.
            self.since.load(Ordering::Acquire) <= tag.generation()
        } else {
            held.generation() == tag.generation()
        }
    }
}
