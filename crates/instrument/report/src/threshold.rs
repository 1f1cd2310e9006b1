//! Bounds that a figure must keep: one grammar for every command.
//!
//! ```text
//! device-registration.kvm.first_memslot.p50 > 1ms
//! ratio > 1.1
//! ```
//!
//! On the left stand names, joined by dots, in this order, of which any but the last may be left out: experiment, backend,
//! variant, metric, statistic; or a counter in the place of metric and statistic. What is left out is any. The statistic
//! is `p50` where none is named. On the right stands a number: with `ns`, `us`, `ms` or `s` where times are meant.

use std::fmt;
use std::str::FromStr;

use mayfly_record::{BASELINE, Backend, Record, ResultRow, Summary, Unit, units};

use crate::value::whole;

/// A bound: what is on its wrong side is a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    names: String,
    comparison: Comparison,
    bound: Bound,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// In nanoseconds.
    Time(f64),
    Number(f64),
}

/// A threshold that cannot be read, or names nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// It is no comparison.
    #[error("'{0}' is no threshold; one reads: NAMES > NUMBER, where > may be >=, < or <=")]
    NoComparison(String),
    /// What is on the right is no number.
    #[error("'{number}' in '{threshold}' is no number; one reads: 1.1, 250ns, 30us, 1.5ms, 2s")]
    NoNumber {
        /// What stands there.
        number: String,
        /// Where.
        threshold: String,
    },
    /// It names nothing that there is.
    #[error(
        "'{names}' names nothing here; names are EXPERIMENT.BACKEND.VARIANT.METRIC.STATISTIC, any of them left out; statistics: {}",
        STATISTICS.join(", ")
    )]
    NamesNothing {
        /// What stands on the left.
        names: String,
    },
    /// Two records are compared by their ratio alone.
    #[error(
        "'{0}' holds no ratio against a bound; for two records that is all there is: 'ratio > 1.1', 'destroy > 1.1'"
    )]
    NoRatio(String),
    /// A time is held against a number, or the other way round.
    #[error("'{threshold}': {what} {wants}")]
    WrongUnit {
        /// The threshold.
        threshold: String,
        /// What it names.
        what: String,
        /// What that needs.
        wants: &'static str,
    },
}

/// What may be asked of a metric, beside the default, which is `p50`.
const STATISTICS: [&str; 8] = ["p50", "min", "max", "mean", "p90", "p99", "n", "ratio"];

/// What of a metric is meant.
struct Named {
    statistic: &'static str,
    /// Whether the metric is named, and not just any.
    is_metric: bool,
}

/// A figure that is on the wrong side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What it is, and how much, in one line.
    pub what: String,
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let no_comparison = || ThresholdError::NoComparison(text.to_owned());
        let at = text.find(['<', '>']).ok_or_else(no_comparison)?;
        let (names, rest) = text.split_at(at);
        let (comparison, number) = [
            (">=", Comparison::AtLeast),
            ("<=", Comparison::AtMost),
            (">", Comparison::Above),
            ("<", Comparison::Below),
        ]
        .into_iter()
        .find_map(|(sign, comparison)| Some((comparison, rest.strip_prefix(sign)?)))
        .ok_or_else(no_comparison)?;
        let (names, number) = (names.trim(), number.trim());
        if names.is_empty() {
            return Err(no_comparison());
        }
        let bound = Bound::parse(number).ok_or_else(|| ThresholdError::NoNumber {
            number: number.to_owned(),
            threshold: text.to_owned(),
        })?;
        Ok(Self { names: names.to_owned(), comparison, bound, text: text.trim().to_owned() })
    }
}

impl Bound {
    fn parse(text: &str) -> Option<Self> {
        let scaled = |unit: &str, scale: f64| {
            Some(Self::Time(number(text.strip_suffix(unit)?.trim_end())? * scale))
        };
        // Those that end in an s before it.
        scaled("ns", 1.0)
            .or_else(|| scaled("us", 1e3))
            .or_else(|| scaled("ms", 1e6))
            .or_else(|| scaled("s", 1e9))
            .or_else(|| Some(Self::Number(number(text)?)))
    }
}

