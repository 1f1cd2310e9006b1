//! Mayfly at EL2 beside KVM on arm64, or Mayfly beside kvm-amd on x86-64: both run the same course
//! ([`mayfly_lifecycle_steps`]), lifecycles, that of a dirty log or that of forks, on one machine model of QEMU's. The
//! instructions that each step retires are counted ([`run`]).

mod answer;
mod figures;
pub mod guests;
mod kernel_at;
pub mod kvm;
mod machine;
mod rows;
mod run;
mod table;
mod way;

pub use answer::{answer, describe};
pub use machine::{Files, Missing, Processor};
pub use rows::rows;
pub use run::{ByWay, LEAN, Measured, Side, run};
pub use table::Table;
pub use way::Way;
