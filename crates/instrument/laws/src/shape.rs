//! The forms that a law may have.

use serde::{Deserialize, Serialize};

/// How a time, in nanoseconds, depends on a number `n` of at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "shape", rename_all = "kebab-case")]
pub enum Shape {
    /// It does not.
    Constant {
        /// The time.
        base: f64,
    },
    /// `base + factor * ln(n)`
    Logarithm {
        /// The time at 1.
        base: f64,
        /// How much longer it takes each time that `n` has grown by a factor of e.
        factor: f64,
    },
    /// `base + factor * n`
    Linear {
        /// The time without any.
        base: f64,
        /// How much longer it takes for one more.
        factor: f64,
    },
    /// `base + factor * n * ln(n)`
    LogLinear {
        /// The time at 1.
        base: f64,
        /// What is multiplied by `n * ln(n)`.
        factor: f64,
    },
    /// `base + factor * n^exponent`
    Power {
        /// The time without any.
        base: f64,
        /// What the first adds.
        factor: f64,
        /// The exponent.
        exponent: f64,
    },
    /// `base`, and from `at` on `factor` more for each.
    Bend {
        /// The time up to `at`.
        base: f64,
        /// Where growth begins.
        at: f64,
        /// How much longer it takes for one more.
        factor: f64,
    },
    /// What is left until `end`, where `n` is microseconds that have passed; `base` at least.
    Wait {
        /// The time of a call that waits for nothing.
        base: f64,
        /// Nanoseconds from the registration to the moment that the call waits for.
        end: f64,
    },
    /// `before` up to a number between `last` and `first`, and `after` beyond it.
    Step {
        /// The time on this side of the step.
        before: f64,
        /// The last number that was measured on this side.
        last: f64,
        /// The first number that was measured on the other side.
        first: f64,
        /// The time on the other side.
        after: f64,
    },
}

/// A number that a law is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Constant {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) what: What,
}

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// In nanoseconds.
    Time,
    /// Of what grows, or an exponent.
    Number,
}

/// The whole number next to it; 0 for what is below.
#[expect(clippy::cast_sign_loss, reason = "the cast saturates at 0")]
pub(crate) fn whole(number: f64) -> u64 {
    number.round() as u64
}

/// Nanoseconds of a microsecond, in which an age is counted.
pub(crate) const AGE: f64 = 1000.0;

impl Shape {
    /// The wait for a moment that is so long after a registration. It is a form of calls against an age alone.
    pub(crate) const WAIT: Self = Self::Wait { base: 0.0, end: 0.0 };

    /// One of each form that a call may have against anything.
    pub(crate) const FORMS: [Self; 7] = [
        Self::Constant { base: 0.0 },
        Self::Logarithm { base: 0.0, factor: 0.0 },
        Self::Linear { base: 0.0, factor: 0.0 },
        Self::LogLinear { base: 0.0, factor: 0.0 },
        Self::Power { base: 0.0, factor: 0.0, exponent: 1.0 },
        Self::Bend { base: 0.0, at: 1.0, factor: 0.0 },
        Self::Step { before: 0.0, last: 1.0, first: 2.0, after: 0.0 },
    ];

    /// The time at `n`. Nothing, where the law says nothing of it: within a step.
    pub fn at(self, n: f64) -> Option<f64> {
        Some(match self {
            Self::Constant { base } => base,
            Self::Logarithm { base, factor } => base + factor * n.ln(),
            Self::Linear { base, factor } => base + factor * n,
            Self::LogLinear { base, factor } => base + factor * n * n.ln(),
            Self::Power { base, factor, exponent } => base + factor * n.powf(exponent),
            Self::Wait { base, end } => base.max(end - AGE * n),
            Self::Bend { base, at, factor } => base + factor * (n - at).max(0.0),
            Self::Step { before, last, .. } if n <= last => before,
            Self::Step { first, after, .. } if n >= first => after,
            Self::Step { .. } => return None,
        })
    }

