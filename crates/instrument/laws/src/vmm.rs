//! What the calls of a VMM take that runs, by what it has: a law says so, as far as it was measured.

use mayfly_record::units::{duration, grouped};

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

    /// What a document says of it, in lines of `width` columns; the calls that nothing grows of only if `full`.
    pub fn told(&self, document: &Document, width: usize, full: bool) -> String {
        let mut text = String::new();
        for dimension in KNOWN {
            let laws = document.laws.iter().filter(|entry| entry.pair.dimension == dimension);
            let mut same = Vec::new();
            for entry in laws {
                let Some(n) = self.number(entry.pair) else { continue };
                match said(entry, n) {
                    Said::Line(line) => text.push_str(&(filled(width, "", &line) + "\n")),
                    Said::Same => same.push(called(entry.pair.call)),
                }
            }
            if full && !same.is_empty() {
                let line = format!(
                    "That there are several {} makes no difference to {}.",
                    dimension.about(),
                    same.join(", ")
                );
                text.push_str(&(filled(width, "", &line) + "\n"));
            }
        }
        if text.is_empty() {
            let line = "No call takes more by what it has, as far as laws were found.";
            text = filled(width, "", line) + "\n";
        }
        text
    }
}

/// What is said of a call.
enum Said {
    Line(String),
    /// It takes no more than where there are few.
    Same,
}

/// What a call is called, where several are one of KVM's.
fn called(call: Call) -> String {
    match call {
        Call::CreateVm | Call::CreateVcpu => call.of_kvm().to_owned(),
        Call::CloseVm => "the close of a VM".to_owned(),
        _ => format!("{} ({})", call.of_kvm(), call.name()),
    }
}

fn said(entry: &Entry, n: u64) -> Said {
    let (call, dimension) = (called(entry.pair.call), entry.pair.dimension);
    let its = |n: u64| things(n as f64, dimension);
    if let Some(why) = &entry.skipped {
        return Said::Line(format!(
            "{call} was not measured against {}: {why}.",
            dimension.about()
        ));
    }
    let Some((law, (from, to))) = found(entry.law.as_ref(), &entry.series) else {
        return Said::Line(format!("Of {call} against {}, no law was found.", dimension.about()));
    };
    let at = |n: u64| law.shape.at(n as f64);
    let grows = |to: Option<f64>| to.zip(at(from)).is_none_or(|(to, from)| to >= from * MORE);
    if n > to {
        return match at(to).filter(|time| grows(Some(*time))) {
            Some(time) => Said::Line(format!(
                "{call} takes {} with {}. It has {}, and beyond what was measured nothing is known.",
                about(time),
                its(to),
                grouped(n)
            )),
            None => Said::Same,
        };
    }
    match (at(n), law.shape) {
        (Some(time), _) if grows(Some(time)) => Said::Line(format!(
            "With its {}, {call} takes about {} (with {}, {}).",
            its(n),
            about(time),
            its(from),
            at(from).map_or_else(|| "less".to_owned(), about)
        )),
        (None, Shape::Step { before, after, .. }) if after > before => Said::Line(format!(
            "With its {}, {call} takes about {} or {}: between these there is a step.",
            its(n),
            about(before),
            about(after)
        )),
        _ => Said::Same,
    }
}

fn found<'a>(law: Option<&'a Law>, series: &Series) -> Option<(&'a Law, (u64, u64))> {
    let law = law.filter(|law| law.holds)?;
    Some((law, series.range()?))
}

/// A time with two digits: a law predicts no better.
fn about(time: f64) -> String {
    let time = whole(time);
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
            (0.0, "0 ns"),
            (7.0, "7 ns"),
            (377_123.0, "380 us"),
            (4_023_000.0, "4 ms"),
            (4_060_000.0, "4.1 ms"),
            (99_600_000.0, "100 ms"),
            (1e300, "18000000000 s"),
        ] {
            assert_eq!(about(time), text, "{time}");
        }
    }
}
