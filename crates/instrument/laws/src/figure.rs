//! The figures of a law that a bound may be about.

use std::fmt;
use std::str::FromStr;

use crate::document::Document;
use crate::kernel::Failed;
use crate::law::Law;
use crate::pair::Pair;
use crate::series::Series;
use crate::text::things;

/// A figure's name: `create-vm/mappings.at(10000)`, or `close-vm/slots.work.exponent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    pair: Pair,
    /// Of the law of its processor time.
    of_work: bool,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The time at a number, in nanoseconds.
    At(u64),
    /// The power with which the call grows at the last number that was measured.
    Exponent,
    /// How many times as long the longest call takes as the shortest.
    Growth,
}

impl What {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "exponent" => Some(Self::Exponent),
            "growth" => Some(Self::Growth),
            _ => {
                let number = text.strip_prefix("at(")?.strip_suffix(')')?;
                let is_plain = number.chars().all(|c| c.is_ascii_digit());
                // No law is about none.
                number.parse().ok().filter(|n| is_plain && *n > 0).map(Self::At)
            }
        }
    }
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' names no figure of a law; write CALL/WHAT.at(NUMBER) with a number of 1 or more, CALL/WHAT.exponent or CALL/WHAT.growth, with .work before the last for processor time"
            )
        };
        let (pair, what) = text.split_once('.').ok_or_else(wrong)?;
        let (of_work, what) = match what.strip_prefix("work.") {
            Some(what) => (true, what),
            None => (false, what),
        };
        let what = What::parse(what).ok_or_else(wrong)?;
        Ok(Self { pair: pair.parse()?, of_work, what })
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = if self.of_work { ".work" } else { "" };
        write!(f, "{}{work}.", self.pair.name())?;
        match self.what {
            What::At(n) => write!(f, "at({n})"),
            What::Exponent => f.write_str("exponent"),
            What::Growth => f.write_str("growth"),
        }
    }
}

impl Figure {
    /// The pair whose law it is of.
    pub fn pair(&self) -> Pair {
        self.pair
    }

    /// Whether it is a time, and not a number.
    pub fn is_time(&self) -> bool {
        matches!(self.what, What::At(_))
    }

    /// It, of what was measured: nanoseconds, or a number.
    ///
    /// # Errors
    /// The pair was not measured, no law was found, or the law says nothing of the number.
    pub fn of(&self, document: &Document) -> Result<f64, Failed> {
        let failed = |why: &str| Failed(format!("{self}: {why}"));
        let entry = document.laws.iter().find(|entry| entry.pair == self.pair);
        let entry = entry.ok_or_else(|| failed("it was not measured"))?;
        if let Some(why) = &entry.skipped {
            return Err(failed(&format!("it was not measured: {why}")));
        }
        let law = if self.of_work { &entry.work } else { &entry.law };
        let law = law.as_ref().filter(|law| law.holds);
        let law = law.ok_or_else(|| failed("no law was found"))?;
        self.within(law, &entry.series).map_err(|why| failed(&why))
    }

    fn within(&self, law: &Law, series: &Series) -> Result<f64, String> {
        let (from, to) = series.range().ok_or("nothing was measured")?;
        let shown = |n: u64| things(n as f64, self.pair.dimension);
        match self.what {
            What::At(n) if !(from..=to).contains(&n) => Err(format!(
                "it was measured from {} to {}, and no law is about {}",
                shown(from),
                shown(to),
                shown(n)
            )),
            What::At(n) => law.shape.at(n as f64).ok_or_else(|| {
                format!(
                    "there is a step around {}, and between its sides nothing was measured",
                    shown(n)
                )
            }),
            What::Exponent => law
                .shape
                .exponent(to as f64)
                .ok_or_else(|| format!("the form {} has no exponent", law.shape.name())),
            What::Growth => Ok(law.shape.growth(series.points.iter().map(|point| point.n as f64))),
        }
    }
}
