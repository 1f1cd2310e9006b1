//! The caches between the CPUs and memory, and their maintenance, which is counted.
//!
//! What is done to a line depends on what is to be found out:
//!
//! | [`Lines`] are | maintenance | guests with their caches off |
//! | --- | --- | --- |
//! | [`Real`](Lines::Real) | by the host's processor: what it costs is real | read and write as everybody does |
//! | [`Counted`](Lines::Counted) | is counted, for more memory than the host has | read and write as everybody does |
//! | [`Modelled`](Lines::Modelled) | of caches that do the worst they may | read and write past them: see [`Oracle`] |

mod instructions;
mod line;
mod oracle;
mod real;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_hwtrace::Event;
use mayfly_platform::address::{PAGE_SIZE, Pfn};
use mayfly_platform::cache::{Cache, CacheCapabilities};
use mayfly_platform::sync::CacheLine;

use crate::Arena;
pub use line::LINE;
pub use oracle::{ANOTHERS, Interlude, Moment, Oracle, View};
use real::Real;

/// What is maintained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// The lines of the host's caches.
    Real,
    /// None: they are counted.
    Counted,
    /// Those of the arena's [`Oracle`].
    Modelled,
}

/// A machine's caches.
#[derive(Debug)]
pub struct DataCache {
    arena: Arc<Arena>,
    capabilities: CacheCapabilities,
    backend: Backend,
    counts: CacheLine<Cells>,
}

#[derive(Debug)]
enum Backend {
    Real(Real),
    Counted,
    Oracle(Arc<Oracle>),
}

/// Lines that were maintained, by what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Written back: before a guest, or a device, that looks past the caches gets the frame.
    pub cleaned: u64,
    /// Written back and dropped: after a guest has written past the caches.
    pub flushed: u64,
    /// Dropped from instruction caches, by address.
    pub fetched: u64,
    /// How often instruction caches were emptied.
    pub emptied: u64,
}

#[derive(Debug, Default)]
struct Cells {
    cleaned: AtomicU64,
    flushed: AtomicU64,
    fetched: AtomicU64,
    emptied: AtomicU64,
}

impl DataCache {
    /// The caches in front of `arena`, of processors that can as much.
    ///
    /// # Panics
    ///
    /// If the lines of an oracle are wanted, and the arena has none.
    pub fn new(arena: Arc<Arena>, lines: Lines, capabilities: CacheCapabilities) -> Self {
        let backend = match lines {
            Lines::Real => Backend::Real(Real::detect()),
            Lines::Counted => Backend::Counted,
            Lines::Modelled => {
                Backend::Oracle(Arc::clone(arena.oracle().expect("the arena has an oracle")))
            }
        };
        Self { arena, capabilities, backend, counts: CacheLine::default() }
    }

    /// What was maintained up to now.
    pub fn lines(&self) -> LineCounts {
        let Cells { cleaned, flushed, fetched, emptied } = &*self.counts;
        LineCounts {
            cleaned: cleaned.load(Ordering::Relaxed),
            flushed: flushed.load(Ordering::Relaxed),
            fetched: fetched.load(Ordering::Relaxed),
            emptied: emptied.load(Ordering::Relaxed),
        }
    }
}

// SAFETY: does it to each line that it models; where none is modelled, every access goes through the caches of the process.
unsafe impl Cache for DataCache {
    fn capabilities(&self) -> CacheCapabilities {
        self.capabilities
    }

    fn clean(&self, first: Pfn, count: u64) {
        let clean = || match &self.backend {
            Backend::Real(real) => real.clean(self.arena.memory(), first, count),
            Backend::Counted => {}
            Backend::Oracle(oracle) => oracle.clean(self.arena.memory(), first, count),
        };
        let cleaned = Event::Clean { frame: first.get(), count };
        self.arena.recording(clean, |()| Some(cleaned));
        self.counts.cleaned.fetch_add(lines(count), Ordering::Relaxed);
    }

    fn clean_invalidate(&self, first: Pfn, count: u64) {
        let flush = || match &self.backend {
            Backend::Real(real) => real.clean_invalidate(self.arena.memory(), first, count),
            Backend::Counted => {}
            Backend::Oracle(oracle) => oracle.clean_invalidate(self.arena.memory(), first, count),
        };
        let flushed = Event::Flush { frame: first.get(), count };
        self.arena.recording(flush, |()| Some(flushed));
        self.counts.flushed.fetch_add(lines(count), Ordering::Relaxed);
    }

    fn invalidate_instructions(&self, first: Pfn, count: u64) {
        let fetch = || match &self.backend {
            Backend::Real(_) => Real::invalidate_instructions(self.arena.memory(), first, count),
            Backend::Counted => {}
            Backend::Oracle(oracle) => oracle.invalidate_instructions(first, count),
        };
        let fetched = Event::Fetch { frame: first.get(), count };
        self.arena.recording(fetch, |()| Some(fetched));
        self.counts.fetched.fetch_add(lines(count), Ordering::Relaxed);
    }

    fn invalidate_all_instructions(&self) {
        let frames = self.arena.frames();
        let empty = || match &self.backend {
            // Programs cannot, but for line by line; and what a guest of the machine executes is no program.
            Backend::Real(_) | Backend::Counted => {}
            Backend::Oracle(oracle) => oracle.invalidate_all_instructions(),
        };
        let emptied = Event::Fetch { frame: 0, count: frames };
        self.arena.recording(empty, |()| Some(emptied));
        self.counts.emptied.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lines of so many frames.
fn lines(frames: u64) -> u64 {
    frames * (PAGE_SIZE / LINE)
}
