//! VMs on arm64: the format of their tables, their GIC and PSCI, the exits of a vCPU, and how a kernel is loaded.

mod board;
mod chipset;
mod format;
pub(crate) mod generation;
mod load;
mod model;
mod seat;
mod state;

pub(crate) use board::{Processor, Stop, answer, processor, stop};
pub(crate) use chipset::Chipset;
pub(crate) use format::{IPA_BITS, vmid_bits, with_format};
pub(crate) use load::load;
pub(crate) use mayfly_arm64::confinement::Confinement;
pub(crate) use mayfly_arm64::machine::Reason;
pub(crate) use mayfly_hypervisor::arm64::state::Start;
pub(crate) use model::{Model, NotLoaded, NotResumed, Origin, Resumed, Vcpus};
pub(crate) use seat::Seat;
pub(crate) use state::{NotKept, Stopped, save};