/// A finite number in digits; Rust's own parser knows `inf` and `nan`, too.
fn number(text: &str) -> Option<f64> {
    let is_plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.parse().ok().filter(|number: &f64| is_plain && number.is_finite())
}

impl Threshold {
    /// Whether a metric of an experiment's variant can be meant, which is a time or a count. What is no metric of any
    /// experiment may still be a counter, which nothing declares before it has run.
    ///
    /// # Errors
    ///
    /// It is named, and held against what it is not measured in.
    pub fn may_name(
        &self,
        experiment: &str,
        backend: Backend,
        variant: &str,
        (metric, is_time): (&str, bool),
    ) -> Result<bool, ThresholdError> {
        let names = [experiment, backend.name(), variant];
        let Some(Named { statistic, is_metric }) = self.named(&names, metric, "p50") else {
            return Ok(false);
        };
        let figure = match statistic {
            "ratio" => Figure::Ratio(1.0),
            "n" => Figure::Number(1.0),
            _ if is_time => Figure::Time(1.0),
            _ => Figure::Number(1.0),
        };
        if is_metric {
            let what = format!("{}.{metric}.{statistic}", names.join("."));
            self.is_wrong(&what, figure).map(|_| true)
        } else {
            Ok(self.is_of_kind(figure))
        }
    }

    /// Whether a counter is named that is known before it is counted.
    ///
    /// # Errors
    ///
    /// It is named, and held against a time.
    pub fn may_name_the_counter(
        &self,
        experiment: &str,
        backend: Backend,
        variant: &str,
        counter: &str,
    ) -> Result<bool, ThresholdError> {
        let names = [experiment, backend.name(), variant];
        if !self.is_named(&names, counter) {
            return Ok(false);
        }
        let what = format!("{}.{counter}", names.join("."));
        self.is_wrong(&what, Figure::Number(0.0)).map(|_| true)
    }

    /// Whether a counter can be meant that nobody knows beforehand: it is a number and has no statistic.
    pub fn may_name_a_counter(&self) -> bool {
        let last = self.names.rsplit('.').next().unwrap_or_default();
        !STATISTICS.contains(&last) && matches!(self.bound, Bound::Number(_))
    }

    /// What of `record` is on the wrong side.
    ///
    /// # Errors
    ///
    /// It names nothing in the record, or what it names is measured otherwise.
    pub fn violations(&self, record: &Record) -> Result<Vec<Violation>, ThresholdError> {
        let mut named = false;
        let mut violations = Vec::new();
        for row in &record.results {
            for (what, figure) in self.figures(record, row) {
                named = true;
                if self.is_wrong(&what, figure)? {
                    violations.push(Violation { what: format!("{what} is {figure}") });
                }
            }
        }
        if named { Ok(violations) } else { Err(self.names_nothing()) }
    }

    /// The error that it names nothing.
    pub fn names_nothing(&self) -> ThresholdError {
        ThresholdError::NamesNothing { names: self.names.clone() }
    }

    /// Whether a ratio of two records' figures is meant, and is on the wrong side.
    ///
    /// # Errors
    ///
    /// It is meant, and held against a time.
    pub fn is_ratio_wrong(
        &self,
        row: &ResultRow,
        metric: &str,
        ratio: f64,
    ) -> Result<Option<bool>, ThresholdError> {
        let names = [row.experiment.as_str(), row.backend.name(), row.variant.as_str()];
        match self.named(&names, metric, "ratio") {
            None => Ok(None),
            Some(Named { statistic: "ratio", .. }) => {
                self.is_wrong(&self.names, Figure::Ratio(ratio)).map(Some)
            }
            Some(_) => Err(ThresholdError::NoRatio(self.text.clone())),
        }
    }

    /// Whether it is what is too small that is on the wrong side.
    pub fn is_about_too_little(&self) -> bool {
        matches!(self.comparison, Comparison::Below | Comparison::AtMost)
    }

