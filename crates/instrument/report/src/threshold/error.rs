//! Why a threshold is refused, in one line.

use super::names::STATISTICS;

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
