//! The lifecycles of a VM whose steps are counted in retired instructions, on Mayfly and on KVM alike: the code
//! of their bare guest ([`guest`]), their course ([`course`]), what is measured ([`Row`]), and the lines in which
//! both sides print it ([`Line`]).
//!
//! A side implements the traits of [`course`], and runs the code of [`guest`] in its VMs. It prints [`Line::BEGIN`], a
//! [`Line`] for each sample, and [`Line::end`]. [`read`] reads them back from the output of a console.
//!
//! VMs that run an operating system have no steps that both sides make alike. They have phases ([`Phase`]).

#![no_std]

#[cfg(test)]
extern crate std;

pub mod course;
pub mod forked;
pub mod guest;
pub mod large;
mod line;
pub mod logged;
mod phase;
mod row;
pub mod times;

/// How the line begins that names the registers of the machine's processor, in the order in which they are printed:
/// `name=value`, words.
pub const REGISTERS: &str = "mayfly-registers ";

pub use line::{Line, Spent, Told, Until, Wrong, read};
pub use phase::{Executed, Phase};
pub use row::{Architecture, Course, Row};
