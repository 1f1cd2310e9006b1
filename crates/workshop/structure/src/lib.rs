//! Checks of the repository's structure.
//!
//! - [`graph`]: which files of a crate import each other in a circle.
//! - [`imports`]: which crates import which, and whether the rules allow it.

pub mod graph;
pub mod imports;
mod manifest;
mod report;

pub use report::{Fault, Findings};
