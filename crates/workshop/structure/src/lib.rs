//! Checks of the repository's structure.
//!
//! - [`docs`]: whether what the documentation names is there.
//! - [`graph`]: which files of a crate import each other in a circle.
//! - [`imports`]: which crates import which, and whether the rules allow it.

pub mod docs;
pub mod graph;
pub mod imports;
mod manifest;
mod report;

pub use report::{Fault, Findings};
