//! What was measured: the record of a run, its statistics, and the facts of the host it ran on.
//!
//! A [`Record`] is the one document that a run writes as JSON and that other tools read. It holds a [`Host`], and a
//! [`ResultRow`] for each thing that was measured: metrics as [`Summary`] of [`Samples`], counters and checks. Nothing
//! here knows an experiment, and nothing here shows a record to a person.

mod backend;
mod bootstrap;
mod chance;
mod conditions;
mod controls;
mod description;
mod document;
mod goal;
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
pub use chance::Chance;
pub use conditions::{Begun, Conditions};
pub use description::{Description, MetricDescription, Passes, Widest};
pub use document::Record;
pub use goal::Goal;
pub use host::{Build, Host};
pub use limits::Limits;
pub use metrics::{Metrics, Sample};
pub use read::{Document, ReadError};
pub use row::{BASELINE, Check, Finding, ResultRow};
pub use samples::{Samples, nanoseconds};
pub use sink::{Sink, WriteError};
pub use summary::Summary;
pub use unit::Unit;
