//! A CPU that was asked to come up, and the CPU that waits for it, for a bounded time.
//!
//! Firmware may say that it starts a CPU, and not do so, or do so late. The word of an arrival is *asked* at first. The CPU
//! that comes makes it *here*, the CPU that has waited for too long makes it *given up*, each by a compare-exchange from
//! *asked*: one of them succeeds. A CPU that finds itself given up touches nothing, and stops. The CPU that is here says
//! by *ready*, or by *refused*, how its preparation went. *Ready* is a release, which the acquire of the waiting CPU
//! pairs with: it sees all that the other has prepared.

use mayfly_vm::platform::sync::{AtomicU32, Ordering};

const ASKED: u32 = 0;
const HERE: u32 = 1;
const GIVEN_UP: u32 = 2;
const READY: u32 = 3;
const REFUSED: u32 = 4;

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The CPU is prepared.
    Ready,
    /// The CPU has come, and cannot be used.
    Refused,
    /// The CPU has not come. If it comes later, it stops.
    Absent,
    /// The CPU has come, and does not say more.
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

    /// The CPU that has come is prepared, or cannot be used.
    pub fn finish(&self, ready: bool) {
        self.0.store(if ready { READY } else { REFUSED }, Ordering::Release);
    }

    /// Waits for the CPU while `goes_on`, which is called again and again, and says no when the time is over.
    pub fn wait(&self, mut goes_on: impl FnMut() -> bool) -> Outcome {
        loop {
            let seen = self.0.load(Ordering::Acquire);
            match seen {
                READY => return Outcome::Ready,
                REFUSED => return Outcome::Refused,
                GIVEN_UP => return Outcome::Absent,
                _ if goes_on() => {}
                HERE => return Outcome::Stuck,
                // It may come at this moment, and is seen to be here then.
                _ => {
                    let order = Ordering::Relaxed;
                    let _ = self.0.compare_exchange(ASKED, GIVEN_UP, order, order);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
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
    fn a_cpu_that_comes_and_says_no_more_is_stuck() {
        let arrival = Arrival::new();
        assert!(arrival.is_awaited());
        assert_eq!(arrival.wait(|| false), Outcome::Stuck);
        assert!(!arrival.is_awaited(), "it comes once");
    }

    #[test]
    fn a_cpu_says_whether_it_is_ready() {
        for (ready, outcome) in [(true, Outcome::Ready), (false, Outcome::Refused)] {
            let arrival = Arrival::new();
            assert!(arrival.is_awaited());
            arrival.finish(ready);
            assert_eq!(arrival.wait(|| panic!("it need not wait")), outcome);
        }
    }

    #[test]
    fn of_a_cpu_that_comes_and_one_that_gives_it_up_one_succeeds() {
        for patience in (0..400).map(|round| round % 20) {
            let (arrival, prepared) = (Arrival::new(), AtomicU64::new(0));
            let outcome = thread::scope(|scope| {
                let comes = scope.spawn(|| {
                    let awaited = arrival.is_awaited();
                    if awaited {
                        prepared.store(7, Ordering::Relaxed);
                        arrival.finish(true);
                    }
                    awaited
                });
                let mut looks = 0;
                let outcome = loop {
                    let outcome = arrival.wait(|| {
                        looks += 1;
                        looks <= patience
                    });
                    // It is here: then it does say more.
                    if outcome != Outcome::Stuck {
                        break outcome;
                    }
                };
                assert_eq!(comes.join().unwrap(), outcome == Outcome::Ready);
                outcome
            });
            let expected = if outcome == Outcome::Ready { 7 } else { 0 };
            assert_eq!(prepared.into_inner(), expected);
        }
    }
}