    /// How many times as long the longest time is as the shortest, of those at these numbers.
    pub(crate) fn growth(self, numbers: impl Iterator<Item = f64>) -> f64 {
        let times = numbers.filter_map(|n| self.at(n));
        let (least, most) = times.fold((f64::INFINITY, 0.0_f64), |(least, most), time| {
            (least.min(time), most.max(time))
        });
        most / least.max(1.0)
    }

    /// The power of `n` with which the growing part of it grows at `n`, without what a call takes where there are none.
    /// Nothing, of a form that grows at one place alone.
    pub(crate) fn exponent(self, n: f64) -> Option<f64> {
        match self {
            Self::Constant { .. } => Some(0.0),
            Self::Logarithm { .. } => Some(1.0 / n.ln()),
            Self::Linear { .. } | Self::Bend { .. } => Some(1.0),
            Self::LogLinear { .. } => Some(1.0 + 1.0 / n.ln()),
            Self::Power { exponent, .. } => Some(exponent),
            Self::Wait { .. } | Self::Step { .. } => None,
        }
    }

    /// The numbers that it is made of, but for those at which something was measured.
    pub(crate) fn constants(self) -> Vec<Constant> {
        let time = |name, value| Constant { name, value, what: What::Time };
        let other = |name, value| Constant { name, value, what: What::Number };
        match self {
            Self::Constant { base } => vec![time("base", base)],
            Self::Logarithm { base, factor }
            | Self::Linear { base, factor }
            | Self::LogLinear { base, factor } => vec![time("base", base), time("factor", factor)],
            Self::Power { base, factor, exponent } => {
                vec![time("base", base), time("factor", factor), other("exponent", exponent)]
            }
            Self::Bend { base, at, factor } => {
                vec![time("base", base), other("at", at), time("factor", factor)]
            }
            Self::Wait { base, end } => vec![time("base", base), time("end", end)],
            Self::Step { before, after, .. } => vec![time("before", before), time("after", after)],
        }
    }

    /// How many numbers it is made of.
    pub(crate) const fn parameters(self) -> usize {
        match self {
            Self::Constant { .. } => 1,
            Self::Logarithm { .. }
            | Self::Linear { .. }
            | Self::LogLinear { .. }
            | Self::Wait { .. } => 2,
            Self::Power { .. } | Self::Bend { .. } | Self::Step { .. } => 3,
        }
    }

    /// Whether it may be the law of a call against an age. A call that comes later finds its caches colder, and takes longer
    /// for that, whatever was registered: so no growth is one.
    pub(crate) fn is_of_age(self) -> bool {
        match self {
            Self::Constant { .. } | Self::Wait { .. } => true,
            Self::Step { before, after, .. } => before > after,
            _ => false,
        }
    }

    /// How far the time at `n` is from `time`, in parts of it. Within a step, it is that of the side that is nearer.
    pub(crate) fn misses(self, n: f64, time: f64) -> f64 {
        let off = |at: f64| ((at - time) / time).abs();
        match (self.at(n), self) {
            (Some(at), _) => off(at),
            (None, Self::Step { before, after, .. }) => off(before).min(off(after)),
            (None, _) => 0.0,
        }
    }

    /// Whether both are of one form.
    pub fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// The first whole number from `from` to `to` from which on the time is at least `time`. Nothing, if it is less at `to`:
    /// where a form falls, it falls to its end.
    pub fn reaches(self, time: f64, from: u64, to: u64) -> Option<u64> {
        let has = |n: u64| self.at(n as f64).is_some_and(|at| at >= time);
        if !has(to) {
            return None;
        }
        if has(from) {
            return Some(from);
        }
        let (mut before, mut after) = (from, to);
        while after - before > 1 {
            let middle = before + (after - before) / 2;
            if has(middle) { after = middle } else { before = middle }
        }
        Some(after)
    }

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant { .. } => "constant",
            Self::Logarithm { .. } => "log n",
            Self::Linear { .. } => "linear",
            Self::LogLinear { .. } => "n log n",
            Self::Power { .. } => "power",
            Self::Bend { .. } => "bend",
            Self::Wait { .. } => "wait",
            Self::Step { .. } => "step",
        }
    }
}
