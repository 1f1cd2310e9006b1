//! What this host makes a VM wait for.
//!
//! [`examine`] creates VMs of its own and times what a VMM does with a VM: pairs of calls of which the second may wait for a
//! grace period that the first has started, the start of a VM in two orders, its end, and first touches of its memory. An
//! [`Examination`] is what was measured. Its [`Finding`]s say what the VM waits for, what to do about it, and what that
//! gains. Nothing on the host is changed.
//!
//! An examination is printed as [`Text`], as JSON ([`Document`], `mayfly.doctor/1`), and as metrics ([`openmetrics`]).

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
pub use finding::{Code, Finding, Gain};
pub use metrics::openmetrics;
pub use probe::{Probe, Yield, metrics};
pub use record::{COUNTED, COUNTERS};
pub use row::NAME;
pub use text::Text;
