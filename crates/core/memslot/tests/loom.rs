//! The log of dirty pages under loom: every interleaving of marks and harvests, and every value that a load may return.

#![cfg(mayfly_loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use mayfly_memslot::DirtyBitmap;

/// A slot of two pages, and its log.
struct Memory {
    pages: [AtomicU64; 2],
    log: DirtyBitmap,
}

impl Memory {
    fn new() -> Arc<Self> {
        let pages = [AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Self { pages, log: DirtyBitmap::try_new(2).unwrap() })
    }

    fn write(&self, page: usize, value: u64) {
        self.pages[page].store(value, Ordering::Relaxed);
        self.log.mark(page as u64);
    }

    /// Brings `copy` up to date with what was written.
    fn copy_dirty(&self, copy: &mut [u64; 2]) {
        let mut word = [0];
        self.log.harvest(0, &mut word);
        for page in (0..2).filter(|page| word[0] >> page & 1 == 1) {
            copy[page] = self.pages[page].load(Ordering::Relaxed);
        }
    }
}

#[test]
fn a_page_written_again_before_a_harvest_is_copied_as_written_last_or_logged_again() {
    loom::model(|| {
        let memory = Memory::new();
        memory.write(0, 1);
        let vcpu = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.write(0, 2))
        };
        let mut copy = [0; 2];
        memory.copy_dirty(&mut copy);
        vcpu.join().unwrap();
        memory.copy_dirty(&mut copy);
        assert_eq!(copy, [2, 0]);
    });
}

#[test]
fn a_page_whose_mark_is_cleared_is_copied_as_it_was_written_before_the_mark() {
    loom::model(|| {
        let memory = Memory::new();
        let vcpu = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.write(1, 1))
        };
        let mut word = [0b10];
        let is_taken = memory.log.clear(0, &mut word) == 1;
        if is_taken {
            assert_eq!((word, memory.pages[1].load(Ordering::Relaxed)), ([0b10], 1));
        }
        vcpu.join().unwrap();
        assert_eq!(memory.log.harvest(0, &mut word), u64::from(!is_taken));
    });
}

#[test]
fn a_page_whose_mark_is_read_is_found_as_it_was_written_before_the_mark() {
    loom::model(|| {
        let memory = Memory::new();
        let vcpu = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.write(1, 1))
        };
        let mut word = [0];
        if memory.log.read(0, &mut word) == 1 {
            assert_eq!((word, memory.pages[1].load(Ordering::Relaxed)), ([0b10], 1));
        }
        vcpu.join().unwrap();
    });
}

#[test]
fn two_vcpus_that_mark_pages_of_one_word_lose_no_mark_to_each_other_or_to_a_harvest() {
    loom::model(|| {
        let memory = Memory::new();
        let vcpus = [0, 1].map(|page| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.write(page, 1))
        });
        let mut copy = [0; 2];
        memory.copy_dirty(&mut copy);
        for vcpu in vcpus {
            vcpu.join().unwrap();
        }
        memory.copy_dirty(&mut copy);
        assert_eq!(copy, [1, 1]);
    });
}
