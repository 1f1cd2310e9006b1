//! The log of dirty pages under loom: every interleaving of marks and harvests, and every value that a load may return.

#![cfg(mayfly_loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use mayfly_memslot::{DirtyBitmap, DirtyWord};

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

/// As [`Memory::copy_dirty`], by a list of what is marked.
fn copy_marked(memory: &Memory, copy: &mut [u64; 2]) {
    let mut list = [DirtyWord::default()];
    let count = memory.log.harvest_marked(&mut 0, &mut list);
    for page in (0..2).filter(|page| count > 0 && list[0].marks >> page & 1 == 1) {
        copy[page] = memory.pages[page].load(Ordering::Relaxed);
    }
}

/// The summary is cleared before the marks are taken, and looked at after a mark is made.
#[test]
fn a_mark_that_races_with_a_harvest_of_what_is_marked_is_found_by_it_or_by_the_next() {
    loom::model(|| {
        let memory = Memory::new();
        // So that the summary says that there is something, and the vCPU may leave it at that.
        memory.write(1, 1);
        let vcpu = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || memory.write(0, 1))
        };
        let mut copy = [0; 2];
        copy_marked(&memory, &mut copy);
        vcpu.join().unwrap();
        copy_marked(&memory, &mut copy);
        assert_eq!(copy, [1, 1]);
        assert_eq!(memory.log.written_from(0), Some(0..memory.log.pages()));
    });
}

#[test]
fn two_harvests_of_what_is_marked_leave_no_mark_of_a_page_that_is_written_meanwhile() {
    loom::model(|| {
        let memory = Memory::new();
        memory.write(1, 1);
        let other = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let mut copy = [0; 2];
                copy_marked(&memory, &mut copy);
                copy
            })
        };
        memory.write(0, 1);
        let mut copy = [0; 2];
        copy_marked(&memory, &mut copy);
        let others = other.join().unwrap();
        let mut last = [0; 2];
        copy_marked(&memory, &mut last);
        assert_eq!(last, [0; 2], "who began last has taken what was left");
        assert!((0..2).all(|page| copy[page] == 1 || others[page] == 1));
    });
}

/// The bits of both groups are cleared together, and the list has room for one.
#[test]
fn a_mark_in_a_group_that_a_short_list_leaves_is_found_by_the_next_harvest() {
    const GROUP: u64 = 512;
    loom::model(|| {
        let log = Arc::new(DirtyBitmap::try_new(2 * GROUP).unwrap());
        log.mark(0);
        log.mark(GROUP);
        let vcpu = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.mark(GROUP + 1))
        };
        let (mut from, mut list, mut pages) = (0, [DirtyWord::default()], [0; 2]);
        let mut harvest = |from: &mut usize| {
            while log.harvest_marked(from, &mut list) == 1 {
                pages[list[0].word / 8] |= list[0].marks;
            }
        };
        harvest(&mut from);
        vcpu.join().unwrap();
        harvest(&mut 0);
        assert_eq!(pages, [1, 3]);
    });
}