    /// What it names of a row, each with its figure.
    fn figures(&self, record: &Record, row: &ResultRow) -> Vec<(String, Figure)> {
        let names = [row.experiment.as_str(), row.backend.name(), row.variant.as_str()];
        let path = |end: &str| format!("{}.{end}", names.join("."));
        let mut figures = Vec::new();
        for (metric, summary) in &row.metrics {
            let Some(Named { statistic, is_metric }) = self.named(&names, metric, "p50") else {
                continue;
            };
            let figure = Figure::of(record, row, metric, summary, statistic);
            // Of any metric those are meant that are held against what they are measured in.
            let figure = figure.filter(|figure| is_metric || self.is_of_kind(*figure));
            figures.extend(figure.map(|figure| (path(&format!("{metric}.{statistic}")), figure)));
        }
        for (counter, count) in &row.counters {
            if self.is_named(&names, counter) {
                figures.push((path(counter), Figure::Number(*count as f64)));
            }
        }
        figures
    }

    /// Whether a metric of the variant that `names` lead to is named; `default` is the statistic where none is.
    fn named(&self, names: &[&str; 3], metric: &str, default: &'static str) -> Option<Named> {
        let is_whole = |one: &&str| self.is_named(names, &format!("{metric}.{one}"));
        let statistic = |is_it: &dyn Fn(&&str) -> bool| STATISTICS.into_iter().find(|s| is_it(s));
        let of_metric = statistic(&is_whole).or(self.is_named(names, metric).then_some(default));
        let of_any = || statistic(&|statistic| self.is_named(names, statistic));
        let left_out = || self.is_some_of(names).then_some(default);
        let found = |is_metric| move |statistic| Named { statistic, is_metric };
        of_metric.map(found(true)).or_else(|| of_any().or_else(left_out).map(found(false)))
    }

    /// Whether the names on the left are some of `names`, in order, and then `end`.
    fn is_named(&self, names: &[&str; 3], end: &str) -> bool {
        self.is_path(names, Some(end))
    }

    /// Whether they are some of `names`, in order, and nothing else.
    fn is_some_of(&self, names: &[&str; 3]) -> bool {
        self.is_path(names, None)
    }

    fn is_path(&self, names: &[&str; 3], end: Option<&str>) -> bool {
        (0..1 << names.len()).any(|taken: u32| {
            let some = names.iter().enumerate().filter(|(number, _)| taken & 1 << number != 0);
            let path: Vec<&str> = some.map(|(_, name)| *name).chain(end).collect();
            path.join(".") == self.names
        })
    }

    /// Whether the bound is in what a figure is in.
    fn is_of_kind(&self, figure: Figure) -> bool {
        matches!(figure, Figure::Time(_)) == matches!(self.bound, Bound::Time(_))
    }

    fn is_wrong(&self, what: &str, figure: Figure) -> Result<bool, ThresholdError> {
        let wrong_unit = |wants| ThresholdError::WrongUnit {
            threshold: self.text.clone(),
            what: what.to_owned(),
            wants,
        };
        let (number, bound) = match (figure, self.bound) {
            (Figure::Time(time), Bound::Time(bound)) => (time, bound),
            (Figure::Number(number) | Figure::Ratio(number), Bound::Number(bound)) => {
                (number, bound)
            }
            (Figure::Time(_), Bound::Number(_)) => {
                return Err(wrong_unit("is a time: say ns, us, ms or s"));
            }
            (_, Bound::Time(_)) => return Err(wrong_unit("is no time: say a number alone")),
        };
        Ok(match self.comparison {
            Comparison::Above => number > bound,
            Comparison::AtLeast => number >= bound,
            Comparison::Below => number < bound,
            Comparison::AtMost => number <= bound,
        })
    }
}

/// A figure of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    /// In nanoseconds.
    Time(f64),
    Number(f64),
    Ratio(f64),
}

