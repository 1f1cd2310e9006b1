//! The record of a run: what was measured, its statistics, and the facts of the host.
//!
//! A [`Record`] is the JSON document that a run writes and that other tools read. It holds a [`Host`], and one
//! [`ResultRow`] for each variant that was measured. A row has metrics, each a [`Summary`] of [`Samples`], and counters and
//! checks. This crate knows no experiment, and it shows no record to a reader: `mayfly-report` does.

mod backend;
mod bootstrap;
mod chance;
mod conditions;
mod controls;
mod description;
mod document;
mod goal;
pub mod here;
mod histogram;
mod host;
mod limits;
mod metrics;
mod read;
mod row;
mod samples;
mod sink;
mod summary;
mod unit;
pub mod units;

pub use backend::Backend;
pub use bootstrap::middle;
pub use chance::Chance;
pub use conditions::{Begun, Conditions};
pub use description::{Description, MetricDescription, Passes, Widest};
pub use document::Record;
pub use goal::Goal;
pub use host::{Build, Host};
pub use limits::Limits;
pub use metrics::{Metrics, Sample};
pub use read::{Document, ReadError};
pub use row::{BASELINE, Check, Finding, MACHINE, ResultRow, State};
pub use samples::{Samples, nanoseconds, nearest_rank};
pub use sink::{Sink, WriteError};
pub use summary::Summary;
pub use unit::Unit;
