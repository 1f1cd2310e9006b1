//! Experiments, statistics, records and reports.
//!
//! An [`Experiment`] runs the same work under several named variants and backends and returns one
//! [`ResultRow`] for each. A [`Plan`] is what the user selected, checked before anything runs. What
//! comes out is a [`Record`], the one document that is written as JSON, read back, and shown to a
//! person as a [`Report`].
//!
//! Adding an experiment: a module with a type that implements [`Experiment`], and its line in
//! [`experiments`]. The command needs no change unless the experiment takes a new parameter, which
//! is a field of [`Params`].

mod affinity;
mod backend;
mod before;
mod cache_enable;
mod device_registration;
mod experiment;
pub mod host;
mod idle;
mod mapping;
mod page_merge;
mod params;
mod patience;
mod plan;
mod populate;
pub mod progress;
pub mod record;
pub mod report;
mod slot_delete;
pub mod stats;
mod teardown;
mod turns;
pub mod units;

pub use backend::{Backend, BackendChoice};
pub use experiment::{Experiment, Metric, Param, Request, Variant, experiments};
pub use params::{Bound, Order, Params, Size, Zap};
pub use plan::{Error, Plan, Selection, select};
pub use progress::Progress;
pub use record::{Record, ResultRow};
pub use report::Report;
pub use stats::{Samples, Summary};
