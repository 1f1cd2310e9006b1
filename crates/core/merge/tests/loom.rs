//! A page comes to share a frame while its guest, and a device of the host, write to it: nothing that was written is lost, and
//! the frame that others share stays as it was.

#![cfg(mayfly_loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use loom::thread;

use mayfly_merge::{Steps, share};

/// The frame that the page has, and the one that it is to share; both hold this.
const OWN: usize = 0;
const COMMON: usize = 1;
const EQUAL: u64 = 7;

/// A bit of the stage-2 entry, beside the frame's number: the guest may write.
const WRITE: u64 = 2;

struct World {
    frames: [AtomicU64; 2],
    /// Of stage 2.
    entry: AtomicU64,
    /// What the host finds: the frame, which is a device's to write unless it is shared.
    found: AtomicU64,
    /// The CPU is asked to forget what it has in its TLB; it has, or is not in the guest.
    asked: AtomicBool,
    has_forgotten: AtomicBool,
    /// A device is just using a frame that it has found.
    in_use: AtomicBool,
}

const SHARED: u64 = 2;

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            frames: [AtomicU64::new(EQUAL), AtomicU64::new(EQUAL)],
            entry: AtomicU64::new(OWN as u64 | WRITE),
            found: AtomicU64::new(OWN as u64),
            asked: AtomicBool::new(false),
            has_forgotten: AtomicBool::new(false),
            in_use: AtomicBool::new(false),
        })
    }

    /// The guest has the right to write in its TLB, and writes, unless it is asked to forget that before. Returns what it
    /// wrote.
    fn guest(&self, value: u64) -> Option<u64> {
        let mut tlb = Some(self.entry.load(Ordering::SeqCst)).filter(|entry| entry & WRITE != 0);
        if self.asked.load(Ordering::SeqCst) {
            tlb = None;
            self.has_forgotten.store(true, Ordering::SeqCst);
            // It walks again. A write without the right would fault, and wait for a frame of its own.
            let entry = self.entry.load(Ordering::SeqCst);
            tlb = tlb.or(Some(entry)).filter(|entry| entry & WRITE != 0);
        }
        let written = tlb.map(|entry| {
            self.frames[(entry & 1) as usize].store(value, Ordering::SeqCst);
            value
        });
        self.has_forgotten.store(true, Ordering::SeqCst);
        written
    }

    /// A device writes, if the page is the host's to write.
    fn device(&self, value: u64) -> Option<u64> {
        self.in_use.store(true, Ordering::SeqCst);
        // loom knows of no order of all accesses: this pairs with the one in `close`.
        fence(Ordering::SeqCst);
        let found = self.found.load(Ordering::SeqCst);
        let written = (found & SHARED == 0).then(|| {
            self.frames[found as usize].store(value, Ordering::SeqCst);
            value
        });
        self.in_use.store(false, Ordering::SeqCst);
        written
    }

    /// What the guest reads in the end.
    fn reads(&self) -> u64 {
        let (entry, found) = (self.entry.load(Ordering::SeqCst), self.found.load(Ordering::SeqCst));
        assert_eq!(entry & 1, found & 1, "the tables and the host name one frame");
        self.frames[(entry & 1) as usize].load(Ordering::SeqCst)
    }
}

struct Merging<'a>(&'a World, bool);

impl Steps for Merging<'_> {
    fn protect(&mut self) {
        self.0.entry.fetch_and(!WRITE, Ordering::SeqCst);
        self.0.asked.store(true, Ordering::SeqCst);
        while !self.0.has_forgotten.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }

    fn close(&mut self) {
        self.0.found.fetch_or(SHARED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while self.0.in_use.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }

    fn compare(&mut self) {
        let [own, common] = &self.0.frames;
        self.1 = own.load(Ordering::SeqCst) == common.load(Ordering::SeqCst);
    }

    fn replace(&mut self) {
        if self.1 {
            self.0.found.store(COMMON as u64 | SHARED, Ordering::SeqCst);
            self.0.entry.store(COMMON as u64, Ordering::SeqCst);
        } else {
            self.0.found.store(OWN as u64, Ordering::SeqCst);
        }
    }

    fn end(&mut self) {}
}

fn play(writes: fn(&World, u64) -> Option<u64>, is_guest: bool) {
    loom::model(move || {
        let world = World::new();
        if !is_guest {
            world.has_forgotten.store(true, Ordering::SeqCst);
        }
        let writer = thread::spawn({
            let world = Arc::clone(&world);
            move || writes(&world, EQUAL + 1)
        });
        share(&mut Merging(&world, false));
        let written = writer.join().unwrap();
        assert_eq!(
            world.reads(),
            written.unwrap_or(EQUAL),
            "what was written last is what is read"
        );
        let common = world.frames[COMMON].load(Ordering::SeqCst);
        assert_eq!(common, EQUAL, "the frame that others share stays as it was");
    });
}

#[test]
fn what_a_guest_writes_while_its_page_is_merged_is_not_lost() {
    play(World::guest, true);
}

#[test]
fn what_a_device_writes_while_its_page_is_merged_is_not_lost() {
    play(World::device, false);
}
