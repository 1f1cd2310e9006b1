//! The Mayfly core on arm64: what it takes to run guests at EL2.
//!
//! What a trap means ([`syndrome`]), what a guest reads of its processor ([`id`]), and what an exception does to it
//! ([`inject`]) are functions of numbers, and are built and tested on any host. The rest is there where the target is a
//! bare arm64: the world switch, the registers of a vCPU, TLBs and caches, the physical interrupt controller and the
//! timers.
//!
//! One layout of the EL2 registers serves all processors: `HCR_EL2.E2H` is clear.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod id;
pub mod inject;
pub mod syndrome;
pub mod sysreg;

#[cfg(all(target_arch = "aarch64", target_os = "none"))]
mod bare;
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
pub use bare::*;
