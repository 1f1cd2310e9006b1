//! CPU time by role: how long the threads of each role ran in a measured part, how often they gave their processor up, and
//! how many interrupts they caused.
//!
//! A design can return sooner because it does less, or because another thread does the work later. The time until a call
//! returns cannot tell these two apart. The CPU time of all threads can. A thread gets its role when it is started. It is
//! read at both ends of the measured part: its CPU clock next to the part, its switches outside of that.
//!
//! The kernel's own threads (KVM's workers, the host's RCU) belong to no thread of this process. Their work is in none of
//! these figures.

mod counted;
mod meter;
mod role;
mod spent;
mod threads;
mod used;

pub(crate) use counted::{Interrupts, kvm};
pub(crate) use mayfly_record::here::cpu as cpu_here;
pub(crate) use meter::Meter;
pub(crate) use role::{METRICS, TOTAL, ThreadRole};
pub(crate) use spent::{Spent, report};
pub(crate) use threads::Threads;
pub(crate) use used::{Used, cpu as cpu_of};
