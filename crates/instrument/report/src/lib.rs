//! Shows a record to a reader, and compares two records.
//!
//! A [`Report`] is for a terminal, a [`Page`] is for a browser, a [`Picture`] is for a README, and a [`Comparison`] is of two
//! records. A [`Threshold`] is a bound that a figure must keep. All of them need only the record: the record itself says
//! what an experiment is called, what it measures, and in which order its metrics stand. Only a picture, which has to
//! choose, knows experiments by name ([`PICTURED`]).

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
mod svg;
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
pub use svg::{PICTURED, Picture, Pictured, Theme};
pub use text::WIDTH;
pub use threshold::{Figure, Threshold, ThresholdError, Violation};
