//! The machine's physical memory.
//!
//! One file in memory, mapped once, holds every frame: those of page tables and those of guests. A frame takes room
//! from the host when it is first touched, so an arena may be far larger than the host's memory.
//!
//! *Who may touch a frame.* The owner that the frame was given to, by atomic accesses. The arena touches a frame only
//! while it is free, to make it zero before it gives it out again.
//!
//! *Threads.* Single frames come from and go to small stocks, each of which few threads share. A stock is refilled from
//! the free blocks (a buddy system under a mutex), 64 frames at a time. Larger orders take the mutex. Before an allocation
//! fails, it looks through all stocks at once, so that it finds the last frame wherever it is.

mod bits;
mod buddy;
mod failing;
mod words;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use mayfly_hwtrace::Event;
use mayfly_platform::address::{Hpa, PAGE_SIZE, Pfn};
use mayfly_platform::frames::{Frames, WORDS};
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::CacheLine;

use crate::cache::Oracle;
use crate::lock::lock;
use crate::recorder::Recorder;
use crate::shard::{SHARDS, shard};
use bits::{BITS, Bits};
pub use buddy::MAX_ORDER;
use buddy::{Buddy, blocks};
use failing::Failing;
pub(crate) use words::Words;

/// The first frame. Numbers below, zero among them, belong to no frame, and blocks of every order fit from here on.
const FIRST: u64 = 1 << MAX_ORDER;

/// What is in a frame that came back, where that is asked for.
const POISON: u64 = 0xdead_dead_dead_dead;

/// How many single frames a stock takes from the free blocks at once. Those whose bits share a word go together.
const BATCH: u64 = BITS;

/// Blocks from this order on are made zero by giving their room back to the host.
const PUNCHED: u32 = 9;

/// A number of frames, and who has them.
#[derive(Debug)]
pub struct Arena {
    frames: u64,
    /// The frames, from number 0 on.
    memory: Words,
    /// Whether a frame is given out.
    given: Bits,
    /// Whether a free frame may hold something other than zeroes.
    used: Bits,
    /// How many references there are to a frame that is given out, beyond the first.
    references: Words,
    blocks: Mutex<Buddy>,
    stocks: [CacheLine<Stock>; SHARDS],
    failing: Failing,
    /// Whether single frames are filled with [`POISON`] as they come back.
    poisons: AtomicBool,
    /// What memory says, where the words above are what caches say.
    oracle: Option<Arc<Oracle>>,
    recorder: OnceLock<Arc<Recorder>>,
}

/// Free single frames, and how many frames were given out by the threads that use this stock (less those that they took
/// back; modulo 2^64).
#[derive(Debug, Default)]
struct Stock {
    frames: Mutex<Vec<u64>>,
    given: AtomicU64,
}

