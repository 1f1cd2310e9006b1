//! A share of the machine's processor time: that of a VM, with all its threads, or that of the hypervisor.

use super::budget::Budget;
use super::heap::Place;
use super::queue::Queue;
use super::{CREDIT, FORGOTTEN, MARGIN, SLICE, THREAD_CREDIT, Turn, Turns, is_before, ticks};

/// The least slice of a light share, in microseconds.
const LEAST_SLICE: u64 = 1_000;
/// What a tick costs in virtual time at a weight of 1.
const SCALE: u64 = 1 << 20;

/// The bounds of [`turns`](super), in ticks or, where the name says so, in virtual time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) slice: u64,
    pub(super) thread_credit: u64,
    pub(super) forgotten: u64,
    pub(super) slice_cost: u64,
    pub(super) credit_cost: u64,
    pub(super) margin_cost: u64,
}

/// A share of the machine's processor time.
#[derive(Debug)]
pub struct Share {
    /// Where it is among those that have a thread which waits.
    pub(super) place: Place,
    /// Of all its threads.
    pub(super) virtual_time: u64,
    /// What a tick costs.
    pub(super) cost: u64,
    pub(super) waiting: Queue,
    /// What the thread had used that was last taken.
    pub(super) present: u64,
    pub(super) longest_wait: u64,
    /// When one of its threads last stopped.
    pub(super) stopped: u64,
    /// The processor time that its threads have had, in ticks, but for those that run.
    spent: u64,
    pub(super) budget: Option<Budget>,
    /// It has threads that wait, and is dry; and when it was to have its quota anew, as it became so.
    pub(super) lies_dry: bool,
    pub(super) quota_at: u64,
    pub(super) terms: Terms,
    weight: u32,
    cap: Option<u32>,
    frequency: u64,
    /// How many threads it has, and has had at most.
    threads: u64,
    most_threads: u64,
}

impl Share {
    /// The largest weight.
    pub const MOST_WEIGHT: u32 = 1000;
    /// The weight of a share that has no other.
    pub const WEIGHT: u32 = 100;
    /// The largest cap, in hundredths of a processor.
    pub const MOST_CAP: u32 = 100_000;

    /// A share of that weight (1 to [`Share::MOST_WEIGHT`]), and of at most so many hundredths of a processor, where a
    /// second has `frequency` ticks.
    pub const fn new(weight: u32, cap: Option<u32>, frequency: u64) -> Self {
        let cost = SCALE / weight as u64;
        // Of a light share a short one: it pays for it as long as others for theirs.
        let part = if weight < Self::WEIGHT { weight as u64 } else { Self::WEIGHT as u64 };
        let slice = ticks(SLICE * part / Self::WEIGHT as u64, frequency);
        let slice = if slice < ticks(LEAST_SLICE, frequency) {
            ticks(LEAST_SLICE, frequency)
        } else {
            slice
        };
        let credit = ticks(CREDIT * part / Self::WEIGHT as u64, frequency);
        let margin = ticks(MARGIN * part / Self::WEIGHT as u64, frequency);
        let budget = match cap {
            Some(percent) => Some(Budget::new(percent, frequency)),
            None => None,
        };
        Self {
            place: Place::NONE,
            virtual_time: 0,
            cost,
            waiting: Queue::new(),
            present: 0,
            longest_wait: 0,
            // So that it begins without a debt.
            stopped: 0_u64.wrapping_sub(1 << 63),
            spent: 0,
            budget,
            lies_dry: false,
            quota_at: 0,
            terms: Terms {
                slice,
                thread_credit: ticks(THREAD_CREDIT, frequency),
                forgotten: ticks(FORGOTTEN, frequency),
                slice_cost: slice.wrapping_mul(cost),
                credit_cost: credit.wrapping_mul(cost),
                margin_cost: margin.wrapping_mul(cost),
            },
            weight,
            cap,
            frequency,
            threads: 0,
            most_threads: 0,
        }
    }

    /// The processor time that its threads have had, in ticks, but for what those that run have had since they began.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// The longest that one of its threads has waited for a processor, in ticks.
    pub fn longest_wait(&self) -> u64 {
        self.longest_wait
    }

    /// It has one more thread.
    pub fn add_thread(&mut self) {
        self.threads += 1;
        self.most_threads = self.most_threads.max(self.threads);
    }

    /// One of its threads is over.
    pub fn remove_thread(&mut self) {
        self.threads -= 1;
    }

    pub(super) fn most_threads(&self) -> u64 {
        self.most_threads
    }

    pub(super) fn cap(&self) -> Option<u32> {
        self.cap
    }

    pub(super) fn in_ticks(&self, microseconds: u64) -> u64 {
        ticks(microseconds, self.frequency)
    }

    /// Its weight.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// It is behind `present` by its credit at most.
    #[inline]
    pub(super) fn keep_within(&mut self, present: u64) {
        let least = present.wrapping_sub(self.terms.credit_cost);
        if is_before(self.virtual_time, least) {
            self.virtual_time = least;
        }
    }

    /// Whether no other of its threads may begin at `now`.
    #[inline]
    pub(super) fn is_dry(&mut self, now: u64) -> bool {
        self.budget.as_mut().is_some_and(|budget| budget.is_dry(now))
    }

