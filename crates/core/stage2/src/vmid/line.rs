//! A CPU's line: the number that its translation base register names a root under, and the generation it is in.

use alloc::vec::Vec;

use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU64, CacheLine, Ordering, fence};
use mayfly_platform::tlb::Vmid;

use super::tag::Tag;

/// One for each CPU.
pub(super) struct Lines(Vec<CacheLine<Line>>);

impl Lines {
    pub(super) fn try_new(cpus: u32, generation: u64) -> Result<Self, OutOfMemory> {
        let mut lines = Vec::new();
        lines.try_reserve_exact(cpus as usize)?;
        lines.resize_with(cpus as usize, || CacheLine(Line::new(generation)));
        Ok(Self(lines))
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// # Panics
    ///
    /// If there is no such CPU.
    #[inline]
    pub(super) fn of(&self, cpu: u32) -> &Line {
        let line = self.0.get(cpu as usize);
        line.expect("the number of a CPU is below what the platform says there are")
    }

    /// With the number of its CPU.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &Line)> {
        (0..).zip(self.0.iter().map(|line| &**line))
    }
}

/// A [`Tag`], whose number may be 0.
pub(super) struct Line(AtomicU64);

impl Line {
    fn new(generation: u64) -> Self {
        Self(AtomicU64::new(generation * Tag::GENERATION))
    }

    /// Relaxed: the line is the CPU's own, and what a roll-over did is acquired with the generation.
    #[inline]
    pub(super) fn load(&self) -> Tag {
        Tag(self.0.load(Ordering::Relaxed))
    }

    /// Activates `tag`, unless the line is not as it was `seen`.
    pub(super) fn activate(&self, seen: Tag, tag: Tag) -> bool {
        // Release, pairing with the acquire of a roll-over: what the CPU did under another number, and the claim of
        // this one, happened before.
        let is_active =
            self.0.compare_exchange(seen.0, tag.0, Ordering::Release, Ordering::Relaxed).is_ok();
        if is_active {
            // [enter]
            fence(Ordering::SeqCst);
        }
        is_active
    }

    /// What it is, if it shows `number`.
    pub(super) fn shows(&self, number: Vmid) -> Option<Tag> {
        // Acquire, pairing with the release of the CPU that made it show that: the number was the root's by then.
        let shown = Tag(self.0.load(Ordering::Acquire));
        (shown.number() == Some(number)).then_some(shown)
    }

    /// Has it show no number, unless it is not as it was `seen`. The CPU walks from the root no more.
    pub(super) fn clear(&self, seen: Tag) -> bool {
        let cleared = seen.0 & !Tag::NUMBER;
        // Release, as above.
        self.0.compare_exchange(seen.0, cleared, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// A roll-over's visit: moves the line to the next generation, and returns what it shows.
    pub(super) fn next_generation(&self) -> Option<Vmid> {
        // Acquire, pairing with the releases above. Not a release: the CPU acquires what a roll-over did with the
        // generation, and not with its line.
        Tag(self.0.fetch_add(Tag::GENERATION, Ordering::Acquire)).number()
    }
}
