//! What this host makes a VM wait for.
//!
//! [`examine`] makes VMs of its own and times what a VMM does with one: pairs of calls of which the second may wait for
//! what the first has armed, a VM's start in two orders, its end, first touches of its memory. An [`Examination`] is what
//! was measured; [`Finding`]s are what that comes to, with what to do about it and what it gains. Nothing on the host is
//! changed.
//!
//! It is told as [`Text`], as JSON ([`Document`], `mayfly.doctor/1`), and as metrics ([`openmetrics`]).

mod document;
mod examination;
mod examine;
mod finding;
mod judge;
mod metrics;
mod probe;
mod record;
mod row;
mod text;

pub use document::{Document, PairSaid, SCHEMA};
pub use examination::Examination;
pub use examine::{examine, examine_with};
pub use finding::{Code, Finding};
pub use metrics::openmetrics;
pub use probe::{Probe, Yield, metrics};
pub use record::{COUNTED, COUNTERS};
pub use row::NAME;
pub use text::Text;