impl Figure {
    fn of(
        record: &Record,
        row: &ResultRow,
        metric: &str,
        summary: &Summary,
        statistic: &str,
    ) -> Option<Self> {
        let number = match statistic {
            "ratio" => return ratio(record, row, metric, summary).map(Self::Ratio),
            "n" => return Some(Self::Number(summary.count as f64)),
            "mean" => summary.mean,
            "min" => summary.min as f64,
            "max" => summary.max as f64,
            "p90" => summary.p90? as f64,
            "p99" => summary.p99? as f64,
            _ => summary.p50 as f64,
        };
        let is_time = summary.unit == Unit::Nanoseconds;
        Some(if is_time { Self::Time(number) } else { Self::Number(number) })
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(ns) => f.write_str(&units::duration(whole(*ns))),
            Self::Number(number) => write!(f, "{number}"),
            Self::Ratio(times) => f.write_str(&units::ratio(*times)),
        }
    }
}

/// How many times Mayfly's median a row's is, where the two may be set in relation.
fn ratio(record: &Record, row: &ResultRow, metric: &str, summary: &Summary) -> Option<f64> {
    let is_beside = |other: &&ResultRow| {
        other.variant == BASELINE
            && (&other.experiment, other.backend, &other.params)
                == (&row.experiment, row.backend, &row.params)
    };
    let baseline = record.results.iter().find(is_beside)?.metrics.get(metric)?;
    let may = !row.uncompared.contains(metric) && baseline.p50 > 0 && baseline.unit == summary.unit;
    may.then(|| summary.p50 as f64 / baseline.p50 as f64)
}

#[cfg(test)]
mod tests {
    use mayfly_record::{Host, Samples};
    use proptest::prelude::*;

    use super::*;

    fn record() -> Record {
        let row = |backend, variant: &str, ns: u64| {
            let mut samples = Samples::default();
            samples.record_ns(ns);
            ResultRow::new("device-registration", backend, variant)
                .metric("first_memslot", &samples)
                .metric("faults", &Samples::of(Unit::Count, [7]))
                .counter("grace_periods", 3)
        };
        let rows = vec![
            row(Backend::Machine, "mayfly", 2_000),
            row(Backend::Machine, "arm64-v6.18", 3_000),
            row(Backend::Kvm, "kernel", 6_130_000),
        ];
        Record::new(Host::default(), rows)
    }

    fn wrong(threshold: &str) -> Result<Vec<String>, String> {
        let threshold: Threshold = threshold.parse().map_err(|e: ThresholdError| e.to_string())?;
        let violations = threshold.violations(&record()).map_err(|error| error.to_string())?;
        Ok(violations.into_iter().map(|violation| violation.what).collect())
    }

    #[test]
    fn what_is_on_the_wrong_side_is_named_with_its_figure() {
        let kvm = "device-registration.kvm.kernel.first_memslot.p50 is 6.13 ms";
        assert_eq!(wrong("device-registration.kvm.first_memslot.p50 > 1ms").unwrap(), [kvm]);
        assert_eq!(wrong("first_memslot>=6.13ms").unwrap(), [kvm]);
        assert_eq!(wrong("kvm.first_memslot.max > 7 ms").unwrap(), [""; 0]);
        assert_eq!(wrong("p50 < 3us").unwrap().len(), 1, "of what is a time");
        assert_eq!(wrong("kvm > 1ms").unwrap(), [kvm]);
        assert_eq!(wrong("device-registration > 1ms").unwrap(), [kvm]);
        assert_eq!(wrong("first_memslot.p50 < 3us").unwrap().len(), 1);
        assert_eq!(wrong("machine.grace_periods > 2").unwrap().len(), 2);
        assert_eq!(wrong("faults.n < 2").unwrap().len(), 3);
    }

    #[test]
    fn names_with_dots_are_names() {
        let said = wrong("arm64-v6.18.first_memslot.p50 > 1us").unwrap();
        assert_eq!(said, ["device-registration.machine.arm64-v6.18.first_memslot.p50 is 3.00 us"]);
    }

