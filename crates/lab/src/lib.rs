//! Experiments, statistics, records and reports.
//!
//! What a run measured is a [`Record`]: the host, and a [`ResultRow`] for each experiment, backend and
//! variant.

mod backend;
pub mod host;
pub mod record;
pub mod stats;
pub mod units;

pub use backend::{Backend, BackendChoice};
pub use record::{Record, ResultRow};
pub use stats::{Samples, Summary};
