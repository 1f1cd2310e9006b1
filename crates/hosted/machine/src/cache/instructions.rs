//! Instruction caches that are as unhelpful as an architecture lets them be, of processors where they do not see what is
//! written.
//!
//! - Each CPU has one, in which all lines of a page are as soon as the CPU has a translation of it that allows
//!   execution, whatever it is used for, and stay until they are dropped: also when the page is unmapped, and its frame
//!   has another owner. They say what memory said then, and not what a data cache did that was not cleaned.
//! - Where they are found by virtual address, a line is found by the address and the frame that it was fetched from, and
//!   an invalidation by an address of the hypervisor's meets none of a guest's.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mayfly_platform::address::{Gfn, Hpa, Pfn};
use mayfly_platform::cache::InstructionCaches;
use mayfly_platform::frames::WORDS;

use super::line::word;
use crate::lock::lock;

/// What the instruction caches of all CPUs have.
pub(super) struct Fetched {
    kind: InstructionCaches,
    lines: Mutex<BTreeMap<Place, Box<[u64; WORDS]>>>,
}

/// Where lines are found: CPU, guest frame, frame.
type Place = (u32, Gfn, Pfn);

impl Fetched {
    /// Caches of that kind, which are empty.
    pub(super) fn new(kind: InstructionCaches) -> Self {
        Self { kind, lines: Mutex::default() }
    }

    /// A CPU has a translation of a guest frame to a frame that allows execution; `memory` says what is there.
    pub(super) fn look_ahead(&self, place: Place, memory: impl Fn(Hpa) -> u64) {
        if self.kind == InstructionCaches::Coherent {
            return;
        }
        lock(&self.lines).entry(place).or_insert_with(|| {
            let first = place.2.hpa().expect("it is in the arena").get();
            Box::new(std::array::from_fn(|at| memory(Hpa::new(first + 8 * at as u64))))
        });
    }

    /// The word at `hpa`, a multiple of eight, as a CPU fetches it, whose translation of a guest frame to there allows
    /// that.
    pub(super) fn fetch(
        &self,
        (cpu, gfn): (u32, Gfn),
        hpa: Hpa,
        memory: impl Fn(Hpa) -> u64,
    ) -> u64 {
        let place = (cpu, gfn, hpa.pfn());
        self.look_ahead(place, &memory);
        let lines = lock(&self.lines);
        match lines.get(&place) {
            Some(words) => words[word(hpa)],
            None => memory(hpa),
        }
    }

    /// A CPU drops what its own cache has.
    pub(super) fn forget_own(&self, cpu: u32) {
        lock(&self.lines).retain(|place, _| place.0 != cpu);
    }

    /// An invalidation by addresses of the hypervisor's.
    pub(super) fn invalidate(&self, first: Pfn, count: u64) {
        if self.kind == InstructionCaches::Physical {
            let frames = first.get()..first.get() + count;
            lock(&self.lines).retain(|place, _| !frames.contains(&place.2.get()));
        }
    }

    /// All caches are empty.
    pub(super) fn invalidate_all(&self) {
        lock(&self.lines).clear();
    }
}