impl Arena {
    /// An arena of `frames` frames, all free.
    ///
    /// # Errors
    ///
    /// What `memfd_create(2)`, `ftruncate(2)` and `mmap(2)` say; ENOMEM where the address space is too small.
    pub fn new(frames: usize) -> io::Result<Self> {
        let end = FIRST.checked_add(frames as u64).ok_or(io::ErrorKind::OutOfMemory)?;
        let words = (end as usize).checked_mul(WORDS).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            frames: frames as u64,
            memory: Words::in_a_file(words)?,
            given: Bits::new(end)?,
            used: Bits::new(end)?,
            references: Words::anonymous(end as usize)?,
            blocks: Mutex::new(Buddy::new(FIRST..end)),
            stocks: Default::default(),
            failing: Failing::default(),
            poisons: AtomicBool::new(false),
            oracle: None,
            recorder: OnceLock::new(),
        })
    }

    /// The same, with `oracle` behind its caches.
    #[must_use]
    pub fn with_oracle(mut self, oracle: Arc<Oracle>) -> Self {
        self.oracle = Some(oracle);
        self
    }

    /// What is behind its caches, where that is a model.
    pub fn oracle(&self) -> Option<&Arc<Oracle>> {
        self.oracle.as_ref()
    }

    /// The words of all frames, from number 0 on.
    pub(crate) fn memory(&self) -> &Words {
        &self.memory
    }

    /// Has what happens to frames recorded.
    pub(crate) fn record(&self, recorder: Arc<Recorder>) {
        let _ = self.recorder.set(recorder);
    }

    /// Does something that hardware sees, and has recorded what `event` says that it was.
    #[inline]
    pub(crate) fn recording<T>(
        &self,
        act: impl FnOnce() -> T,
        event: impl FnOnce(&T) -> Option<Event>,
    ) -> T {
        let wanted = self.recorder.get().and_then(|recorder| recorder.wanted());
        let Some(recorder) = wanted else { return act() };
        let begun = recorder.begin();
        let outcome = act();
        if let Some(event) = event(&outcome) {
            recorder.end(begun, event);
        }
        outcome
    }

    /// Fills single frames with a pattern as they come back, from now on: a thread that still reads one notices.
    pub fn poison_freed(&self) {
        self.poisons.store(true, Ordering::Relaxed);
    }

    /// How many frames there are.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Has the host provide for frames that are not given out, the lowest first, `most` of them: now, and not when they are
    /// first written. A hypervisor's frames are there, too. They stay zero.
    pub fn provide(&self, most: u64) {
        let is_free = |frame: &u64| !self.given.any(*frame, 0);
        for frame in (FIRST..FIRST + self.frames).filter(is_free).take(most as usize) {
            if let Some(word) = self.words(Pfn::new(frame)).next() {
                // A write, which a load would not be, nor what changes no bit and so is compiled to one; of what another
                // thread may be given meanwhile.
                let value = word.load(Ordering::Relaxed);
                let _ = word.compare_exchange(value, value, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Whether the frames from `first` on, `count` of them, are its own.
    pub(crate) fn has(&self, first: Pfn, count: u64) -> bool {
        let end = FIRST + self.frames;
        first.get() >= FIRST && first.get().checked_add(count).is_some_and(|past| past <= end)
    }

    /// How many frames are given out. Exact while no thread allocates or frees.
    pub fn in_use(&self) -> u64 {
        self.stocks
            .iter()
            .fold(0, |sum, stock| sum.wrapping_add(stock.given.load(Ordering::Relaxed)))
    }

    /// How many bytes of the host's memory the frames take.
    ///
    /// # Errors
    ///
    /// What `fstat(2)` says.
    pub fn resident(&self) -> io::Result<u64> {
        self.memory.resident()
    }

    /// Makes allocations fail that would not: of those from now on, counted from 0, the ones with these numbers. An
    /// empty range ends it.
    pub fn fail_allocations(&self, numbers: Range<u64>) {
        self.failing.arm(&numbers);
    }

    /// Gives out `1 << order` frames of zeroes, the first at a multiple of their number, with one reference each.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`], where no such block is free, or `order` is above [`MAX_ORDER`].
    pub fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        if order > MAX_ORDER || self.failing.next() {
            return Err(OutOfMemory);
        }
        let stock = &self.stocks[shard()];
        let first = if order == 0 { self.take_frame(stock) } else { self.take_block(order) };
        let first = first.ok_or(OutOfMemory)?;
        stock.given.fetch_add(1 << order, Ordering::Relaxed);
        self.make_zero(first, order);
        if let Some(oracle) = &self.oracle {
            oracle.given_out(first, order);
        }
        let given = Event::Give { frame: first, order };
        let was_free = self.recording(|| self.given.set(first, order), |_| Some(given));
        debug_assert!(was_free, "frame {first:#x} is free and given out");
        Ok(Pfn::new(first))
    }

    /// Takes back a block with no reference but the first, or an aligned part of one.
    ///
    /// # Panics
    ///
    /// If any of it is not given out.
    pub fn free(&self, first: Pfn, order: u32) {
        let first = first.get();
        // Before anybody can have it again.
        self.recording(|| (), |()| Some(Event::Free { frame: first, order }));
        assert!(
            self.given.clear(first, order),
            "frame {first:#x} (order {order}) is not given out"
        );
        let stock = &self.stocks[shard()];
        stock.given.fetch_sub(1 << order, Ordering::Relaxed);
        if order >= PUNCHED {
            self.punch(first, order);
        } else if order > 0 || !self.used.any(first, 0) {
            self.used.set(first, order);
        }
        if order > 0 {
            lock(&self.blocks).free(first, order);
            return;
        }
        if self.poisons.load(Ordering::Relaxed) {
            self.words(Pfn::new(first)).for_each(|word| word.store(POISON, Ordering::Relaxed));
        }
        let mut frames = lock(&stock.frames);
        frames.push(first);
        if frames.len() as u64 >= 2 * BATCH {
            let mut blocks = lock(&self.blocks);
            for frame in frames.drain(..BATCH as usize) {
                blocks.free(frame, 0);
            }
        }
    }

    /// Adds a reference to a frame; the caller has one, or keeps other threads from giving up the last.
    pub fn get(&self, frame: Pfn) {
        self.references.word(frame.get() as usize).fetch_add(1, Ordering::Relaxed);
    }

    /// Gives up a reference to a frame. Returns whether it was the last one, and the frame is free.
    pub fn put(&self, frame: Pfn) -> bool {
        let beyond = self.references.word(frame.get() as usize);
        // Release: what this holder did with the frame happens before it is made zero; pairs with the acquire of the
        // one who finds no other holder.
        let gave_up =
            beyond.fetch_update(Ordering::Release, Ordering::Acquire, |count| count.checked_sub(1));
        if gave_up.is_err() {
            self.free(frame, 0);
        }
        gave_up.is_err()
    }

    /// Gives up a reference to each of `count` frames, whatever blocks they were given out as.
    pub fn put_run(&self, first: Pfn, count: u64) {
        for (first, order) in blocks(first.get()..first.get() + count) {
            let frames = first..first + (1 << order);
            // Acquire: as in `put`.
            let is_last = |frame| self.references.word(frame as usize).load(Ordering::Acquire) == 0;
            if frames.clone().all(is_last) {
                self.free(Pfn::new(first), order);
            } else {
                for frame in frames {
                    self.put(Pfn::new(frame));
                }
            }
        }
    }

    /// How many references there are to a frame that is given out.
    pub fn references(&self, frame: Pfn) -> u64 {
        self.references.word(frame.get() as usize).load(Ordering::Relaxed) + 1
    }

    /// The eight bytes at `hpa`.
    ///
    /// # Panics
    ///
    /// If `hpa` is not a multiple of eight within the arena.
    #[inline]
    pub fn word(&self, hpa: Hpa) -> &AtomicU64 {
        self.memory.at(hpa)
    }

    /// The byte at `hpa`.
    ///
    /// # Panics
    ///
    /// If `hpa` is not within the arena.
    #[inline]
    pub fn byte(&self, hpa: Hpa) -> &AtomicU8 {
        self.memory.byte(hpa.get() as usize)
    }

    /// The words of a frame.
    ///
    /// # Panics
    ///
    /// If `frame` is not within the arena.
    pub fn words(&self, frame: Pfn) -> impl Iterator<Item = &AtomicU64> {
        self.memory.of(frame)
    }

    fn take_frame(&self, stock: &Stock) -> Option<u64> {
        let mut frames = lock(&stock.frames);
        if let Some(frame) = frames.pop() {
            return Some(frame);
        }
        let mut blocks = lock(&self.blocks);
        if let Some(first) = blocks.allocate(BATCH.ilog2()) {
            // The lowest is given out first.
            frames.extend((first..first + BATCH).rev());
        } else {
            frames.extend((0..BATCH).map_while(|_| blocks.allocate(0)));
            frames.reverse();
        }
        drop(blocks);
        if let Some(frame) = frames.pop() {
            return Some(frame);
        }
        drop(frames);
        let (mut stocks, mut blocks) = self.all_free();
        stocks.iter_mut().find_map(|frames| frames.pop()).or_else(|| blocks.allocate(0))
    }

    fn take_block(&self, order: u32) -> Option<u64> {
        if let Some(first) = lock(&self.blocks).allocate(order) {
            return Some(first);
        }
        // Frames in stock may be what a block lacks.
        let (mut stocks, mut blocks) = self.all_free();
        for frame in stocks.iter_mut().flat_map(|frames| frames.drain(..)) {
            blocks.free(frame, 0);
        }
        blocks.allocate(order)
    }

    /// All frames that are free, at one moment. If a thread looked at one stock after the other, frames could move from a
    /// stock that it has not looked at yet to one that it has. The caller holds none of the locks.
    fn all_free(&self) -> ([MutexGuard<'_, Vec<u64>>; SHARDS], MutexGuard<'_, Buddy>) {
        (self.stocks.each_ref().map(|stock| lock(&stock.frames)), lock(&self.blocks))
    }

    fn make_zero(&self, first: u64, order: u32) {
        if !self.used.any(first, order) {
            return;
        }
        if order >= PUNCHED {
            return self.punch(first, order);
        }
        for frame in first..first + (1 << order) {
            if self.used.any(frame, 0) {
                self.words(Pfn::new(frame)).for_each(|word| word.store(0, Ordering::Relaxed));
            }
        }
    }

    fn punch(&self, first: u64, order: u32) {
        self.memory.clear(first as usize * WORDS, WORDS << order);
        self.used.clear(first, order);
    }
}

// SAFETY: a frame is given out to one at a time, by the bitmap of what is; its words are those of one mapping that lasts
// as long as the arena, and are reached through atomics alone.
unsafe impl Frames for Arena {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        Self::allocate(self, order)
    }

    unsafe fn free(&self, first: Pfn, order: u32) {
        Self::free(self, first, order);
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.memory.base().as_ptr()
    }
}

const _: () = assert!(WORDS as u64 * 8 == PAGE_SIZE);
