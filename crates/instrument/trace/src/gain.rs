//! What a remedy gains, in the record: the program's calls as they were, and in the better order, side by side.

use std::fmt;

use mayfly_record::units::{duration, things};
use mayfly_record::{Samples, Unit};
use serde::{Deserialize, Serialize};

/// What a cause's remedy gains on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gain {
    /// The calls were replayed both ways.
    Measured(Measured),
    /// They were not, and this is why.
    NotMeasured(String),
}

/// A replay both ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// What the better way is, in a few words.
    pub otherwise: String,
    /// How often each way was replayed, in turns.
    pub rounds: u64,
    /// How long the wait itself was in the replay, in the recorded order; absent if it is no single call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
    /// Time in calls from the VM's creation to its first entry.
    pub start: Change,
    /// Time in calls from the last exit to where the VM is closed, that included.
    pub close: Change,
    /// All of them, those between included.
    pub whole: Change,
    /// What that comes to.
    pub benefit: Benefit,
}

/// A time in nanoseconds, as recorded and in the better order: medians.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// In the recorded order.
    pub recorded: u64,
    /// In the better one.
    pub better: u64,
    /// The median of what a round's better way took less than its recorded one: negative, where it took more.
    pub saved: i64,
    /// Where that median lies with a chance of 95 %, by resampling whole rounds; absent where these are too few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[i64; 2]>,
}

/// What a change comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Benefit {
    /// All together takes less.
    Gain,
    /// What is saved in one place is paid in another.
    Moved,
    /// One place takes less, and of the whole that cannot be said.
    Unclear,
    /// Nothing takes less.
    None,
}

/// What of a program was replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// How many calls.
    pub calls: u64,
    /// What was not, a clause each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// What was replayed with something that was not recorded, a clause each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stands_in: Vec<String>,
}

/// Of what was not replayed so much is shown.
const SHOWN: usize = 8;

/// A change that is less than this share of the whole is none, in per cent; nor is one of fewer nanoseconds.
const LEAST: (u64, u64) = (2, 50_000);

impl Measured {
    /// What pairs of times come to, each as recorded and in the better order, a round each: start, close, and the whole.
    pub(crate) fn of(
        otherwise: String,
        wait: Option<u64>,
        [start, close, whole]: [&[(u64, u64)]; 3],
    ) -> Self {
        let rounds = whole.len() as u64;
        let [start, close, whole] = [start, close, whole].map(Change::of);
        let benefit = benefit(start, close, whole);
        Self { otherwise, rounds, wait, start, close, whole, benefit }
    }
}

/// Samples have no signs, and order is all that medians know: differences are counted from here.
const ZERO: u64 = 1 << 62;

impl Change {
    fn of(pairs: &[(u64, u64)]) -> Self {
        let (recorded, better): (Vec<u64>, Vec<u64>) = pairs.iter().copied().unzip();
        let saved: Vec<u64> = pairs
            .iter()
            .map(|(recorded, better)| (ZERO + recorded).saturating_sub(*better))
            .collect();
        let signed = |shifted: u64| shifted as i64 - ZERO as i64;
        let median = |times: &[u64]| summary(times).map_or(0, |summary| summary.p50);
        let summary = summary(&saved);
        Self {
            recorded: median(&recorded),
            better: median(&better),
            saved: summary.as_ref().map_or(0, |summary| signed(summary.p50)),
            interval: summary.and_then(|summary| summary.p50_interval).map(|ends| ends.map(signed)),
        }
    }

    fn is_less(&self, least: i64) -> bool {
        self.saved >= least && self.interval.is_some_and(|[low, _]| low > 0)
    }

    fn is_more(&self, least: i64) -> bool {
        self.saved <= -least && self.interval.is_some_and(|[_, high]| high < 0)
    }
}

/// Each time is a round of its own.
fn summary(times: &[u64]) -> Option<mayfly_record::Summary> {
    Samples::of_rounds(Unit::Nanoseconds, times.chunks(1)).summary()
}

