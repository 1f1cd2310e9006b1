//! The other thread, for rows in which two threads do the same at the same time.
//!
//! The time is from before both begin until both are done. So the partner polls for its orders, and begins within a fraction
//! of a microsecond. It has been seen to run just before ([`Partner::wake`]), because another process may have its
//! processor.

use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Thread};

use crate::processors::Processors;

/// Something that the partner can do many times over.
pub type Job = Box<dyn FnMut(u32) + Send>;

/// A second thread, which sleeps at first.
#[derive(Debug)]
pub struct Partner {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
    /// The number of the last order.
    last: Cell<u64>,
}

#[derive(Debug, Default)]
struct Orders {
    awake: AtomicBool,
    job: AtomicUsize,
    count: AtomicU32,
    /// How many orders there were.
    given: AtomicU64,
    /// How many have been carried out.
    done: AtomicU64,
    /// Counts while the partner looks for orders.
    beats: AtomicU64,
}

impl Partner {
    /// A thread that can do `jobs`, on the other processor.
    pub fn new(processors: Processors, jobs: Vec<Job>) -> Self {
        let orders = Arc::new(Orders::default());
        let theirs = Arc::clone(&orders);
        let thread = thread::spawn(move || {
            processors.keep_there();
            theirs.follow(jobs);
        });
        Self { orders, thread: Some(thread), last: Cell::new(0) }
    }

    /// Has it look for orders. Returns when it is seen to.
    ///
    /// # Panics
    ///
    /// If a job has panicked.
    pub fn wake(&self) {
        self.orders.awake.store(true, Ordering::Relaxed);
        self.thread().unpark();
        let beats = self.orders.beats.load(Ordering::Relaxed);
        self.await_partner(|orders| orders.beats.load(Ordering::Relaxed) >= beats + 2);
    }

    /// Has it sleep until it is woken.
    pub fn sleep(&self) {
        self.orders.awake.store(false, Ordering::Relaxed);
    }

    /// Does `mine` while the partner, which is awake, does job number `job` `count` times. Returns when both are done.
    ///
    /// # Panics
    ///
    /// If a job has panicked.
    pub fn both(&self, job: usize, count: u32, mine: impl FnOnce()) {
        self.give(job, count);
        mine();
        let last = self.last.get();
        while self.orders.done.load(Ordering::Acquire) != last {
            assert!(!self.has_ended(), "the other thread has panicked");
            spin_loop();
        }
    }

    fn give(&self, job: usize, count: u32) {
        self.last.set(self.last.get() + 1);
        self.orders.job.store(job, Ordering::Relaxed);
        self.orders.count.store(count, Ordering::Relaxed);
        // Release, pairing with the acquire in `follow`: what is to be done is there to be read.
        self.orders.given.store(self.last.get(), Ordering::Release);
    }

    fn await_partner(&self, is_so: impl Fn(&Orders) -> bool) {
        while !is_so(&self.orders) {
            assert!(!self.has_ended(), "the other thread has panicked");
            thread::yield_now();
        }
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn thread(&self) -> &Thread {
        self.thread.as_ref().expect("joined only when dropped").thread()
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // There is no such job.
        self.give(usize::MAX, 0);
        self.thread().unpark();
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, has been reported by its own message.
            let _ = thread.join();
        }
    }
}

impl Orders {
    fn follow(&self, mut jobs: Vec<Job>) {
        let mut seen = 0;
        loop {
            let given = self.given.load(Ordering::Acquire);
            if given == seen {
                if self.awake.load(Ordering::Relaxed) {
                    self.beats.fetch_add(1, Ordering::Relaxed);
                    spin_loop();
                } else {
                    thread::park();
                }
                continue;
            }
            seen = given;
            let Some(job) = jobs.get_mut(self.job.load(Ordering::Relaxed)) else { return };
            job(self.count.load(Ordering::Relaxed));
            self.done.store(given, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_have_done_theirs_when_both_are_done() {
        let sums = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
        let jobs = sums.iter().map(|sum| -> Job {
            let sum = Arc::clone(sum);
            Box::new(move |count| sum.store(sum.load(Ordering::Relaxed) + count, Ordering::Relaxed))
        });
        let partner = Partner::new(Processors::two(), jobs.collect());
        let mut mine = 0;
        for round in 1..=100 {
            partner.wake();
            partner.both(round % 2, 3, || mine += 1);
            partner.sleep();
            let all: u32 = sums.iter().map(|sum| sum.load(Ordering::Relaxed)).sum();
            assert_eq!((mine, all), (round as u32, 3 * round as u32));
        }
        assert_eq!(sums.map(|sum| sum.load(Ordering::Relaxed)), [150, 150]);
    }
}
