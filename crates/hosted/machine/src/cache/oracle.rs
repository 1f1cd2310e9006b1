//! Memory behind caches that do the worst they may.
//!
//! The arena's words are what the caches hold, of every frame. The host, and guests with their caches on, read and write
//! them. This module keeps what memory holds. Guests with their caches off read and write that. It also keeps what each
//! line was filled with. A line is *dirty* if it differs from that, or was written.
//!
//! The caches are as unhelpful as an architecture lets them be:
//!
//! - A line is always there. One that is invalidated is filled from memory again at once, as a processor may do that
//!   looks ahead; so what is written past the caches from then on is hidden by it until it is invalidated again.
//! - A dirty line is not written back before it is cleaned, so that memory is old until then. The exception is a
//!   line that a guest writes past: all of it is written back just after that, over what was written.
//! - A frame that is given out is dirty throughout, because its owner has just made it zero. Memory has what the new owner
//!   has never written ([`ANOTHERS`]): another guest's secret, say.
//!
//! Instruction caches are modelled beside this (`instructions`).
//!
//! Everything happens in the order of one lock, except the host's own accesses to the arena. If such an access races with
//! the invalidation of its line, the access wins: the line is dirty then.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use mayfly_platform::address::{Gfn, Hpa, Pfn};
use mayfly_platform::cache::InstructionCaches;
use mayfly_platform::frames::WORDS;

use super::instructions::Fetched;
use super::line::{LINE, word};
use crate::arena::Words;
use crate::lock::lock;

/// What is read of memory that its last owner left, and that was not cleaned since.
pub const ANOTHERS: u64 = 0x5ec2_e75e_c2e7_5ec2;

/// Words of a line.
const LINE_WORDS: usize = LINE as usize / 8;

/// How a processor reaches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Through the caches.
    Cached,
    /// Past them.
    Memory,
}

/// When in the maintenance of some frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// They are about to be cleaned.
    BeforeClean,
    /// They have been.
    AfterClean,
    /// They are about to be cleaned and invalidated.
    BeforeFlush,
    /// They have been.
    AfterFlush,
}

/// What is done in between, in a test: see [`Oracle::at_maintenance`].
pub type Interlude = Box<dyn Fn(Moment, Pfn, u64) + Send + Sync>;

/// What memory says behind the caches of an arena.
pub struct Oracle {
    /// Whether stage 2 makes all of a guest's accesses go through the caches (Arm's `FEAT_S2FWB`).
    forces_write_back: bool,
    /// By frame. One that is not here is as it was given out.
    frames: Mutex<BTreeMap<u64, Behind>>,
    interlude: OnceLock<Interlude>,
    instructions: Fetched,
}

/// Behind a frame.
struct Behind {
    memory: Box<[u64; WORDS]>,
    /// What each word of the cache was filled with.
    filled: Box<[u64; WORDS]>,
    /// A bit for each line that was written, whatever it says.
    written: u64,
}

impl Oracle {
    /// Behind an arena of which no frame is given out. With `forces_write_back`, no guest gets past its caches.
    pub fn new(forces_write_back: bool) -> Self {
        Self {
            forces_write_back,
            frames: Mutex::default(),
            interlude: OnceLock::new(),
            instructions: Fetched::new(InstructionCaches::Coherent),
        }
    }

    /// With instruction caches of that kind, which are empty.
    #[must_use]
    pub fn with_instructions(self, instructions: InstructionCaches) -> Self {
        Self { instructions: Fetched::new(instructions), ..self }
    }

    /// CPU `cpu` has a translation of `gfn` to `frame` that allows execution.
    pub(crate) fn look_ahead(&self, arena: &Words, cpu: u32, gfn: Gfn, frame: Pfn) {
        self.instructions.look_ahead((cpu, gfn, frame), |hpa| self.fill(arena, hpa));
    }

    /// The word at `hpa`, a multiple of eight, as CPU `cpu` fetches it, whose translation of `gfn` to there allows that.
    pub(crate) fn fetch(&self, arena: &Words, cpu: u32, gfn: Gfn, hpa: Hpa) -> u64 {
        self.instructions.fetch((cpu, gfn), hpa, |hpa| self.fill(arena, hpa))
    }

    /// What a line of an instruction cache is filled with.
    fn fill(&self, arena: &Words, hpa: Hpa) -> u64 {
        self.load(arena, hpa, self.view(false))
    }

    /// CPU `cpu` drops what its instruction cache has.
    pub(crate) fn forget_own_instructions(&self, cpu: u32) {
        self.instructions.forget_own(cpu);
    }

