//! Finds figures in the rows of a record.

use mayfly_record::{BASELINE, Backend, ResultRow, Summary, units};
use serde_json::Value;

use crate::experiment::Variant;

/// Some rows of a record.
#[derive(Clone)]
pub(crate) struct Rows<'a>(Vec<&'a ResultRow>);

impl<'a> Rows<'a> {
    pub(crate) fn of(rows: &'a [ResultRow]) -> Self {
        Self(rows.iter().collect())
    }

    /// Those of a variant on the software machine.
    pub(crate) fn machine(&self, variant: &str) -> Self {
        self.those(|row| row.backend == Backend::Machine && row.variant == variant)
    }

    /// Mayfly's.
    pub(crate) fn mayfly(&self) -> Self {
        self.machine(BASELINE)
    }

    /// Those of the running kernel, but for those that were skipped.
    pub(crate) fn kvm(&self) -> Self {
        self.on_kvm(Variant::KERNEL.name)
    }

    /// Those of a variant on the running kernel, but for those that were skipped.
    pub(crate) fn on_kvm(&self, variant: &str) -> Self {
        self.those(|row| {
            row.backend == Backend::Kvm && row.variant == variant && row.skipped.is_none()
        })
    }

    /// Why those of the running kernel were skipped, the first of them.
    pub(crate) fn kvm_skipped(&self) -> Option<&'a str> {
        let of_kvm = |row: &&&ResultRow| row.backend == Backend::Kvm;
        self.0.iter().filter(of_kvm).find_map(|row| row.skipped.as_deref())
    }

    /// Says so where those of the running kernel were skipped.
    pub(crate) fn kvm_not_measured(&self) -> Option<String> {
        self.kvm_skipped().map(|why| format!("This host's KVM was not measured: {why}."))
    }

    /// Those that ran with a parameter.
    pub(crate) fn with(&self, param: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        self.those(|row| row.params.get(param) == Some(&value))
    }

    /// What the first of them ran with.
    pub(crate) fn param(&self, name: &str) -> Option<&'a Value> {
        self.0.first()?.params.get(name)
    }

    /// The largest number that a parameter has.
    pub(crate) fn largest(&self, param: &str) -> Option<u64> {
        self.0.iter().filter_map(|row| row.params.get(param)?.as_u64()).max()
    }

    /// Those with the largest number of a parameter, and that; 0 where there are none.
    pub(crate) fn most(&self, param: &str) -> (Self, u64) {
        let largest = self.largest(param).unwrap_or_default();
        (self.with(param, largest), largest)
    }

    /// The smallest number that a parameter has; 0 where there are none.
    pub(crate) fn least(&self, param: &str) -> u64 {
        self.0.iter().filter_map(|row| row.params.get(param)?.as_u64()).min().unwrap_or_default()
    }

    /// The median of a metric.
    pub(crate) fn p50(&self, metric: &str) -> Option<u64> {
        self.summary(metric).map(|summary| summary.p50)
    }

    /// The median of a metric in time, for a person.
    pub(crate) fn time(&self, metric: &str) -> Option<String> {
        self.p50(metric).map(units::duration)
    }

    pub(crate) fn counter(&self, name: &str) -> Option<u64> {
        self.0.iter().find_map(|row| row.counters.get(name)).copied()
    }

    fn summary(&self, metric: &str) -> Option<&'a Summary> {
        self.0.iter().find_map(|row| row.metrics.get(metric))
    }

    fn those(&self, are: impl Fn(&ResultRow) -> bool) -> Self {
        Self(self.0.iter().copied().filter(|row| are(row)).collect())
    }
}

/// How many times as long, for a person, where both were measured and the second is not nothing.
pub(crate) fn times(long: Option<u64>, short: Option<u64>) -> Option<String> {
    let (long, short) = (long?, short?);
    (short > 0).then(|| units::ratio(long as f64 / short as f64))
}

#[cfg(test)]
mod tests {
    use mayfly_record::Samples;

    use super::*;

    fn row(backend: Backend, variant: &str, memory: u64, ns: u64) -> ResultRow {
        let mut samples = Samples::default();
        samples.record_ns(ns);
        ResultRow::new("e", backend, variant)
            .param("memory", memory)
            .metric("m", &samples)
            .counter("c", ns)
    }

    #[test]
    fn rows_are_found_by_backend_variant_and_parameter() {
        let rows = [
            row(Backend::Machine, "mayfly", 1, 10),
            row(Backend::Machine, "mayfly", 2, 20),
            row(Backend::Kvm, "kernel", 1, 5000),
            row(Backend::Machine, "kernel", 1, 7),
        ];
        let rows = Rows::of(&rows);
        assert_eq!(rows.mayfly().largest("memory"), Some(2));
        assert_eq!(rows.mayfly().with("memory", 2).p50("m"), Some(20));
        assert_eq!(rows.kvm().time("m"), Some("5.00 us".to_owned()));
        assert_eq!(rows.kvm().with("memory", 2).p50("m"), None);
        assert_eq!(rows.machine("kernel").counter("c"), Some(7));
        assert_eq!(rows.mayfly().time("n"), None);
    }

    #[test]
    fn nothing_is_so_many_times_nothing() {
        assert_eq!(times(Some(30), Some(20)), Some("1.50x".to_owned()));
        assert_eq!((times(Some(30), Some(0)), times(None, Some(1))), (None, None));
    }
}
