//! All VMs of a host, one row each: what their vCPUs do, how often they leave their guests and why, and which calls to
//! KVM wait. This crate stops no process and changes nothing on the host.
//!
//! It finds VMs by the descriptors that processes have open. It counts exits with the first of three sources that is
//! available: debugfs, which it mounts for this process only if it is not mounted; the statistics files that a VMM itself
//! holds open; and KVM's tracepoints, counted from then on. If none is available, the row says what is missing. What a
//! thread waits in is known from many short looks at `/proc`.

mod counters;
mod debugfs;
mod kernelfs;
mod look;
mod missing;
mod named;
mod numbers;
mod output;
mod process;
mod row;
mod statistics;
mod sys;
mod threads;
mod tracepoints;
mod vms;

pub use look::Watcher;
pub use output::{csv, head_of_csv, json, openmetrics, text};
pub use process::{Open, Process};
pub use row::{Exits, Row, Sight, State, Wait};
