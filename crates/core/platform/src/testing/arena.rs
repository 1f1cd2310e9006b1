//! Frames of a process.

use alloc::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use alloc::vec;
use alloc::vec::Vec;
use core::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

use crate::address::{PAGE_SIZE, Pfn};
use crate::frames::{Frames, WORDS};
use crate::memory::OutOfMemory;
use crate::sync::{AtomicU64, Ordering};

/// So many frames, numbered from 1: zeroed when they are given out, poisoned when they are given back, and refused when
/// a test wants it.
#[derive(Debug)]
pub struct Arena {
    /// Frame `n` at `n * WORDS`; frame 0 belongs to no user. Pages of the process, which has what is touched.
    words: NonNull<AtomicU64>,
    count: usize,
    state: Mutex<State>,
}

// SAFETY: atomics, and a lock.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

#[derive(Debug)]
struct State {
    used: Vec<bool>,
    live: usize,
    /// Where a free frame is likely.
    hint: usize,
    /// Allocations that still succeed.
    left: usize,
}

impl Arena {
    /// What each word of a frame is that was given back: in every format a leaf that no test maps.
    pub const POISON: u64 = !0;

    /// With so many frames.
    ///
    /// # Panics
    ///
    /// If there is not so much memory in a process.
    pub fn new(frames: usize) -> Self {
        let count = frames.checked_add(1).expect("so much memory");
        let layout = Self::layout(count);
        // SAFETY: its size is not zero.
        let words = unsafe { alloc_zeroed(layout) }.cast();
        let words = NonNull::new(words).unwrap_or_else(|| handle_alloc_error(layout));
        let mut used = vec![false; count];
        used[0] = true;
        let state = Mutex::new(State { used, live: 0, hint: 1, left: usize::MAX });
        Self { words, count, state }
    }

    fn layout(count: usize) -> Layout {
        let bytes = count.checked_mul(WORDS * size_of::<u64>()).expect("so much memory");
        Layout::from_size_align(bytes, PAGE_SIZE as usize).expect("so much memory")
    }

    /// So many words of all frames, in order, from one on. No more than are looked at: Miri goes through every word of a
    /// slice when the slice is made, which takes a fifth of a second for those of 512 frames.
    fn words(&self, first: usize, count: usize) -> &[AtomicU64] {
        let all = self.count * WORDS;
        assert!(first <= all && count <= all - first, "{count} words from {first} on, of {all}");
        // SAFETY: so many words were allocated, zeroed, and are there until the arena goes; they are used as atomics.
        unsafe { core::slice::from_raw_parts(self.words.as_ptr().add(first), count) }
    }

    /// What is in word `index` of the frames from `pfn` on. An acquire: what was stored to a table before an entry of
    /// another one named it is found there.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn load(&self, pfn: Pfn, index: usize) -> u64 {
        self.at(pfn, index).load(Ordering::Acquire)
    }

    /// Word `index` of the frames from `pfn` on.
    ///
    /// # Panics
    ///
    /// If there is none.
    ///
    /// # Safety
    ///
    /// The frame is guests' memory, as long as the word is stored to: no table, which the core and CPUs follow wherever
    /// its entries lead, and none that is free, which the next table is made of.
    ///
    /// ```compile_fail,E0133
    /// #![forbid(unsafe_code)]
    /// use mayfly_platform::address::Pfn;
    /// use mayfly_platform::sync::Ordering;
    /// use mayfly_platform::testing::Process;
    ///
    /// fn map_anything(process: &Process, table: Pfn) {
    ///     process.arena().word(table, 0).store(!0, Ordering::Relaxed);
    /// }
    /// ```
    ///
    /// (To read is safe:)
    ///
    /// ```
    /// #![forbid(unsafe_code)]
    /// use mayfly_platform::address::Pfn;
    /// use mayfly_platform::testing::Process;
    ///
    /// fn look(process: &Process, table: Pfn) -> u64 {
    ///     process.arena().load(table, 0)
    /// }
    /// ```
    pub unsafe fn word(&self, pfn: Pfn, index: usize) -> &AtomicU64 {
        self.at(pfn, index)
    }

    fn at(&self, pfn: Pfn, index: usize) -> &AtomicU64 {
        &self.words(pfn.get() as usize * WORDS + index, 1)[0]
    }

    /// Has every allocation refused after the next `count`.
    pub fn refuse_after(&self, count: usize) {
        self.state().left = count;
    }

    /// Has no allocation refused any more.
    pub fn refuse_none(&self) {
        self.refuse_after(usize::MAX);
    }

    /// Frames that are given out.
    pub fn live(&self) -> usize {
        self.state().live
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn fill(&self, first: usize, count: usize, with: u64) {
        for word in self.words(first * WORDS, count * WORDS) {
            word.store(with, Ordering::Relaxed);
        }
    }
}

// SAFETY: a frame is one's at a time, since they are booked under a lock, of words that stay.
unsafe impl Frames for Arena {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        let count = 1_usize.checked_shl(order).ok_or(OutOfMemory)?;
        let first = {
            let mut state = self.state();
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
        Ok(Pfn::new(first as u64))
    }

    unsafe fn free(&self, first: Pfn, order: u32) {
        let (first, count) = (first.get() as usize, 1 << order);
        self.fill(first, count, Self::POISON);
        let mut state = self.state();
        let used = &mut state.used[first..first + count];
        assert!(used.iter().all(|used| *used), "frame {first} is freed twice");
        used.fill(false);
        state.live -= count;
        state.hint = state.hint.min(first);
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.words.as_ptr()
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

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and no thread has it any more.
        unsafe { dealloc(self.words.as_ptr().cast(), Self::layout(self.count)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_is_refused_whatever_the_number() {
        let arena = Arena::new(4);
        for order in [3, 62, 63, 64, u32::MAX] {
            assert!(arena.allocate(order).is_err(), "{order}");
        }
        assert_eq!(arena.live(), 0);
        assert!(std::panic::catch_unwind(|| Arena::new(usize::MAX)).is_err());
    }
}
