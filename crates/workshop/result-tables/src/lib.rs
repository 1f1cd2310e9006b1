//! The tables of README and of other documents, written from the records of several runs.
//!
//! A [`Table`] says which figures stand where. A cell has the median of the runs' medians, and in brackets the smallest and
//! the largest of these: runs are independent of each other as rounds of one run are not, and of five the true median lies
//! between them with 94 %. The last column says how much was measured. Tables stand in a document between a marker with
//! their name and one at their end ([`replace`]); what is there by hand is refused ([`check`]).

mod document;
mod figure;
mod layout;
mod runs;
mod table;

pub use document::{HOST, MarkerError, check, replace};
pub use layout::{commands, tables};
pub use runs::{Runs, RunsError};
pub use table::{Column, Line, Statistic, Table};
