//! All VMs of a host, one row each: what their vCPUs do, how often they leave their guests and why, and which calls to
//! KVM wait. Nothing is stopped, and nothing of the host is changed.
//!
//! VMs are found by what processes have open. Numbers come from debugfs, mounted for this process alone where nobody has
//! mounted it; else from the statistics files that a VMM holds open itself; else from KVM's tracepoints, which are counted
//! from then on. Where none of these is to be had, the row says what is missing. What threads wait in is what `/proc` says in many short looks.

mod counters;
mod debugfs;
mod kernelfs;
mod look;
mod missing;
mod numbers;
mod output;
mod row;
mod statistics;
mod sys;
mod threads;
mod tracepoints;
mod vms;

pub use look::Watcher;
pub use output::{csv, head_of_csv, openmetrics, text};
pub use row::{Exits, Row, Sight, State, Wait};
