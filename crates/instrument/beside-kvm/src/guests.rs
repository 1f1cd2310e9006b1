//! Linux guests on Mayfly at EL2, and the same under a VMM that people use: QEMU with KVM, as its distribution has it.
//! [`run`] starts one machine model with each, and counts what is executed in phases: by guests, by the kernel or the
//! hypervisor, and by the VMM.

mod answer;
mod exits;
mod files;
mod guest;
mod job;
mod linux;
mod rows;
mod run;
mod table;

pub use answer::{answer, describe};
pub use exits::Exits;
pub use files::GuestFiles;
pub use job::Step;
pub use rows::rows;
pub use run::{Measured, Told, run};
pub use table::Table;

/// The name of the experiment.
pub const EXPERIMENT: &str = "devices";

/// What precedes the name of a phase where a guest says that it has ended.
pub const ENDED: &str = "guest: ended ";
