//! Traces a program that runs VMs from outside: its calls to KVM, its phases, its waits and their causes.
//!
//! [`record`] runs a program and returns a [`Trace`]. [`Trace::concluded`] adds the phases, the waits with their causes and
//! the critical paths. [`Text`] prints them, [`prove`] proves causes, and [`measure_gains`] measures what remedies gain.

// The kernel's words are signed here and unsigned there.
#![allow(clippy::cast_sign_loss, clippy::cast_possible_wrap)]

mod calls;
mod causes;
mod compare;
mod conclude;
mod figures;
mod filter;
mod gain;
mod ioctl;
mod life;
mod listing;
mod lives;
mod looks;
mod meanwhile;
mod names;
mod page;
mod path;
mod phases;
mod prove;
mod read;
mod record;
mod recorder;
mod replay;
mod request;
mod restore;
mod runs;
mod spent;
mod stalls;
mod sys;
mod text;
mod timeline;
mod times;
mod usdt;
mod words;

pub use compare::Comparison;
pub use figures::{COUNTERS, figure_names, figure_rows};
pub use gain::{Benefit, Change, Gain, Measured, Replay};
pub use ioctl::ioctl_name;
pub use listing::Calls;
pub use page::Page;
pub use path::{CriticalPath, Doing, Piece};
pub use phases::{PHASES, metric};
pub use prove::{prove, runs_to_prove};
pub use record::{
    Account, Call, Cause, End, From, Life, Object, Phase, Process, Recorder, SCHEMA, Sample, Stall,
    Stops, Thread, Trace, Used, Verdict, Wake,
};
pub use recorder::{
    Choice, Delay, Error, Launch, Mark, Output, Recorded, attach, attach_by, record, record_by,
};
pub use replay::measure_gains;
pub use request::Beginning;
pub use runs::{Runs, figures_of_causes};
pub use spent::Spent;
pub use text::Text;
pub use usdt::Probe;
