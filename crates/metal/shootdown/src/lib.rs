//! What CPUs forget of page tables, on a machine whose invalidations are not broadcast: each CPU flushes its own TLB, and is
//! told to. [`guests`] has tables of guests, and [`own`] those of the program itself.
//!
//! There is no hardware here. The embedder flushes, and interrupts CPUs.

#![no_std]

pub mod guests;
pub mod own;
