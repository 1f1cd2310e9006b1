//! A CPU that was asked to come up, and the CPU that waits for it, for a bounded time.
//!
//! Firmware may say that it starts a CPU, and not do so, or do so late. The word of an arrival is *asked* at first. The CPU
//! that comes makes it *here*, the CPU that has waited for too long makes it *given up*, each by a compare-exchange from
//! *asked*: one of them succeeds. A CPU that finds itself given up touches nothing, and stops. The CPU that is here says
//! by *ready*, or by *refused*, how its preparation went. *Ready* is a release, which the acquire of the waiting CPU
//! pairs with: it sees all that the other has prepared. A CPU that is here, and says no more for too long, is *abandoned*:
//! this is a compare-exchange from *here*, as what it says is, so here, too, one of them succeeds. If the CPU goes on
//! later, it finds itself abandoned, and stops. So what all CPUs share is changed by the waiting CPU alone, once the other
//! is ready.

use mayfly_vm::platform::sync::{AtomicU32, Ordering};

const ASKED: u32 = 0;
const HERE: u32 = 1;
const GIVEN_UP: u32 = 2;
const READY: u32 = 3;
const REFUSED: u32 = 4;
const ABANDONED: u32 = 5;

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The CPU is prepared.
    Ready,
    /// The CPU has come, and cannot be used.
    Refused,
    /// The CPU has not come. If it comes later, it stops.
    Absent,
    /// The CPU has come, and does not say more. If it goes on later, it stops.
    Stuck,
}

/// The arrival of one CPU.
#[derive(Debug)]
pub struct Arrival(AtomicU32);

impl Default for Arrival {
    fn default() -> Self {
        Self::new()
    }
}

impl Arrival {
    /// A CPU is asked.
    pub fn new() -> Self {
        Self(AtomicU32::new(ASKED))
    }

    /// The CPU has come. Returns whether it is still waited for.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.0.compare_exchange(ASKED, HERE, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The CPU that has come is prepared, or cannot be used. Returns whether it goes on: it is `ready`, and is still
    /// waited for.
    #[must_use]
    pub fn finish(&self, ready: bool) -> bool {
        let said = if ready { READY } else { REFUSED };
        let order = Ordering::Release;
        self.0.compare_exchange(HERE, said, order, Ordering::Relaxed).is_ok() && ready
    }

    /// Waits for the CPU while `goes_on`, which is called again and again, and says no when the time is over.
    pub fn wait(&self, mut goes_on: impl FnMut() -> bool) -> Outcome {
        loop {
            let seen = self.0.load(Ordering::Acquire);
            match seen {
                READY => return Outcome::Ready,
                REFUSED => return Outcome::Refused,
                GIVEN_UP => return Outcome::Absent,
                ABANDONED => return Outcome::Stuck,
                _ if goes_on() => {}
                // It may come at this moment, or say that it is ready, and is seen to have done so then.
                _ => {
                    let over = if seen == ASKED { GIVEN_UP } else { ABANDONED };
                    let order = Ordering::Relaxed;
                    let _ = self.0.compare_exchange(seen, over, order, order);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::thread;

    use super::*;

    #[test]
    fn a_cpu_that_never_comes_is_given_up_and_stops_when_it_comes_later() {
        let (arrival, mut looks) = (Arrival::new(), 0);
        let outcome = arrival.wait(|| {
            looks += 1;
            looks < 10
        });
        assert_eq!((outcome, looks), (Outcome::Absent, 10));
        assert!(!arrival.is_awaited());
        assert_eq!(arrival.wait(|| false), Outcome::Absent, "it stays given up");
    }

    #[test]
    fn a_cpu_that_comes_and_says_no_more_is_stuck_and_stops_when_it_goes_on_later() {
        for ready in [true, false] {
            let arrival = Arrival::new();
            assert!(arrival.is_awaited());
            assert_eq!(arrival.wait(|| false), Outcome::Stuck);
            assert!(!arrival.is_awaited(), "it comes once");
            assert!(!arrival.finish(ready), "it does not go on");
            assert_eq!(arrival.wait(|| false), Outcome::Stuck, "it stays abandoned");
        }
    }

    #[test]
    fn a_cpu_says_whether_it_is_ready() {
        for (ready, outcome) in [(true, Outcome::Ready), (false, Outcome::Refused)] {
            let arrival = Arrival::new();
            assert!(arrival.is_awaited());
            assert_eq!(arrival.finish(ready), ready, "it goes on if it is ready");
            assert_eq!(arrival.wait(|| panic!("it need not wait")), outcome);
        }
    }

    /// One CPU comes and prepares itself, and another gives it up after `patience` looks: before it comes, or, with
    /// `when_it_is_here`, while it prepares itself.
    fn race(patience: u64, when_it_is_here: bool) -> Outcome {
        let (arrival, prepared) = (Arrival::new(), AtomicU64::new(0));
        let is_here = AtomicBool::new(false);
        thread::scope(|scope| {
            let comes = scope.spawn(|| {
                if !arrival.is_awaited() {
                    return false;
                }
                is_here.store(true, Ordering::Release);
                (0..40 * u64::from(when_it_is_here)).for_each(|_| std::hint::spin_loop());
                prepared.store(7, Ordering::Relaxed);
                arrival.finish(true)
            });
            let mut looks = 0;
            let outcome = arrival.wait(|| {
                looks += u64::from(!when_it_is_here || is_here.load(Ordering::Acquire));
                looks <= patience
            });
            let seen = prepared.load(Ordering::Relaxed);
            let goes_on = comes.join().unwrap();
            assert_eq!(goes_on, outcome == Outcome::Ready, "{outcome:?}");
            assert!(!goes_on || seen == 7, "all that it has prepared is seen");
            assert_eq!(arrival.wait(|| false), outcome, "it is said once");
            outcome
        })
    }

    #[test]
    fn of_a_cpu_that_comes_and_one_that_gives_it_up_one_succeeds() {
        for patience in (0..400).map(|round| round % 20) {
            let outcome = race(patience, false);
            assert!(matches!(outcome, Outcome::Absent | Outcome::Ready | Outcome::Stuck));
        }
    }

    #[test]
    fn of_a_cpu_that_is_ready_and_one_that_abandons_it_one_succeeds() {
        for patience in (0..400).map(|round| round % 20) {
            let outcome = race(patience, true);
            assert!(matches!(outcome, Outcome::Ready | Outcome::Stuck), "it has come");
        }
    }
}
