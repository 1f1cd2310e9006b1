//! How a record is shown to a person.
//!
//! A [`Report`] is for a terminal, a [`Page`] for a browser. Either needs nothing but the record: what an experiment is
//! called, what it measures and in which order its metrics stand, the record says itself.

mod compare;
mod group;
mod heading;
mod medians;
mod metrics;
mod noise;
mod page;
mod passes;
mod percentiles;
mod report;
mod tallies;
mod text;
mod threshold;
mod value;
mod verdicts;

pub use compare::pairs::Mismatch;
pub use compare::shown::Format;
pub use compare::{Comparison, Line, Verdict};
pub use page::Page;
pub use report::Report;
pub use text::WIDTH;
pub use threshold::{Threshold, ThresholdError, Violation};
