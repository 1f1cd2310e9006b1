//! The experiments of `mayfly run`, and what runs them.
//!
//! An [`Experiment`] runs the same work under several named variants, on the software machine and on KVM. It returns one
//! row of a record for each variant. A [`Plan`] is the user's selection, checked before anything runs. [`Plan::run`]
//! runs it, and a [`Course`] has the rows so far. [`answer()`] asks an experiment what its rows mean.
//!
//! # The floors
//!
//! Files import each other one way, from the top down:
//!
//! 1. `experiments.rs`: the list of all experiments. No other file knows it; what runs or answers takes it as a parameter.
//! 2. `plan.rs`, `passes.rs`, `alike.rs`, `conclude.rs`: check a selection, run it as often as the user wants, refuse rows that
//!    did not begin alike, and ask for answers.
//! 3. One folder for each experiment: `device_registration`, `cache_enable`, `slot_delete`, `page_merge`, `teardown`,
//!    `dirty_log`.
//! 4. `before`: earlier designs that Mayfly replaced, for the experiments to measure. `before/tdp_mmu` implements the trait
//!    of `slot_delete/design.rs`, which imports nothing of `before`.
//! 5. What experiments share: `experiment` (the trait), `params`, `answers`, `rows`, `work` (CPU time), `patience`,
//!    `start` (what a VM has when measured work begins).
//!
//! # To add an experiment
//!
//! Write a module with a type that implements [`Experiment`], and add a line to [`experiments()`]. The command needs no
//! change, unless the experiment takes a new parameter, which is a field of [`Params`]. Each row says what its work began
//! from, by `start.rs`: otherwise `alike.rs` refuses it.

mod affinity;
mod alike;
mod answers;
mod bar;
mod before;
mod cache_enable;
mod choice;
mod conclude;
mod course;
mod crew;
mod device_registration;
mod dirty_log;
mod experiment;
mod experiments;
mod fork;
mod idle;
mod left;
mod lines;
mod mapping;
mod needs;
mod page_merge;
mod params;
mod parking;
mod passes;
mod patience;
mod plan;
mod populate;
mod progress;
mod room;
mod rows;
mod slot_delete;
mod start;
mod teardown;
mod turns;
mod undo;
mod vms;
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