fn benefit(start: Change, close: Change, whole: Change) -> Benefit {
    let least = (whole.recorded / 100 * LEAST.0).max(LEAST.1) as i64;
    let is_less = start.is_less(least) || close.is_less(least);
    let is_more = start.is_more(least) || close.is_more(least) || whole.is_more(least);
    match (is_less, is_more) {
        _ if whole.is_less(least) => Benefit::Gain,
        (true, true) => Benefit::Moved,
        (true, false) => Benefit::Unclear,
        (false, _) => Benefit::None,
    }
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMeasured(why) => write!(f, "no gain is claimed: {why}"),
            Self::Measured(measured) => measured.fmt(f),
        }
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "replayed to measure gains, in VMs of mayfly's own: {}",
            things(self.calls, "call")
        )?;
        if !self.stands_in.is_empty() {
            write!(f, "; replaced in the replay: {}", self.stands_in.join(", "))?;
        }
        let shown = self.left_out.len().min(SHOWN);
        write!(f, "; not replayed: {}", self.left_out[..shown].join(", "))?;
        match self.left_out.len() - shown {
            0 => Ok(()),
            more => {
                write!(f, ", and {}, which the record names", things(more as u64, "other kind"))
            }
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { otherwise, rounds, wait, start, close, whole, benefit } = self;
        match benefit {
            Benefit::Gain => write!(f, "gain: {}{}", time(whole.saved), within(*whole))?,
            Benefit::Moved => {
                write!(f, "no gain, since the time saved in one place is spent in another")?;
            }
            Benefit::Unclear => {
                write!(
                    f,
                    "no gain is claimed: the difference in total time is not clear{}",
                    within(*whole)
                )?;
            }
            Benefit::None => write!(f, "no gain")?,
        }
        write!(
            f,
            ", with {otherwise}: {}, {}, ",
            change("start", *start),
            change("close", *close)
        )?;
        write!(
            f,
            "{}; each order was replayed {}",
            change("together", *whole),
            things(*rounds, "time")
        )?;
        if let Some(wait) = wait {
            let wait = duration(*wait);
            write!(f, ", and the call itself took {wait} in the recorded order")?;
        }
        Ok(())
    }
}

fn change(name: &str, change: Change) -> String {
    format!("{name} {} -> {}", duration(change.recorded), duration(change.better))
}

fn within(change: Change) -> String {
    let ends = change.interval.map(|ends| ends.map(time));
    ends.map_or_else(String::new, |[low, high]| format!(" (95 % interval: {low} to {high})"))
}

/// A time with its sign.
fn time(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    format!("{sign}{}", duration(nanoseconds.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds in which the recorded way takes so long, and the better one so much less, give or take.
    fn rounds(recorded: u64, saved: i64, spread: u64) -> Vec<(u64, u64)> {
        let better = recorded.strict_sub_signed(saved);
        (0..15).map(|round| (recorded + round % 3 * spread, better + round % 5 * spread)).collect()
    }

    fn sum(one: &[(u64, u64)], other: &[(u64, u64)]) -> Vec<(u64, u64)> {
        one.iter().zip(other).map(|(one, other)| (one.0 + other.0, one.1 + other.1)).collect()
    }

    fn measured(start: &[(u64, u64)], close: &[(u64, u64)]) -> Measured {
        Measured::of("memory first".into(), Some(9), [start, close, &sum(start, close)])
    }

    #[test]
    fn what_the_start_saves_is_a_gain_where_the_close_does_not_pay_for_it() {
        let found = measured(&rounds(12_000_000, 9_000_000, 10_000), &rounds(5_000_000, 0, 10_000));
        assert_eq!((found.benefit, found.rounds), (Benefit::Gain, 15));
        let [low, high] = found.whole.interval.unwrap();
        assert!(low <= found.whole.saved && found.whole.saved <= high);
        assert!((8_900_000..=9_100_000).contains(&found.whole.saved), "{found:?}");
        let text = Gain::Measured(found).to_string();
        assert!(text.starts_with("gain: 9.0") || text.starts_with("gain: 8.9"), "{text}");
        assert!(text.contains("start 12.0 ms -> 3.0"), "{text}");
    }

    #[test]
    fn what_is_saved_at_the_start_and_paid_at_the_close_is_no_gain() {
        let start = rounds(12_000_000, 5_000_000, 10_000);
        let found = measured(&start, &rounds(16_000_000, -5_000_000, 10_000));
        assert_eq!(found.benefit, Benefit::Moved);
        assert!(Gain::Measured(found).to_string().starts_with("no gain, since the time saved"));
        assert_eq!(
            measured(&start, &rounds(16_000_000, -9_000_000, 10_000)).benefit,
            Benefit::Moved
        );
    }

    #[test]
    fn what_chance_may_have_made_is_not_claimed() {
        // The close differs from round to round by more than the start saves.
        let start = rounds(3_000_000, 500_000, 1_000);
        let close: Vec<(u64, u64)> = (0..15u64)
            .map(|round| {
                (8_000_000 + round * 7 % 15 * 400_000, 8_000_000 + round * 4 % 15 * 400_000)
            })
            .collect();
        let found = measured(&start, &close);
        assert_eq!(found.benefit, Benefit::Unclear, "{found:?}");
        assert!(Gain::Measured(found).to_string().starts_with("no gain is claimed"));
        // A difference that is sure, and worth nothing.
        let small = measured(&rounds(9_000_000, 30_000, 100), &rounds(9_000_000, 0, 100));
        assert_eq!(small.benefit, Benefit::None);
        // More time is none either.
        let worse = measured(&rounds(9_000_000, -3_000_000, 100), &rounds(9_000_000, 0, 100));
        assert_eq!((worse.benefit, worse.whole.saved < 0), (Benefit::None, true));
    }

    #[test]
    fn of_too_few_rounds_nothing_is_claimed() {
        let found =
            measured(&rounds(12_000_000, 9_000_000, 10)[..5], &rounds(5_000_000, 0, 10)[..5]);
        assert_eq!((found.benefit, found.whole.interval), (Benefit::None, None));
    }
}
