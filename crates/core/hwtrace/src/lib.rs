//! A trace of what hardware sees of stage-2 tables, and a checker of the manuals' rules.
//!
//! A trace is text with one event a line ([`Event`]; the format is in `docs/trace-format.md`): entries written,
//! invalidations issued and complete, roots entered and left, VMIDs, frames and caches. Each event has two tickets from one
//! counter, drawn before and after its atomic step. An event that ends before another begins came first. The order of other
//! events is unknown.
//!
//! A [`Checker`] takes records in the order of their second tickets, and says which [`Rule`] is broken where. It reports
//! no rule that some order of the tickets keeps, as far as `docs/trace-format.md` says. It keeps in memory the last
//! records, what is mapped, which frames are given out, and what has been taken away and is not invalidated yet. What it
//! cannot decide for lack of room passes.
//!
//! On a target without an operating system the crate has the writer of a trace, and no checker.
//!
//! ```
//! use mayfly_hwtrace::{Checker, Lines, Rule};
//!
//! let trace = "mayfly-hwtrace 1
//! 1 2 0 root top=0x40 order=0 levels=1 format=arm
//! 3 4 0 entry table=0x40 index=5 old=0x0 new=0x90000000003
//! 5 6 0 barrier orders=walks
//! 7 8 0 vmid-take vmid=1 generation=1
//! 9 10 1 enter tlb=1 top=0x40 vmid=1
//! 11 12 0 entry table=0x40 index=5 old=0x90000000003 new=0xa00000000c3
//! ";
//! let (mut lines, options) = Lines::new(trace.as_bytes()).unwrap();
//! let mut checker = Checker::new(options);
//! while let Some((line, record)) = lines.next_record().unwrap() {
//!     checker.take(line, &record);
//! }
//! let found = checker.finish();
//! assert_eq!((found[0].line, found[0].rule), (7, Rule::BreakBeforeMake));
//! ```

#![cfg_attr(target_os = "none", no_std)]

mod event;
mod header;
pub mod steps;

#[cfg(not(target_os = "none"))]
mod checker;
#[cfg(not(target_os = "none"))]
mod entries;
#[cfg(not(target_os = "none"))]
mod lives;
#[cfg(not(target_os = "none"))]
mod order;
#[cfg(not(target_os = "none"))]
mod parse;
#[cfg(not(target_os = "none"))]
mod ranges;
#[cfg(not(target_os = "none"))]
mod rules;
#[cfg(not(target_os = "none"))]
mod tables;
#[cfg(not(target_os = "none"))]
mod vmids;
#[cfg(not(target_os = "none"))]
mod window;

#[cfg(not(target_os = "none"))]
pub use checker::Checker;
pub use event::{Barrier, Event, Family, Reach, Record, Scope};
pub use header::{HEADER, Options};
#[cfg(not(target_os = "none"))]
pub use parse::{Lines, Malformed, parse};
#[cfg(not(target_os = "none"))]
pub use rules::{Rule, Violation};
