//! The other thread, and what it does while the measuring thread waits for readers.
//!
//! It has a processor of its own if there are two. Another process may have that processor at the moment. So the measuring
//! thread first sees that the companion runs ([`Companion::set`]).

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};

use mayfly_srcu::Reader;

use crate::liburcu::Registered;
use crate::processors::Processors;
use crate::sections::registered;

/// How many sections are entered and left between two looks at what to do.
const AT_A_TIME: u32 = 32;

/// What the other thread does. It is registered as a reader of Mayfly's and of liburcu's all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Doing {
    /// Sleeps, outside of all sections.
    Sleeping,
    /// Runs, outside of all sections.
    Running,
    /// Enters and leaves sections of Mayfly's, without pause.
    ReadingMayfly,
    /// Enters and leaves sections of liburcu's, without pause.
    ReadingLiburcu,
    /// Ends.
    Ending,
}

/// A second thread, which sleeps at first.
#[derive(Debug)]
pub struct Companion {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Orders {
    wanted: AtomicU8,
    doing: AtomicU8,
    /// Counts while the companion runs.
    beats: AtomicU64,
}

impl Companion {
    /// A thread that reads as `reader`. From here on it and the calling thread each keep to a processor.
    pub fn new(processors: Processors, reader: Reader) -> Self {
        let sleeping = || AtomicU8::new(Doing::Sleeping as u8);
        let beats = AtomicU64::new(0);
        let orders = Arc::new(Orders { wanted: sleeping(), doing: sleeping(), beats });
        let theirs = Arc::clone(&orders);
        processors.keep_here();
        let thread = thread::spawn(move || {
            processors.keep_there();
            theirs.follow(&reader);
        });
        let this = Self { orders, thread: Some(thread) };
        this.set(Doing::Running);
        this.set(Doing::Sleeping);
        this
    }

    /// Has it do something else, or go on with what it does. Returns when it does, and is seen to be running unless it
    /// is to sleep.
    pub fn set(&self, doing: Doing) {
        let before = self.orders.wanted.swap(doing as u8, Ordering::Relaxed);
        if before != doing as u8 {
            self.thread().unpark();
            while self.orders.doing.load(Ordering::Relaxed) != doing as u8 {
                thread::yield_now();
            }
        }
        if !matches!(doing, Doing::Sleeping | Doing::Ending) {
            let beats = self.orders.beats.load(Ordering::Relaxed);
            while self.orders.beats.load(Ordering::Relaxed) < beats + 2 {
                thread::yield_now();
            }
        }
    }

    fn thread(&self) -> &Thread {
        self.thread.as_ref().expect("joined only when dropped").thread()
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.set(Doing::Ending);
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, has been reported by its own message.
            let _ = thread.join();
        }
    }
}

impl Orders {
    fn follow(&self, reader: &Reader) {
        let liburcu = Registered::new();
        loop {
            let wanted = self.wanted.load(Ordering::Relaxed);
            self.doing.store(wanted, Ordering::Relaxed);
            let unchanged = || self.wanted.load(Ordering::Relaxed) == wanted;
            while unchanged() {
                self.beats.fetch_add(1, Ordering::Relaxed);
                match wanted {
                    w if w == Doing::Sleeping as u8 => thread::park(),
                    w if w == Doing::Running as u8 => spin_loop(),
                    w if w == Doing::ReadingMayfly as u8 => registered(reader, AT_A_TIME),
                    w if w == Doing::ReadingLiburcu as u8 => liburcu.inlined_sections(AT_A_TIME),
                    _ => return,
                }
            }
        }
    }
}