    /// Whether it has no quota left at `now`.
    pub(super) fn is_spent(&mut self, now: u64) -> bool {
        self.budget.as_mut().is_some_and(|budget| budget.is_spent(now))
    }

    /// When it has its quota anew, in ticks.
    pub(super) fn next_quota(&self) -> u64 {
        self.budget.as_ref().map_or(u64::MAX, Budget::next)
    }

    /// One of its threads begins. Returns what is granted to it: ticks, and what they cost in virtual time.
    #[cold]
    pub(super) fn begin(&mut self) -> (u64, u64) {
        if let Some(budget) = &mut self.budget {
            budget.begin();
        }
        self.grant()
    }

    /// What is granted to one of its threads: ticks, and what they cost in virtual time.
    pub(super) fn grant(&mut self) -> (u64, u64) {
        match &mut self.budget {
            None => (self.terms.slice, self.terms.slice_cost),
            Some(budget) => {
                let granted = budget.grant(self.terms.slice);
                (granted, granted.wrapping_mul(self.cost))
            }
        }
    }

    /// Charges for so many ticks that were used, of which so many were charged before.
    #[inline]
    pub(super) fn charge(&mut self, used: u64, granted: u64) {
        self.spent = self.spent.wrapping_add(used);
        let beyond = used.wrapping_sub(granted).wrapping_mul(self.cost);
        self.virtual_time = self.virtual_time.wrapping_add(beyond);
    }

    /// It pays for `ticks` that a thread of another share has had.
    fn take_over(&mut self, ticks: u64) {
        self.charge(ticks, 0);
        if let Some(budget) = &mut self.budget {
            budget.settle(ticks, 0);
        }
    }

    /// Another share pays for `ticks` that one of its threads has had, or is still to be charged for.
    fn give_back(&mut self, ticks: u64) {
        self.charge(0, ticks);
        self.spent = self.spent.wrapping_sub(ticks);
        if let Some(budget) = &mut self.budget {
            budget.settle(0, ticks);
        }
    }
}

impl Turns {
    /// Charges another share for `ticks` of what a thread that runs has had, and not that thread's own: it has worked for
    /// the other.
    ///
    /// # Safety
    ///
    /// `turn` runs, and the other share is there.
    pub unsafe fn bill(&mut self, turn: *mut Turn, other: *mut Share, ticks: u64) {
        // SAFETY: the caller's promise. They may be the same.
        unsafe {
            let own = (*turn).share;
            (*own).give_back(ticks);
            // Before the other's time changes: a heap has one share at most that is not where it belongs.
            self.changed(own);
            (*other).take_over(ticks);
            self.changed(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn a_thread_in_the_background_comes_after_those_that_wake_with_it_and_before_one_that_goes_on()
    {
        const PER_MICROSECOND: u64 = 1;
        let mut turns = Turns::new();
        let mut share = Share::new(Share::WEIGHT, None, 1_000_000 * PER_MICROSECOND);
        let share = &raw mut share;
        let (mut first, mut second) = (Turn::new(share), Turn::new(share));
        let (reclaims, works) = (&raw mut first, &raw mut second);
        // SAFETY: all of them are there to the end of the test; each is woken when it neither waits nor runs, and stopped when
        // it runs.
        unsafe {
            (*reclaims).in_background();
            for round in 0..3 {
                let now = round * 100 * SLICE;
                turns.wake(reclaims, now);
                turns.wake(works, now);
                assert_eq!(turns.take(now), Some(works));
                turns.stop(works, now + 10);
                assert_eq!(turns.take(now + 10), Some(reclaims));
                turns.stop(reclaims, now + 20);
            }
            let mut now = 1000 * SLICE;
            turns.wake(reclaims, now);
            turns.wake(works, now);
            assert_eq!(turns.take(now), Some(works));
            let began = now;
            loop {
                now += THREAD_CREDIT / 4;
                if turns.exchange(works, now) == Some(reclaims) {
                    break;
                }
                assert!(now - began <= 2 * THREAD_CREDIT, "it has waited too long");
            }
        }
    }

    #[test]
    fn shares_are_taken_in_their_order_after_one_that_is_ready_has_paid_for_another_that_is() {
        let mut turns = Turns::new();
        let shares = [10, 20, 30, 40].map(|ticks| {
            let mut share = Share::new(Share::WEIGHT, None, 1_000_000);
            share.virtual_time = ticks * share.cost;
            Box::into_raw(Box::new(share))
        });
        let mut turn = Turn::new(shares[3]);
        // SAFETY: the shares are there to the end of the test, and each is added once.
        let times: Vec<_> = unsafe {
            for share in shares {
                turns.ready.insert(share);
            }
            turns.bill(&raw mut turn, shares[0], 17);
            let next = || {
                let first = turns.ready.first();
                (!first.is_null()).then(|| {
                    turns.ready.remove(first);
                    (*first).virtual_time / (*first).cost
                })
            };
            std::iter::from_fn(next).collect()
        };
        assert_eq!(times, [20, 23, 27, 30]);
        for share in shares {
            // SAFETY: it was made of a box.
            drop(unsafe { Box::from_raw(share) });
        }
    }
}
