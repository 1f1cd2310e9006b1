//! Mayfly at EL2 beside KVM on arm64: both run the same lifecycles ([`mayfly_lifecycle_steps`]) on one machine model of
//! QEMU's. The instructions that each step retires are counted ([`run`]).

mod answer;
mod figures;
pub mod kvm;
mod machine;
mod rows;
mod run;
mod table;

pub use answer::{answer, describe};
pub use machine::{Files, Missing, Processor};
pub use rows::{NAME, rows};
pub use run::{LEAN, Measured, Side, run};
pub use table::Table;
