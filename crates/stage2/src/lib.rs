//! Stage-2 page tables.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod entry;
mod format;
mod leaf;
mod level;

pub use entry::{Entry, State};
pub use format::{Arm, Ept, Format, Kind, Npt, Sv39x4, Sv48x4, SvX4};
pub use leaf::{Leaf, MemoryType, Permissions};
pub use level::Level;
