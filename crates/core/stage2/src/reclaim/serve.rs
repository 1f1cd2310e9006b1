//! The thread that reclaims in the background.

use core::time::Duration;

use mayfly_platform::sync::Ordering;

use super::{Reclaimed, Reclaimer};
use crate::Format;
use crate::range::Slice;

/// How long [`Reclaimer::serve`] sleeps at first where the bell may not be rung.
const FIRST_LOOK: Duration = Duration::from_micros(50);

impl<F: Format> Reclaimer<F> {
    /// Frees whatever there is to free, in slices, asleep when there is nothing; returns after [`Reclaimer::stop`].
    ///
    /// What is waited for rings: a reader that leaves, a vCPU that comes out, a caller that gives up a reference. Only
    /// where readers are fenced, or paced as Linux's, one may leave without; then this looks again, after 50 us, and
    /// after twice as long each time.
    pub fn serve(&self, slice: Slice) {
        let mmu = &*self.bell.mmu;
        let mut patience = FIRST_LOOK;
        loop {
            let rung = self.rung().load(Ordering::Acquire);
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
            self.turns.fetch_add(1, Ordering::Relaxed);
            self.blind.store(false, Ordering::Relaxed);
            match self.run_slice(slice) {
                Reclaimed::More => mmu.preemption_point(),
                Reclaimed::Waits if self.blind.load(Ordering::Relaxed) => {
                    mmu.wait_until(self.rung(), rung, mmu.now() + patience);
                    if self.rung().load(Ordering::Relaxed) == rung {
                        patience *= 2;
                        continue;
                    }
                }
                Reclaimed::All | Reclaimed::Waits => self.bell.word.wait(rung),
            }
            patience = FIRST_LOOK;
        }
    }

    /// How often [`Reclaimer::serve`] has looked for something to do.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Something is waited for that may come to pass without the bell being rung.
    pub(super) fn look_again(&self) {
        self.blind.store(true, Ordering::Relaxed);
    }

    /// Has [`Reclaimer::serve`] return. What is left can still be reclaimed by [`Reclaimer::run_slice`].
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.bell.ring();
    }
}
