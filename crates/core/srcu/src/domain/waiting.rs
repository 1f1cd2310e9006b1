//! How a party sleeps until a grace period is complete, and how the readers that it waits for wake it. The protocol
//! (*Sleeping*, *Asking for haste*) is at the top of `domain`.

use core::time::Duration;

use mayfly_platform::Op;
use mayfly_platform::sync::{Ordering, fence, spin_loop};

use super::Domain;
use crate::contexts;
use crate::record::Record;

/// How often an expedited waiter looks again before it sleeps. Sections are mostly shorter than a sleep and a wake-up.
const EXPEDITED_LOOKS: u32 = if cfg!(any(mayfly_loom, mayfly_shuttle)) { 0 } else { 100 };

/// How long a waiter of a fenced domain sleeps before it looks again, at first and at last.
pub(crate) const FIRST_LOOK: Duration = Duration::from_micros(50);
pub(crate) const LAST_LOOK: Duration = Duration::from_millis(10);

/// How patient a waiter is. Either way it drives its own grace period, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Sleeps as soon as a reader is found inside.
    Lazy,
    /// Looks again for a while first.
    Expedited,
}

impl Domain {
    /// Sees grace period `cookie` through.
    pub(crate) fn wait_for(&self, cookie: u64, urgency: Urgency) {
        let mut looks = match urgency {
            Urgency::Lazy => 0,
            Urgency::Expedited => EXPEDITED_LOOKS,
        };
        let mut patience = FIRST_LOOK;
        while !self.advance(cookie) {
            if looks > 0 {
                looks -= 1;
                spin_loop();
                continue;
            }
            // Loaded before the readers are looked at again: what changes after that look changes this.
            let progress = self.periods.progress.load(Ordering::Acquire);
            if self.arm(cookie) {
                return;
            }
            self.forbid_own_section(cookie);
            self.note_sleep();
            let word = &self.periods.progress;
            if self.fenced {
                self.world.wait_until(word, progress, self.world.now() + patience);
                patience = (2 * patience).min(LAST_LOOK);
            } else {
                self.world.wait(word, progress);
            }
        }
    }

    /// Asks every reader that blocks `cookie` to say when it leaves. Returns whether `cookie` is complete.
    pub(crate) fn arm(&self, cookie: u64) -> bool {
        let mut gate = self.gate();
        let mut marked = self.anonymous.mark(&gate.draining);
        for record in gate.records.iter() {
            if let Some(section) = record.inside()
                && record.sampled_in(section).is_some()
                && !record.reader.awaited.load(Ordering::Relaxed)
            {
                record.reader.awaited.store(true, Ordering::Relaxed);
                marked = true;
            }
        }
        if marked {
            self.heavy_barrier();
        }
        self.scan(&mut gate, None);
        drop(gate);
        self.is_complete(cookie)
    }

    /// In builds that look for it: a thread that is about to sleep for `cookie` must not be inside a section that holds
    /// it up, for then it never wakes.
    fn forbid_own_section(&self, cookie: u64) {
        let Some(here) = contexts::here(&self.world) else { return };
        let gate = self.gate();
        let holds_up = |record: &Record| {
            let section = record.inside().filter(|_| record.entered_by(here));
            let first = section.and_then(|section| record.sampled_in(section));
            first.is_some_and(|first| first <= cookie)
        };
        assert!(
            !gate.records.iter().any(holds_up)
                && !self.anonymous.is_blocked_here(&gate.draining, cookie, &self.world),
            "waits for a grace period that a section of its own holds up"
        );
    }

    /// In builds that look for it: callbacks do not wait.
    pub(crate) fn forbid_callbacks(&self) {
        let Some(here) = contexts::here(&self.world) else { return };
        assert!(
            !self.gate().runners.has(here),
            "a callback waits for a grace period of its own domain"
        );
    }

    /// A reader that a thread sleeps for has left.
    #[cold]
    pub(crate) fn reader_left(&self) {
        self.notify();
        // [haste]. (On x86 the update in `notify` is a fence already, and under a model checker the reader's [light] is:
        // neither sees a test fail without this one. Elsewhere nothing else orders `expedited` behind `section`.)
        fence(Ordering::SeqCst);
        self.bell.ring();
        if self.expedited.load(Ordering::Relaxed) != 0
            && let Some(worker) = &self.worker
        {
            worker.kick();
        }
    }

    /// Wakes the threads that sleep until something changes in this domain.
    pub(crate) fn notify(&self) {
        self.periods.progress.fetch_add(1, Ordering::Release);
        self.world.wake(&self.periods.progress);
    }

    /// Sleeps until `done`, which is said to have changed through [`Domain::notify`].
    pub(crate) fn sleep_until(&self, mut done: impl FnMut() -> bool) {
        loop {
            let progress = self.periods.progress.load(Ordering::Acquire);
            if done() {
                return;
            }
            self.note_sleep();
            self.world.wait(&self.periods.progress, progress);
        }
    }

    fn note_sleep(&self) {
        self.counters.sleeps.fetch_add(1, Ordering::Relaxed);
        self.world.charge(Op::Sleep);
    }
}
