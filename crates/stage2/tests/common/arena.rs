//! Frames: so many, zeroed when given out, poisoned when given back, and refused when a test wants it.

use std::sync::Mutex;

use mayfly_platform::address::Pfn;
use mayfly_platform::frames::WORDS;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU64, Ordering};

/// What is in a frame that is free: in every format a leaf that no test maps.
const POISON: u64 = !0;

pub(crate) struct Arena {
    /// Frame `n` at `n * WORDS`. Frame 0 is nobody's.
    words: Box<[AtomicU64]>,
    state: Mutex<State>,
    /// What is added to the numbers of frames that are given out.
    lifted: AtomicU64,
}

struct State {
    used: Vec<bool>,
    live: usize,
    /// Where a free frame is likely.
    hint: usize,
    /// Allocations that still succeed.
    left: usize,
}

impl Arena {
    pub(crate) fn new(frames: usize) -> Self {
        let mut used = vec![false; frames + 1];
        used[0] = true;
        Self {
            words: (0..(frames + 1) * WORDS).map(|_| AtomicU64::new(POISON)).collect(),
            state: Mutex::new(State { used, live: 0, hint: 1, left: usize::MAX }),
            lifted: AtomicU64::new(0),
        }
    }

    /// Gives out frames under numbers that are so much greater than where they are. Whoever gets one must not touch it.
    pub(crate) fn lift(&self, by: u64) {
        self.lifted.store(by, Ordering::SeqCst);
    }

    /// Has every allocation fail after the next `count`.
    pub(crate) fn fail_after(&self, count: usize) {
        self.state.lock().unwrap().left = count;
    }

    /// Has allocations succeed again.
    pub(crate) fn heal(&self) {
        self.fail_after(usize::MAX);
    }

    /// Frames that are given out.
    pub(crate) fn live(&self) -> usize {
        self.state.lock().unwrap().live
    }

    pub(crate) fn linear_map(&self) -> *const AtomicU64 {
        self.words.as_ptr()
    }

    pub(crate) fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        let count = 1 << order;
        let first = {
            let mut state = self.state.lock().unwrap();
            if state.left == 0 {
                return Err(OutOfMemory);
            }
            let first = state.find(count).ok_or(OutOfMemory)?;
            if state.left != usize::MAX {
                state.left -= 1;
            }
            state.used[first..first + count].fill(true);
            state.live += count;
            state.hint = first + count;
            first
        };
        self.fill(first, count, 0);
        Ok(Pfn::new(first as u64 + self.lifted.load(Ordering::SeqCst)))
    }

    pub(crate) fn free(&self, first: Pfn, order: u32) {
        let first = first.get() - self.lifted.load(Ordering::SeqCst);
        let (first, count) = (first as usize, 1 << order);
        self.fill(first, count, POISON);
        let mut state = self.state.lock().unwrap();
        let used = &mut state.used[first..first + count];
        assert!(used.iter().all(|used| *used), "frame {first} is freed twice");
        used.fill(false);
        state.live -= count;
        state.hint = state.hint.min(first);
    }

    fn fill(&self, first: usize, count: usize, word: u64) {
        for cell in &self.words[first * WORDS..(first + count) * WORDS] {
            cell.store(word, Ordering::Relaxed);
        }
    }
}

impl State {
    /// The first of `count` free frames side by side, at a multiple of their number.
    fn find(&self, count: usize) -> Option<usize> {
        let aligned = |from: usize| (from.next_multiple_of(count)..).step_by(count);
        let fits = |first: &usize| self.used[*first..*first + count].iter().all(|used| !used);
        let end = (self.used.len() + 1).saturating_sub(count);
        let after = aligned(self.hint).take_while(|first| *first < end).find(fits);
        after.or_else(|| aligned(0).take_while(|first| *first < end).find(fits))
    }
}
