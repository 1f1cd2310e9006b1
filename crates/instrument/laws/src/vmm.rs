//! What the calls of a VMM take that runs, by what it has: a law says so, as far as it was measured.

use mayfly_record::units::{duration, grouped};
use serde::Serialize;

use crate::document::{Document, Entry};
use crate::law::Law;
use crate::pair::{Call, Dimension, Pair};
use crate::series::Series;
use crate::shape::{Shape, whole};
use crate::text::{filled, things};

/// What a VMM has, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vmm {
    /// Mappings of the process.
    pub mappings: Option<u64>,
    /// VMs of the process.
    pub vms: Option<u64>,
    /// vCPUs of its one VM. Of several VMs, nobody tells which vCPU is of which.
    pub vcpus: Option<u64>,
}

/// What is measured where there is no document: the calls that are known to grow on some kernel.
const QUICK: [(Call, Dimension); 7] = [
    (Call::CreateVm, Dimension::Mappings),
    (Call::CloseVm, Dimension::Mappings),
    (Call::AddSlot, Dimension::Mappings),
    (Call::CreateVm, Dimension::Vms),
    (Call::CloseVm, Dimension::Vms),
    (Call::CreateVcpu, Dimension::Vcpus),
    (Call::CloseVm, Dimension::Vcpus),
];

/// What grows, and is known of a VMM.
const KNOWN: [Dimension; 3] = [Dimension::Mappings, Dimension::Vms, Dimension::Vcpus];

/// A call takes more if it is this many times as long as with the first number: somebody would mind.
const MORE: f64 = 1.25;

impl Vmm {
    /// Of how many of what grows a law has to be asked. Nothing, if that is not known, or if there is none.
    fn number(&self, pair: Pair) -> Option<u64> {
        let known = match pair.dimension {
            Dimension::Mappings => self.mappings?,
            // One more is created beside those that are there; any other call is of one of them.
            Dimension::Vms if pair.call == Call::CreateVm => self.vms?,
            Dimension::Vms => self.vms?.saturating_sub(1),
            Dimension::Vcpus => self.vcpus?,
            _ => return None,
        };
        (known > 0).then_some(known)
    }

    /// The pairs that a quick measurement is of: those of which the VMM has more than one.
    pub fn pairs(&self) -> Vec<Pair> {
        let all = QUICK.map(|(call, dimension)| Pair { call, dimension });
        all.into_iter().filter(|pair| self.number(*pair).is_some_and(|n| n > 1)).collect()
    }

    /// What a document says of it: of each law that is about something that it has.
    pub fn answers(&self, document: &Document) -> Vec<Answer> {
        let of = |dimension| {
            let laws = document.laws.iter().filter(move |entry| entry.pair.dimension == dimension);
            laws.filter_map(|entry| Some(answer(entry, self.number(entry.pair)?)))
        };
        KNOWN.into_iter().flat_map(of).collect()
    }

    /// The same in words, in lines of `width` columns; the calls that nothing grows of only if `full`.
    pub fn told(&self, document: &Document, width: usize, full: bool) -> String {
        let answers = self.answers(document);
        let mut lines = Vec::new();
        for dimension in KNOWN {
            let of = || answers.iter().filter(|answer| answer.pair.dimension == dimension);
            lines.extend(of().filter_map(Answer::line));
            let same = of().filter(|answer| answer.said == Said::Same);
            let same: Vec<String> = same.map(|answer| called(answer.pair.call)).collect();
            if full && !same.is_empty() {
                lines.push(format!(
                    "That there are several {} makes no difference to {}.",
                    dimension.about(),
                    same.join(", ")
                ));
            }
        }
        if lines.is_empty() {
            lines.push("No call takes more by what it has, as far as laws were found.".to_owned());
        }
        lines.iter().map(|line| filled(width, "", line) + "\n").collect()
    }
}

/// What a law says of a VMM.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The call, and what grows.
    #[serde(flatten)]
    pub pair: Pair,
    /// How many of it there are.
    pub n: u64,
    /// What the law says.
    #[serde(flatten)]
    pub said: Said,
}

