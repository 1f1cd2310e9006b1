//! Writes the tables of results into README and docs, from the records of several runs. `make figures` calls it.
//!
//! A [`Table`] says which figures it has, and in which document it stands. A figure is the median of the runs' medians, with
//! the smallest and the largest of these in brackets. Runs are independent of each other; rounds of one run are not. The
//! true median lies between the smallest and the largest of five runs with 94 %. The last column says how many samples were
//! taken.
//!
//! A table stands between two markers with its name. [`write`](fn@write) replaces the text between them; [`check_all`] refuses a
//! table that was edited by hand. README has one table, a [`summary`](fn@summary) that quotes the others.

mod document;
mod figure;
mod layout;
mod runs;
mod statistic;
mod summary;
mod table;
mod write;

pub use document::{HOST, MarkerError, check, replace};
pub use layout::{commands, tables};
pub use runs::{Runs, RunsError};
pub use statistic::Statistic;
pub use summary::{README, SUMMARY, check_summary, summary};
pub use table::{Column, Line, Table};
pub use write::{DocumentError, check_all, write};