    /// An invalidation by addresses of the hypervisor's.
    pub(super) fn invalidate_instructions(&self, first: Pfn, count: u64) {
        self.instructions.invalidate(first, count);
    }

    /// All instruction caches are empty.
    pub(super) fn invalidate_all_instructions(&self) {
        self.instructions.invalidate_all();
    }

    /// How a guest reaches memory.
    pub(crate) fn view(&self, has_caches_on: bool) -> View {
        if has_caches_on || self.forces_write_back { View::Cached } else { View::Memory }
    }

    /// Has `interlude` done in the middle of maintenance from now on, so that a test chooses what races with it. The
    /// first one stays.
    pub fn at_maintenance(&self, interlude: Interlude) {
        let _ = self.interlude.set(interlude);
    }

    /// The word at `hpa`, a multiple of eight, in that view.
    pub(crate) fn load(&self, arena: &Words, hpa: Hpa, view: View) -> u64 {
        let mut frames = self.frames();
        let cached = arena.at(hpa);
        match view {
            View::Cached => cached.load(Ordering::Acquire),
            View::Memory => behind(&mut frames, hpa).memory[word(hpa)],
        }
    }

    /// Changes the word at `hpa`, a multiple of eight, in that view.
    pub(crate) fn update(
        &self,
        arena: &Words,
        hpa: Hpa,
        view: View,
        change: impl FnOnce(u64) -> u64,
    ) {
        let mut frames = self.frames();
        let behind = behind(&mut frames, hpa);
        match view {
            View::Cached => {
                let cached = arena.at(hpa);
                cached.store(change(cached.load(Ordering::Acquire)), Ordering::Release);
                behind.written |= only(word(hpa));
            }
            View::Memory => {
                let memory = &mut behind.memory[word(hpa)];
                *memory = change(*memory);
                behind.clean(arena, hpa.pfn(), only(word(hpa)));
            }
        }
    }

    /// `1 << order` frames have a new owner, who has made them zero.
    pub(crate) fn given_out(&self, first: u64, order: u32) {
        let mut frames = self.frames();
        let given: Vec<_> =
            frames.range(first..first + (1 << order)).map(|(frame, _)| *frame).collect();
        for frame in given {
            frames.remove(&frame);
        }
    }

    pub(super) fn clean(&self, arena: &Words, first: Pfn, count: u64) {
        self.interlude(Moment::BeforeClean, first, count);
        for frame in first.get()..first.get() + count {
            let mut frames = self.frames();
            frames.entry(frame).or_default().clean(arena, Pfn::new(frame), u64::MAX);
        }
        self.interlude(Moment::AfterClean, first, count);
    }

    pub(super) fn clean_invalidate(&self, arena: &Words, first: Pfn, count: u64) {
        self.interlude(Moment::BeforeFlush, first, count);
        for frame in first.get()..first.get() + count {
            let mut frames = self.frames();
            let behind = frames.entry(frame).or_default();
            behind.clean(arena, Pfn::new(frame), u64::MAX);
            behind.refill(arena, Pfn::new(frame));
        }
        self.interlude(Moment::AfterFlush, first, count);
    }

    fn interlude(&self, moment: Moment, first: Pfn, count: u64) {
        if let Some(interlude) = self.interlude.get() {
            interlude(moment, first, count);
        }
    }

    fn frames(&self) -> MutexGuard<'_, BTreeMap<u64, Behind>> {
        lock(&self.frames)
    }
}

impl Default for Behind {
    /// Of a frame as it was given out.
    fn default() -> Self {
        Self {
            memory: Box::new([ANOTHERS; WORDS]),
            filled: Box::new([0; WORDS]),
            written: u64::MAX,
        }
    }
}

impl Behind {
    /// Writes back what is dirty of `lines`, which has a bit for each.
    fn clean(&mut self, arena: &Words, frame: Pfn, lines: u64) {
        let cached: Vec<u64> = arena.of(frame).map(|word| word.load(Ordering::Acquire)).collect();
        for line in (0..u64::BITS as usize).filter(|line| lines & 1 << line != 0) {
            let words = line * LINE_WORDS..(line + 1) * LINE_WORDS;
            let is_written = self.written & 1 << line != 0;
            if is_written || cached[words.clone()] != self.filled[words.clone()] {
                self.memory[words.clone()].copy_from_slice(&cached[words.clone()]);
                self.filled[words.clone()].copy_from_slice(&cached[words]);
            }
        }
        self.written &= !lines;
    }

