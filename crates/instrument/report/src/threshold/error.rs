//! Why a threshold is refused, in one line.

use super::names::STATISTICS;

/// A threshold that cannot be read, or names nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// It is no comparison.
    #[error("'{0}' is not a threshold; write NAMES > NUMBER, where > may also be >=, < or <=")]
    NoComparison(String),
    /// What is on the right is no number.
    #[error(
        "'{number}' in '{threshold}' is not a number; write one such as 1.1, 250ns, 30us, 1.5ms or 2s"
    )]
    NoNumber {
        /// What stands there.
        number: String,
        /// Where.
        threshold: String,
    },
    /// It names nothing that there is.
    #[error(
        "'{names}' names nothing here; write EXPERIMENT.BACKEND.VARIANT.METRIC.STATISTIC, of which any may be left out; statistics: {}",
        STATISTICS.join(", ")
    )]
    NamesNothing {
        /// What stands on the left.
        names: String,
    },
    /// Two records are compared by their ratio alone.
    #[error(
        "'{0}' is not about a ratio, and two records are compared by ratios only: write 'ratio > 1.1' or 'destroy > 1.1'"
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
