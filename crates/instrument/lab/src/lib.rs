//! What an experiment is, how it is run, and the five that there are.
//!
//! An [`Experiment`] runs the same work under several named variants and backends and returns one row of a record for
//! each. A [`Plan`] is what the user selected, checked before anything runs.
//!
//! Adding an experiment: a module with a type that implements [`Experiment`], and its line in [`experiments`]. The
//! command needs no change unless the experiment takes a new parameter, which is a field of [`Params`].

mod affinity;
mod answers;
mod bar;
mod before;
mod cache_enable;
mod choice;
mod conclude;
mod course;
mod crew;
mod device_registration;
mod experiment;
mod experiments;
mod idle;
mod left;
mod lines;
mod mapping;
mod needs;
mod page_merge;
mod params;
mod passes;
mod patience;
mod plan;
mod populate;
mod progress;
mod room;
mod rows;
mod slot_delete;
mod teardown;
mod turns;
mod undo;
mod work;

pub use answers::Answer;
pub use bar::Bar;
pub use choice::BackendChoice;
pub use conclude::answer;
pub use course::{Course, Failure, Outcome};
pub use experiment::{Experiment, Metric, Param, Request, Variant};
pub use experiments::experiments;
pub use left::put_back_what_was_left;
pub use lines::Lines;
pub use needs::Needs;
pub use params::{Bound, Ksm, Order, Params, Size, Zap};
pub use plan::{Error, Plan, Planned, Selection, select};
pub use progress::{Progress, Silent};
pub use undo::{Changed, Kept, Undo};
