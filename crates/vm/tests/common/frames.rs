//! Frames for page tables, of one arena for all tests of a binary; so whoever knows a frame can look into it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

use mayfly_platform::address::{Gfn, PAGE_SHIFT, PAGE_SIZE, Pfn};
use mayfly_platform::frames::WORDS;
use mayfly_stage2::{Entry, Format, Leaf, Level, State};

/// 256 MiB, of which the host provides what is touched.
const FRAMES: usize = 1 << 16;

/// What is in a frame that is free: in every format a leaf that no test maps.
const POISON: u64 = !0;

static WORDS_OF_ALL: LazyLock<&'static [AtomicU64]> = LazyLock::new(|| {
    // One more, so that frames can begin where pages do.
    let words: &'static mut [u64] = vec![0; (FRAMES + 1) * WORDS].leak();
    let first = words.as_ptr().cast::<u8>().align_offset(PAGE_SIZE as usize) / size_of::<u64>();
    let words = std::ptr::from_mut(&mut words[first..][..FRAMES * WORDS]) as *const [AtomicU64];
    // SAFETY: an `AtomicU64` has the size and alignment of a `u64`, and nobody else has the memory.
    unsafe { &*words }
});

/// Which frames are given out, in a slice for each; frame 0 is nobody's. And where a free one is likely.
static USED: LazyLock<Mutex<(Vec<bool>, usize)>> =
    LazyLock::new(|| Mutex::new((vec![false; FRAMES], 1)));

fn used() -> MutexGuard<'static, (Vec<bool>, usize)> {
    USED.lock().unwrap()
}

fn fill(first: usize, count: usize, with: u64) {
    for word in &WORDS_OF_ALL[first * WORDS..(first + count) * WORDS] {
        word.store(with, Ordering::Relaxed);
    }
}

/// All words of all frames.
pub(crate) fn all() -> &'static [AtomicU64] {
    &WORDS_OF_ALL
}

pub(crate) fn linear_map() -> *const AtomicU64 {
    WORDS_OF_ALL.as_ptr()
}

/// `1 << order` zeroed frames, the first at a multiple of their number.
pub(crate) fn allocate(order: u32) -> Pfn {
    let count = 1 << order;
    let first = {
        let (used, hint) = &mut *used();
        let is_free = |&first: &usize| used[first..first + count].iter().all(|used| !used);
        let from = (*hint).next_multiple_of(count);
        let first = (from..FRAMES).step_by(count).find(is_free).expect("the arena is large enough");
        used[first..first + count].fill(true);
        *hint = first + count;
        first
    };
    fill(first, count, 0);
    Pfn::new(first as u64)
}

pub(crate) fn free(first: Pfn, order: u32) {
    let (first, count) = (first.get() as usize, 1 << order);
    fill(first, count, POISON);
    let (used, hint) = &mut *used();
    assert!(used[first..first + count].iter().all(|used| *used), "frame {first} is freed twice");
    used[first..first + count].fill(false);
    *hint = first.max(1).min(*hint);
}

/// What the tables from `top` on map `gfn` to, as hardware walks them: the page, and how large the leaf is. An absent
/// entry, whatever the rest of it says, ends the walk.
pub(crate) fn walk<F: Format>(top: Pfn, gfn: Gfn) -> Option<(Level, Leaf)> {
    let (level, word) = last::<F>(top, gfn);
    let entry = Entry::<F>::from_bits(word.load(Ordering::Acquire));
    if gfn.get() >> (F::IPA_BITS - PAGE_SHIFT) != 0 || entry.state(level) != State::Leaf {
        return None;
    }
    let leaf = entry.to_leaf(level);
    let pfn = Pfn::new(leaf.pfn.get() + gfn.get() % level.pages());
    Some((level, Leaf { pfn, ..leaf }))
}

/// The last entry on the walk to `gfn`.
pub(crate) fn entry<F: Format>(top: Pfn, gfn: Gfn) -> &'static AtomicU64 {
    last::<F>(top, gfn).1
}

fn last<F: Format>(top: Pfn, gfn: Gfn) -> (Level, &'static AtomicU64) {
    let (mut table, mut level) = (top, F::TOP);
    loop {
        let index = (gfn.get() / level.pages()) as usize;
        let index = index % if level == F::TOP { WORDS << F::ROOT_ORDER } else { WORDS };
        let word = &WORDS_OF_ALL[table.get() as usize * WORDS + index];
        let entry = Entry::<F>::from_bits(word.load(Ordering::Acquire));
        match (entry.state(level), level.below()) {
            (State::Table(below), Some(next)) => (table, level) = (below, next),
            _ => return (level, word),
        }
    }
}
