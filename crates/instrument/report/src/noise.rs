//! What a ratio has to be beyond to mean anything, by this run's own measure.

use mayfly_record::{Record, Summary, Unit};

/// Metrics below which there is no telling.
const FEWEST: usize = 10;

/// Below it a host is as quiet as one can ask for.
const QUIET: f64 = 1.1;

/// How many times as large as itself, every other round beside the rest, a metric of the same variant was; all but one in
/// twenty were less. `None` on a quiet host, and where too little was measured to say.
pub(crate) fn bound(record: &Record) -> Option<f64> {
    most(record, |summary| summary.halves).filter(|bound| *bound >= QUIET)
}

/// The same of the first half of the rounds beside the second: whether the host changed while the run went on. `None`
/// where too little was measured to say.
pub(crate) fn drift(record: &Record) -> Option<f64> {
    most(record, |summary| summary.drift)
}

fn most(record: &Record, of: impl Fn(&Summary) -> Option<f64>) -> Option<f64> {
    let mut ratios: Vec<f64> = record
        .results
        .iter()
        .flat_map(|row| row.metrics.iter().filter(|(name, _)| !row.uncompared.contains(*name)))
        .filter(|(_, summary)| summary.unit == Unit::Nanoseconds)
        .filter_map(|(_, summary)| of(summary))
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let at = (ratios.len() * 95).div_ceil(100).checked_sub(1)?;
    Some(ratios[at]).filter(|_| ratios.len() >= FEWEST)
}

#[cfg(test)]
mod tests {
    use mayfly_record::{Backend, Host, ResultRow, Samples};

    use super::*;

    /// Rows of which each metric is `times` as long in every other round.
    fn record(rows: usize, times: u64) -> Record {
        let mut samples = Samples::default();
        for round in 0..20 {
            samples.record_ns(if round % 2 == 0 { 1000 } else { 1000 * times / 100 });
            samples.end_round();
        }
        let row = ResultRow::new("e", Backend::Machine, "v").metric("m", &samples);
        Record::new(Host::default(), vec![row; rows])
    }

    #[test]
    fn what_differs_from_itself_by_half_bounds_what_a_ratio_can_mean() {
        assert_eq!(bound(&record(10, 150)), Some(1.5));
        assert_eq!(bound(&record(10, 104)), None, "a quiet host");
        assert_eq!(bound(&record(9, 150)), None, "too few to say");
        assert_eq!(bound(&record(0, 150)), None);
    }

    #[test]
    fn what_changes_in_the_middle_is_drift_and_no_bound() {
        let mut samples = Samples::default();
        for round in 0..20 {
            samples.record_ns(if round < 10 { 1000 } else { 1500 });
            samples.end_round();
        }
        let row = ResultRow::new("e", Backend::Machine, "v").metric("m", &samples);
        let record = Record::new(Host::default(), vec![row; 10]);
        assert_eq!((drift(&record), bound(&record)), (Some(1.5), None));
        assert_eq!(drift(&self::record(10, 150)), Some(1.0));
    }

    #[test]
    fn what_is_not_to_be_set_in_relation_bounds_nothing() {
        let mut record = record(12, 150);
        for row in &mut record.results {
            *row = row.clone().uncompared("m");
        }
        assert_eq!(bound(&record), None);
    }
}
