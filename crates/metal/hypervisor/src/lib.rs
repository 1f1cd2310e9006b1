//! What the bare-metal program is made of that any host can build and test: the frames of a machine, its device tree and
//! the modules in it, a guest's device tree, kernels as they are packed, what a guest has said, and the monitor's commands.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod command;
pub mod contents;
pub mod flat;
pub mod frames;
pub mod image;
pub mod layout;
pub mod log;
pub mod plan;
pub mod tree;
