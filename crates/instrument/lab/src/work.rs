//! Whose work it was: what each role's threads took of the processors in a measured part, how often they gave them up,
//! and whom they interrupted.
//!
//! A design can return sooner because it does less, or because another thread does it later. The time until a call
//! returns cannot tell the two apart; these can. A thread has its role where it is started, and is read at both ends of
//! what is measured: its CPU clock next to the measured part, its switches outside of that.
//!
//! What the kernel does on threads of its own (KVM's workers, the host's RCU) is no thread's of this process, and in none
//! of these figures.

mod counted;
mod meter;
mod role;
mod spent;
mod threads;
mod used;

pub(crate) use counted::{Interrupts, kvm};
pub(crate) use meter::Meter;
pub(crate) use role::{METRICS, TOTAL, ThreadRole};
pub(crate) use spent::{Spent, report};
pub(crate) use threads::Threads;
pub(crate) use used::{Used, cpu_here};
