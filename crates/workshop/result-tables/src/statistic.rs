//! Which number of a metric a table shows.

/// A number of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// The median.
    Median,
    /// The 99th percentile, where there are enough samples for it.
    P99,
    /// The largest sample.
    Longest,
}
