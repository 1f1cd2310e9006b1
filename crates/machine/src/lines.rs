//! The host's data cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_platform::address::{Hpa, PAGE_SHIFT, PAGE_SIZE, Pfn};
use mayfly_platform::sync::CacheLine;
use mayfly_vm::Cache;

use crate::Arena;

/// Bytes of a line. Smaller than it may be on some processors, which costs instructions there and misses nothing.
pub const LINE: u64 = 64;

/// The cache in front of an arena's frames, whose lines are really written back, and counted.
#[derive(Debug)]
pub struct DataCache {
    arena: Arc<Arena>,
    cleaned: CacheLine<AtomicU64>,
}

impl DataCache {
    /// The cache in front of `arena`.
    pub fn new(arena: Arc<Arena>) -> Self {
        Self { arena, cleaned: CacheLine::default() }
    }

    /// How many lines were written back.
    pub fn lines_cleaned(&self) -> u64 {
        self.cleaned.load(Ordering::Relaxed)
    }
}

impl Cache for DataCache {
    fn clean(&self, first: Pfn, count: u64) {
        for frame in first.get()..first.get() + count {
            for offset in (0..PAGE_SIZE).step_by(LINE as usize) {
                clean_line(self.arena.word(Hpa::new((frame << PAGE_SHIFT) + offset)));
            }
        }
        order_cleans();
        self.cleaned.fetch_add(count * (PAGE_SIZE / LINE), Ordering::Relaxed);
    }
}

/// Writes the line that `word` lies in back to memory.
#[cfg(target_arch = "x86_64")]
fn clean_line(word: &AtomicU64) {
    // SAFETY: flushing a line of memory that is there changes nothing that a program sees; `clflush` is part of SSE2,
    // which every x86-64 processor has.
    unsafe { std::arch::x86_64::_mm_clflush(word.as_ptr().cast()) };
}

/// Writes the line that `word` lies in back to memory.
#[cfg(target_arch = "aarch64")]
fn clean_line(word: &AtomicU64) {
    // SAFETY: cleaning a line of memory that is there changes nothing that a program sees; Linux lets programs do it
    // (SCTLR_EL1.UCI).
    unsafe { std::arch::asm!("dc cvac, {}", in(reg) word.as_ptr(), options(nostack)) };
}

#[cfg(target_arch = "x86_64")]
fn order_cleans() {
    // SAFETY: a fence; part of SSE2.
    unsafe { std::arch::x86_64::_mm_mfence() };
}

#[cfg(target_arch = "aarch64")]
fn order_cleans() {
    // SAFETY: a barrier.
    unsafe { std::arch::asm!("dsb sy", options(nostack)) };
}
