//! Two calls, one right after the other, and whether the second waits for what the first has armed.

use std::time::Duration;

use crate::{Call, Error};

/// What was measured of two calls.
///
/// Every sample is of a VM of its own that is made ready in the same way. In half of them the second call comes right
/// after the first (`at_once`), which comes at a random moment within a tick; in the others, long enough after for all that
/// the first has armed to be over (`later`). So the time that has passed is the only difference.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The first call.
    pub after: Call,
    /// The second, which is timed.
    pub call: Call,
    /// Nanoseconds of the second call right after the first, in the order in which they were measured.
    pub at_once: Vec<u64>,
    /// The same a while after the first.
    pub later: Vec<u64>,
    /// What failed. Then nothing else is known.
    pub error: Option<Error>,
}

/// Whether a call waits for what another has armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// At least three of four right after are longer by half a tick than the usual one later, and longer than three of
    /// four of these. With the median of that.
    Waits(Duration),
    /// At least three of four are not longer by half a tick.
    DoesNot,
    /// Neither: the host was too busy to tell. With the median.
    Unclear(Duration),
    /// It was not measured, or too little.
    Unknown,
}

impl Verdict {
    /// The fewest samples that say anything.
    pub const FEWEST: usize = 3;
}

impl Pair {
    /// Nothing measured yet.
    pub fn new(after: Call, call: Call) -> Self {
        Self { after, call, at_once: Vec::new(), later: Vec::new(), error: None }
    }

    /// What the samples say, where a tick lasts so long.
    pub fn verdict(&self, tick: Duration) -> Verdict {
        let fewest = self.at_once.len().min(self.later.len());
        if self.error.is_some() || fewest < Verdict::FEWEST {
            return Verdict::Unknown;
        }
        let half = nanoseconds(tick / 2);
        let (at_once, later) = (Sorted::of(&self.at_once), Sorted::of(&self.later));
        let usual = later.at(2);
        let excess = Duration::from_nanos(at_once.at(2).saturating_sub(usual));
        if at_once.at(1) > usual + half && at_once.at(1) > later.at(3) {
            Verdict::Waits(excess)
        } else if at_once.at(3) <= usual + half {
            Verdict::DoesNot
        } else {
            Verdict::Unclear(excess)
        }
    }

    /// Whether more samples would hardly say anything else: all are on the same side, or, of more than a few, most.
    pub(super) fn is_settled(&self, tick: Duration) -> bool {
        let verdict = self.verdict(tick);
        if self.at_once.len().min(self.later.len()) > Self::FEW {
            return !matches!(verdict, Verdict::Unclear(_));
        }
        let (at_once, later) = (Sorted::of(&self.at_once), Sorted::of(&self.later));
        let bound = later.at(2) + nanoseconds(tick / 2);
        match verdict {
            Verdict::Waits(_) => at_once.at(0) > bound.max(later.at(4)),
            Verdict::DoesNot => at_once.at(4) <= bound,
            Verdict::Unclear(_) | Verdict::Unknown => false,
        }
    }

    /// Samples of which all have to be on the same side.
    const FEW: usize = 6;
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// Samples in order of size.
struct Sorted(Vec<u64>);

impl Sorted {
    fn of(samples: &[u64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        Self(sorted)
    }

    /// The quartile of this number: 0 is the least, 2 the median, 4 the most. Nearest rank: a sample that was taken.
    fn at(&self, quartile: usize) -> u64 {
        let rank = (self.0.len() * quartile).div_ceil(4).max(1);
        self.0.get(rank - 1).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(4);

    fn pair(at_once: &[u64], later: &[u64]) -> Pair {
        let micros = |samples: &[u64]| samples.iter().map(|us| us * 1000).collect();
        let pair = Pair::new(Call::IrqchipFull, Call::MemslotAdd);
        Pair { at_once: micros(at_once), later: micros(later), ..pair }
    }

    #[test]
    fn a_call_that_takes_a_tick_longer_than_the_same_call_later_waits() {
        let waits = pair(&[4100, 7900, 6000, 5200, 6600], &[40, 50, 45, 60, 55]);
        assert_eq!(waits.verdict(TICK), Verdict::Waits(Duration::from_micros(5950)));
        assert!(waits.is_settled(TICK));
    }

    #[test]
    fn a_call_that_is_always_slow_does_not_wait_for_the_one_before() {
        let slow = pair(&[16_000, 16_500, 15_900, 16_200], &[16_100, 16_300, 15_800, 16_400]);
        assert_eq!(slow.verdict(TICK), Verdict::DoesNot);
    }

    #[test]
    fn one_that_was_disturbed_once_is_told_from_one_that_waits() {
        let disturbed = pair(&[40, 50, 9000, 45, 60], &[40, 50, 45, 60, 55]);
        assert_eq!(disturbed.verdict(TICK), Verdict::DoesNot);
        assert!(!disturbed.is_settled(TICK));
        let both = pair(&[9000, 8000, 9000, 7000, 60], &[40, 9500, 45, 9600, 9700]);
        assert!(matches!(both.verdict(TICK), Verdict::DoesNot | Verdict::Unclear(_)));
    }

    #[test]
    fn half_of_them_is_not_enough_to_tell() {
        let half = pair(&[40, 9000, 45, 9100, 9200, 50], &[40, 50, 45, 60, 55, 50]);
        assert!(matches!(half.verdict(TICK), Verdict::Unclear(_)), "{:?}", half.verdict(TICK));
    }

    #[test]
    fn few_samples_and_failed_calls_say_nothing() {
        assert_eq!(pair(&[9000, 9000], &[40, 40, 40]).verdict(TICK), Verdict::Unknown);
        assert_eq!(pair(&[], &[]).verdict(TICK), Verdict::Unknown);
        let refused = Error::Call { call: "KVM_CREATE_IRQCHIP", errno: 1 };
        let failed = Pair { error: Some(refused), ..pair(&[9000; 5], &[40; 5]) };
        assert_eq!(failed.verdict(TICK), Verdict::Unknown);
    }
}