/// What a law says of a number. Times are in nanoseconds. Each is as the law gives it; the law predicts no better than within
/// a quarter.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Said {
    /// The call takes `at_ns`, which is more than the `few_ns` that it takes with `few`.
    Grows {
        /// With the number that there is.
        at_ns: u64,
        /// The first number that was measured.
        few: u64,
        /// What the call takes there, if the law says so.
        few_ns: Option<u64>,
    },
    /// There is a step between two numbers that were measured, and the number is between them.
    Step {
        /// Before the step.
        before_ns: u64,
        /// Behind it.
        after_ns: u64,
    },
    /// There are more than the `measured`, where the call takes `measured_ns`. Beyond that nothing is known.
    Beyond {
        /// The last number that was measured.
        measured: u64,
        /// What the call takes there.
        measured_ns: u64,
    },
    /// It takes no more than where there are few.
    Same,
    /// No law was found.
    NoLaw,
    /// It was not measured.
    NotMeasured {
        /// Why.
        why: String,
    },
}

impl Answer {
    /// A sentence, if it makes a difference or is not known.
    fn line(&self) -> Option<String> {
        let (call, dimension) = (called(self.pair.call), self.pair.dimension);
        let its = |n: u64| things(n as f64, dimension);
        Some(match &self.said {
            Said::Same => return None,
            Said::NotMeasured { why } => {
                format!("{call} was not measured against {}: {why}.", dimension.about())
            }
            Said::NoLaw => format!("Of {call} against {}, no law was found.", dimension.about()),
            Said::Beyond { measured, measured_ns } => format!(
                "{call} takes {} with {}. It has {}, and beyond what was measured nothing is known.",
                about(*measured_ns),
                its(*measured),
                grouped(self.n)
            ),
            Said::Grows { at_ns, few, few_ns } => format!(
                "With its {}, {call} takes about {} (with {}, {}).",
                its(self.n),
                about(*at_ns),
                its(*few),
                few_ns.map_or_else(|| "less".to_owned(), about)
            ),
            Said::Step { before_ns, after_ns } => format!(
                "With its {}, {call} takes about {} or {}: between these there is a step.",
                its(self.n),
                about(*before_ns),
                about(*after_ns)
            ),
        })
    }
}

/// What a call is called, where several are one of KVM's.
fn called(call: Call) -> String {
    match call {
        Call::CreateVm | Call::CreateVcpu => call.of_kvm().to_owned(),
        Call::CloseVm => "the close of a VM".to_owned(),
        _ => format!("{} ({})", call.of_kvm(), call.name()),
    }
}

fn answer(entry: &Entry, n: u64) -> Answer {
    Answer { pair: entry.pair, n, said: said(entry, n) }
}

fn said(entry: &Entry, n: u64) -> Said {
    if let Some(why) = &entry.skipped {
        return Said::NotMeasured { why: why.clone() };
    }
    let Some((law, (few, measured))) = found(entry.law.as_ref(), &entry.series) else {
        return Said::NoLaw;
    };
    let at = |n: u64| law.shape.at(n as f64);
    let grows = |to: Option<f64>| to.zip(at(few)).is_none_or(|(to, few)| to >= few * MORE);
    if n > measured {
        return match at(measured).filter(|time| grows(Some(*time))) {
            Some(time) => Said::Beyond { measured, measured_ns: whole(time) },
            None => Said::Same,
        };
    }
    match (at(n), law.shape) {
        (Some(time), _) if grows(Some(time)) => {
            Said::Grows { at_ns: whole(time), few, few_ns: at(few).map(whole) }
        }
        (None, Shape::Step { before, after, .. }) if after > before => {
            Said::Step { before_ns: whole(before), after_ns: whole(after) }
        }
        _ => Said::Same,
    }
}

fn found<'a>(law: Option<&'a Law>, series: &Series) -> Option<(&'a Law, (u64, u64))> {
    let law = law.filter(|law| law.holds)?;
    Some((law, series.range()?))
}

/// A time with two digits: a law predicts no better.
fn about(time: u64) -> String {
    let digits = time.checked_ilog10().unwrap_or(0);
    let unit = 10_u64.pow(digits.saturating_sub(1));
    let rounded = time.saturating_add(unit / 2) / unit * unit;
    mayfly_record::units::rounded(&duration(rounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_foretold_has_two_digits() {
        for (time, text) in [
            (0, "0 ns"),
            (7, "7 ns"),
            (377_123, "380 us"),
            (4_023_000, "4 ms"),
            (4_060_000, "4.1 ms"),
            (99_600_000, "100 ms"),
            (u64::MAX, "18000000000 s"),
        ] {
            assert_eq!(about(time), text, "{time}");
        }
    }
}
