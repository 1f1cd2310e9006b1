//! A reader that sleeps in its sections: a thread that is inside for a millisecond, outside for a moment, and inside again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use mayfly_srcu::Reader;

use crate::processors::Processors;
use crate::{liburcu, qsbr};

/// How long a section is.
pub const SECTION: Duration = Duration::from_millis(1);

/// Whose sections the thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Inside {
    /// Those of Mayfly's first domain.
    First,
    /// Those of Mayfly's second domain.
    Second,
    /// Those of liburcu QSBR.
    Qsbr,
    /// Those of liburcu memb.
    Memb,
    /// None: it ends.
    Ending,
}

/// The thread.
#[derive(Debug)]
pub struct Sleeper {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Orders {
    wanted: AtomicU8,
    /// Whose sections it is in.
    inside: AtomicU8,
    /// Sections that it has entered.
    entered: AtomicU64,
}

impl Sleeper {
    /// A thread on the other processor that reads as `readers` of two domains.
    pub fn new(processors: Processors, readers: [Reader; 2]) -> Self {
        let first = || AtomicU8::new(Inside::First as u8);
        let orders = Orders { wanted: first(), inside: first(), entered: AtomicU64::new(0) };
        let orders = Arc::new(orders);
        let theirs = Arc::clone(&orders);
        let thread = thread::spawn(move || {
            processors.keep_there();
            theirs.follow(&readers);
        });
        Self { orders, thread: Some(thread) }
    }

    /// Has it be inside there. Returns when it has just entered a section, in which it sleeps.
    ///
    /// # Panics
    ///
    /// If the thread has ended.
    pub fn set(&self, inside: Inside) {
        self.orders.wanted.store(inside as u8, Ordering::Relaxed);
        let wait = |is_so: &dyn Fn() -> bool| {
            while !is_so() {
                assert!(self.thread.as_ref().is_some_and(|thread| !thread.is_finished()));
                thread::yield_now();
            }
        };
        wait(&|| self.orders.inside.load(Ordering::Acquire) == inside as u8);
        let entered = self.orders.entered.load(Ordering::Acquire);
        wait(&|| self.orders.entered.load(Ordering::Acquire) > entered);
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.orders.wanted.store(Inside::Ending as u8, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, has been reported by its own message.
            let _ = thread.join();
        }
    }
}

impl Orders {
    fn follow(&self, readers: &[Reader; 2]) {
        loop {
            let wanted = self.wanted.load(Ordering::Relaxed);
            match wanted {
                w if w == Inside::First as u8 => self.read(wanted, || readers[0].lock()),
                w if w == Inside::Second as u8 => self.read(wanted, || readers[1].lock()),
                w if w == Inside::Qsbr as u8 => {
                    let registered = qsbr::Registered::new();
                    self.read(wanted, || registered.section());
                }
                w if w == Inside::Memb as u8 => {
                    let registered = liburcu::Registered::new();
                    self.read(wanted, || registered.section());
                }
                _ => return,
            }
        }
    }

    /// Enters one section after the other, and sleeps in each, as long as that is wanted.
    fn read<Section>(&self, wanted: u8, enter: impl Fn() -> Section) {
        while self.wanted.load(Ordering::Relaxed) == wanted {
            let section = enter();
            self.inside.store(wanted, Ordering::Release);
            self.entered.fetch_add(1, Ordering::Release);
            sleep(SECTION);
            drop(section);
        }
    }
}

#[cfg(test)]
mod tests {
    use mayfly_platform::Host;

    use super::*;
    use crate::sections;

    #[test]
    fn a_grace_period_of_its_own_domain_waits_for_it_and_no_other() {
        let [first, second] = [(); 2].map(|()| sections::domain(Arc::new(Host::new())));
        let readers = [sections::reader(&first), sections::reader(&second)];
        let sleeper = Sleeper::new(Processors::two(), readers);
        let left = |sleeper: &Sleeper| sleeper.orders.entered.load(Ordering::Acquire);
        for (inside, own) in [(Inside::First, &first), (Inside::Second, &second)] {
            sleeper.set(inside);
            let section = left(&sleeper);
            own.synchronize();
            // The section that it was in is over: it is in the next one, or about to be.
            while left(&sleeper) == section {
                thread::yield_now();
            }
        }
        sleeper.set(Inside::Qsbr);
        qsbr::Registered::new().synchronize();
        sleeper.set(Inside::Memb);
        liburcu::Registered::new().synchronize();
    }
}
