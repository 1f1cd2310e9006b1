//! Lives of a bare arm64 guest whose steps are counted in retired instructions, on Mayfly at EL2 and on KVM alike: the
//! guest's code, what is measured, and the lines in which both tell it.
//!
//! Whoever measures runs [`guest::program`] in a VM, and prints [`Line::BEGIN`], a [`Line`] for each sample, and
//! [`Line::end`]. [`read`] is for whoever has the console's output.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod course;
pub mod guest;
pub mod large;
mod line;
mod row;
pub mod times;

pub use line::{Line, Spent, Told, Until, Wrong, read};
pub use row::Row;
