//! Which metrics of an experiment are shown, and in which order.

use mayfly_record::{Description, MetricDescription, ResultRow};

/// The metrics that an experiment is said to have.
pub(crate) fn declared(known: Option<&Description>) -> &[MetricDescription] {
    known.map_or(&[][..], |known| &known.metrics)
}

/// The metrics that were measured: in the experiment's order, then those it does not name.
pub(crate) fn measured<'a>(declared: &[MetricDescription], rows: &[&'a ResultRow]) -> Vec<&'a str> {
    let mut names: Vec<&str> =
        rows.iter().flat_map(|row| row.metrics.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let place =
        |name: &str| declared.iter().position(|metric| metric.name == name).unwrap_or(usize::MAX);
    names.sort_by_key(|name| place(name));
    names
}

/// Those of `metrics` that matter most: all of them, where none is said to.
pub(crate) fn headlines<'a>(declared: &[MetricDescription], metrics: &[&'a str]) -> Vec<&'a str> {
    let is_headline =
        |name: &&str| declared.iter().any(|metric| metric.headline && metric.name == *name);
    let headlines: Vec<&str> = metrics.iter().copied().filter(is_headline).collect();
    if headlines.is_empty() { metrics.to_vec() } else { headlines }
}
