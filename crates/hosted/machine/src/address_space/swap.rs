//! Where the contents of pages are that have no frame.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

use mayfly_platform::address::Pfn;

use crate::Arena;
use crate::lock::lock;

/// Contents of pages, each under a number that is never used again.
#[derive(Debug, Default)]
pub(super) struct Swap {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    contents: HashMap<u64, Box<[u64]>>,
    next: u64,
}

impl Swap {
    /// Keeps what `frame` holds.
    pub(super) fn store(&self, arena: &Arena, frame: Pfn) -> u64 {
        let contents = arena.words(frame).map(|word| word.load(Ordering::Acquire)).collect();
        let mut pages = self.pages();
        let number = pages.next;
        pages.next += 1;
        pages.contents.insert(number, contents);
        number
    }

    /// Fills `frame` with what is kept under `number`. Returns whether anything is.
    pub(super) fn load(&self, number: u64, arena: &Arena, frame: Pfn) -> bool {
        let pages = self.pages();
        let Some(contents) = pages.contents.get(&number) else { return false };
        for (word, value) in arena.words(frame).zip(contents) {
            word.store(*value, Ordering::Relaxed);
        }
        true
    }

    /// Keeps it no longer.
    pub(super) fn forget(&self, number: u64) {
        self.pages().contents.remove(&number);
    }

    /// How many pages are kept.
    pub(super) fn len(&self) -> usize {
        self.pages().contents.len()
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        lock(&self.pages)
    }
}
