//! What a turn of a worker does: it takes one listed domain after the other into its hands, works on it, and puts it
//! back. The protocol is at the top of `worker`.

use mayfly_platform::sync::Ordering;
use mayfly_platform::time::Instant;

use super::{LAZY, Worker};
use crate::handle::Handle;

/// A domain that a turn works on. Where a callback panics, it is put back.
struct InHand<'a> {
    worker: &'a Worker,
    domain: Handle,
    /// The worker's `wants` when it was taken up.
    wanted: u32,
    /// When it wants its next turn.
    due: Instant,
    /// Its callbacks have returned.
    worked: bool,
}

impl Worker {
    /// Has each domain that is listed in hand once. Leaves to the caller that what is listed then is watched.
    pub(super) fn work_on_all(&self) {
        assert!(!self.callbacks_here.has(&self.world), "a callback turns its own worker");
        let listed = self.desk().roster.len();
        for _ in 0..listed {
            let Some(in_hand) = self.take() else { break };
            in_hand.work();
        }
    }

    /// The domain whose turn it is.
    fn take(&self) -> Option<InHand<'_>> {
        let mut desk = self.desk();
        let wanted = self.wants.load(Ordering::Acquire);
        let (domain, due) = core::iter::from_fn(|| desk.roster.pop()).find_map(|(at, due)| {
            // SAFETY: listed until now, under this lock, so not yet freed.
            unsafe { Handle::revive(at) }.map(|domain| (domain, due))
        })?;
        self.have_watched(&mut desk);
        drop(desk);
        if self.world.now() > due + LAZY && due > Instant::from_nanos(0) {
            self.late_turns.fetch_add(1, Ordering::Relaxed);
        }
        Some(InHand { worker: self, domain, wanted, due: Instant::from_nanos(0), worked: false })
    }
}

impl InHand<'_> {
    fn work(mut self) {
        let lazy = self.worker.world.now() + LAZY;
        self.due = self.domain.work(lazy);
        if self.due == Instant::NEVER {
            let attached = &self.domain.attached;
            attached.swap(false, Ordering::AcqRel);
            // Kept where it has deferred something meanwhile and no other party has seen to it.
            if self.domain.has_work() && !attached.swap(true, Ordering::AcqRel) {
                self.due = lazy;
            }
        }
        self.worked = true;
    }
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        if self.due == Instant::NEVER {
            return;
        }
        let worker = self.worker;
        let mut desk = worker.desk();
        if worker.stopped.load(Ordering::Acquire) {
            self.domain.attached.store(false, Ordering::Release);
            return;
        }
        // A thread that wanted the worker meanwhile may have meant this domain, which was not to be found.
        if worker.wants.load(Ordering::Acquire) != self.wanted {
            self.due = Instant::from_nanos(0);
        }
        // SAFETY: valid while there is a handle, and the thread that gives up the last one takes it off.
        unsafe { desk.roster.push(self.domain.at(), self.due) };
        if !self.worked {
            // Who knows where a panic leads.
            worker.have_watched(&mut desk);
        }
    }
}