    #[test]
    fn a_ratio_is_to_mayfly_on_the_same_backend() {
        let said = wrong("ratio > 1.1").unwrap();
        assert_eq!(said, ["device-registration.machine.arm64-v6.18.first_memslot.ratio is 1.50x"]);
        assert_eq!(
            wrong("kvm.first_memslot.ratio > 1").unwrap_err().split_once(" names nothing"),
            Some((
                "'kvm.first_memslot.ratio'",
                " here; names are EXPERIMENT.BACKEND.VARIANT.METRIC.STATISTIC, any of them left out; statistics: p50, min, max, mean, p90, p99, n, ratio"
            ))
        );
    }

    #[test]
    fn what_cannot_be_read_or_names_nothing_is_one_line() {
        for (threshold, said) in [
            ("first_memslot", "is no threshold"),
            ("> 1ms", "is no threshold"),
            ("first_memslot > fast", "'fast' in 'first_memslot > fast' is no number"),
            ("first_memslot > nan", "is no number"),
            ("first_memslot > -1ms", "is no number"),
            ("first_memslot > infms", "is no number"),
            ("first_memslot > 1", "is a time"),
            ("first_memslt.p50 > 1ms", "names nothing"),
            ("kvm.mayfly.first_memslot > 1ms", "names nothing"),
            ("first_memslot.kvm > 1ms", "names nothing"),
        ] {
            let error = wrong(threshold).unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{threshold}: {error}");
        }
    }

    #[test]
    fn what_may_be_meant_is_known_before_it_is_measured() {
        let may = |text: &str| {
            let threshold: Threshold = text.parse().unwrap();
            let destroy = ("destroy", true);
            threshold.may_name("teardown", Backend::Machine, "mayfly", destroy).unwrap()
        };
        assert!(may("teardown.destroy.p99 > 1ms") && may("ratio > 2") && may("destroy > 1s"));
        assert!(may("teardown > 1ms") && may("machine.mayfly.max > 1ms"));
        assert!(!may("slot-delete.destroy > 1ms") && !may("destroyed.p50 > 1ms"));
        assert!(!may("teardown > 1") && !may("machine.p50 > 1") && may("teardown.n > 1"));
        let wrong = |text: &str, is_time| {
            let threshold: Threshold = text.parse().unwrap();
            let of = ("destroy", is_time);
            let may = threshold.may_name("teardown", Backend::Machine, "mayfly", of);
            may.unwrap_err().to_string()
        };
        assert!(
            wrong("destroy > 1", true).contains("teardown.machine.mayfly.destroy.p50 is a time")
        );
        assert!(wrong("destroy.n > 1ms", true).contains("is no time"));
        assert!(wrong("destroy > 1ms", false).contains("is no time"));
        let counter = |text: &str| text.parse::<Threshold>().unwrap().may_name_a_counter();
        assert!(counter("teardown.tlbi_vmid > 3"));
        assert!(!counter("tlbi_vmid > 3s") && !counter("tlbi_vmid.p50 > 3"));
    }

    #[test]
    fn a_counter_that_is_known_beforehand_is_named_whole_and_as_a_number() {
        let may = |text: &str| {
            let threshold: Threshold = text.parse().unwrap();
            threshold.may_name_the_counter("doctor", Backend::Kvm, "found", "waits")
        };
        for named in ["waits > 0", "found.waits >= 3", "doctor.kvm.found.waits < 1"] {
            assert_eq!(may(named), Ok(true), "{named}");
        }
        for other in ["wait > 0", "waits.p50 > 0", "machine.waits > 0", "found > 0", "n > 0"] {
            assert_eq!(may(other), Ok(false), "{other}");
        }
        let said = may("waits > 1ms").unwrap_err().to_string();
        assert!(said.contains("doctor.kvm.found.waits is no time"), "{said}");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            if let Ok(threshold) = text.parse::<Threshold>() {
                let _ = threshold.violations(&record());
            }
        }
    }
}
