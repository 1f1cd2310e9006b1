//! The Mayfly core on arm64: what a hypervisor at EL2 needs to run guests.
//!
//! Some modules are functions of numbers, and are built and tested on any host: the meaning of a trap ([`syndrome`]), what
//! a guest reads of its processor ([`id`]), its breakpoints and watchpoints ([`debug`]), its performance counters ([`counters`]), what an exception does to a guest
//! ([`inject`]), what the processors of a machine have in common ([`processor`], [`cache_type`]), which registers are switched on which of
//! them ([`kinds`]), what is to be done about their errata ([`errata`]), and the registers of a vCPU as values that are saved ([`vcpu`],
//! [`saved`]). What each system register is to a guest is in
//! a crate of its own ([`table`]). The others are built for a bare arm64 alone: the world switch, the registers of a vCPU,
//! TLBs and caches, the physical interrupt controller and the timers.
//!
//! One layout of the EL2 registers serves all processors: `HCR_EL2.E2H` is clear.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod cache_type;
pub mod counters;
pub mod debug;
pub mod errata;
pub mod id;
pub mod inject;
pub mod kinds;
pub mod processor;
pub mod saved;
pub mod syndrome;
#[macro_use]
pub mod vcpu;

pub use mayfly_arm64_registers::{controls, sysreg, table};

#[cfg(all(target_arch = "aarch64", target_os = "none"))]
mod bare;
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
pub use bare::*;