    /// Drops what is clean, and fills it from memory.
    fn refill(&mut self, arena: &Words, frame: Pfn) {
        for (at, cached) in arena.of(frame).enumerate() {
            // Unless the host has written it meanwhile.
            let _ = cached.compare_exchange(
                self.filled[at],
                self.memory[at],
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            self.filled[at] = self.memory[at];
        }
    }
}

impl std::fmt::Debug for Oracle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Oracle").field("frames", &self.frames().len()).finish_non_exhaustive()
    }
}

fn behind(frames: &mut BTreeMap<u64, Behind>, hpa: Hpa) -> &mut Behind {
    frames.entry(hpa.pfn().get()).or_default()
}

/// The line that this word of a frame is in, as a bit.
fn only(word: usize) -> u64 {
    1 << (word / LINE_WORDS)
}

const _: () = assert!(WORDS / LINE_WORDS == u64::BITS as usize && size_of::<AtomicU64>() == 8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arena;

    struct Board {
        arena: Arena,
        oracle: Oracle,
        frame: Pfn,
    }

    impl Board {
        fn new() -> Self {
            let (arena, oracle) = (Arena::new(16).unwrap(), Oracle::new(false));
            let frame = arena.allocate(0).unwrap();
            Self { arena, oracle, frame }
        }

        fn at(&self, word: u64) -> Hpa {
            Hpa::new(self.frame.hpa().unwrap().get() + 8 * word)
        }

        fn read(&self, word: u64) -> (u64, u64) {
            let read = |view| self.oracle.load(self.arena.memory(), self.at(word), view);
            (read(View::Cached), read(View::Memory))
        }

        fn write(&self, word: u64, view: View, value: u64) {
            self.oracle.update(self.arena.memory(), self.at(word), view, |_| value);
        }

        fn clean(&self) {
            self.oracle.clean(self.arena.memory(), self.frame, 1);
        }

        fn flush(&self) {
            self.oracle.clean_invalidate(self.arena.memory(), self.frame, 1);
        }
    }

    #[test]
    fn memory_under_a_new_frame_is_anothers_until_it_is_cleaned() {
        let board = Board::new();
        assert_eq!(board.read(0), (0, ANOTHERS));
        board.clean();
        assert_eq!(board.read(0), (0, 0));
        board.write(0, View::Memory, 7);
        board.oracle.given_out(board.frame.get(), 0);
        assert_eq!(board.read(0), (0, ANOTHERS));
    }

    #[test]
    fn what_is_written_past_a_line_is_hidden_by_it_until_it_is_invalidated_and_again_from_then_on()
    {
        let board = Board::new();
        board.clean();
        board.write(3, View::Memory, 7);
        board.clean();
        assert_eq!(board.read(3), (0, 7));
        board.flush();
        assert_eq!(board.read(3), (7, 7));
        board.write(3, View::Memory, 8);
        assert_eq!(board.read(3), (7, 8));
    }

    #[test]
    fn a_dirty_line_is_in_memory_when_it_is_cleaned() {
        let board = Board::new();
        board.clean();
        board.write(0, View::Cached, 5);
        assert_eq!(board.read(0), (5, 0));
        board.clean();
        assert_eq!(board.read(0), (5, 5));
    }

    #[test]
    fn a_dirty_line_goes_over_what_is_written_past_it_all_of_it_and_no_other() {
        let board = Board::new();
        board.clean();
        board.write(0, View::Cached, 5);
        board.write(16, View::Cached, 5);
        board.write(7, View::Memory, 6);
        board.write(8, View::Memory, 6);
        assert_eq!((board.read(0), board.read(7)), ((5, 5), (0, 0)));
        assert_eq!((board.read(8), board.read(16)), ((0, 6), (5, 0)));
        board.write(7, View::Memory, 6);
        assert_eq!(board.read(7), (0, 6));
    }

    #[test]
    fn a_write_of_what_the_line_says_makes_it_dirty_all_the_same() {
        let board = Board::new();
        board.clean();
        board.write(0, View::Memory, 6);
        assert_eq!(board.read(0), (0, 6));
        board.write(0, View::Cached, 0);
        board.flush();
        assert_eq!(board.read(0), (0, 0));
    }

    #[test]
    fn the_hosts_own_writes_are_dirty_lines() {
        let board = Board::new();
        board.clean();
        board.arena.word(board.at(1)).store(9, Ordering::Relaxed);
        assert_eq!(board.read(1), (9, 0));
        board.flush();
        assert_eq!(board.read(1), (9, 9));
    }

    #[test]
    fn processors_that_force_write_back_never_get_past_the_caches() {
        let (with, without) = (Oracle::new(true), Oracle::new(false));
        assert_eq!([with.view(true), with.view(false)], [View::Cached; 2]);
        assert_eq!([without.view(true), without.view(false)], [View::Cached, View::Memory]);
    }
}
