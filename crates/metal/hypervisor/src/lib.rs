//! The parts of the bare-metal hypervisor that any host can build and test: the frames of a machine and the account of
//! them, its device tree and the modules in it, the arrival of its CPUs and those that take threads, the threads that wait
//! and that sleep, how a run ends, the device tree of a guest, the list of VMs on x86-64, packed kernels, the log of a guest, forks for connections,
//! the monitor's commands and what is typed meanwhile, and the requests of a program.
//!
//! The program itself is in `src/bare`, and is built for a bare machine alone.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod account;
pub mod ahead;
pub mod arm64;
pub mod arrival;
pub mod board;
pub mod card;
pub mod chunks;
pub mod command;
pub mod contents;
pub mod control;
pub mod division;
pub mod ending;
pub mod flat;
pub mod flights;
pub mod given;
pub mod identity;
pub mod in_use;
pub mod late;
pub mod line;
pub mod log;
pub mod memory_map;
pub mod needs;
pub mod overlay;
pub mod partition;
pub mod pieces;
pub mod plan;
pub mod plugged;
pub mod processors;
pub mod promises;
pub mod service;
pub mod shortage;
pub mod sleepers;
pub mod stray;
pub mod tree;
pub mod turns;
pub mod waiting;
pub mod x86;
