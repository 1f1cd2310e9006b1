//! VMs on arm64: the format of their tables, their GIC and PSCI, the exits of a vCPU, and how a kernel is loaded.

mod board;
mod chipset;
mod format;
pub(crate) mod generation;
mod load;
mod model;
mod seat;
mod state;

use mayfly_hypervisor::plan::Plan;
use mayfly_vm::Caches;

pub(crate) use board::{Processor, answer, goes_off, no_port, processor, stop};
pub(crate) use chipset::Chipset;
pub(crate) use format::{IPA_BITS, vmid_bits, with_format};
pub(crate) use load::load;
pub(crate) use mayfly_arm64::confinement::Confinement;
pub(crate) use mayfly_arm64::machine::Reason;
pub(crate) use mayfly_hypervisor::arm64::part::Part;
pub(crate) use mayfly_hypervisor::arm64::state::Start;
pub(crate) use model::{Model, Resumed, Vcpus};
pub(crate) use seat::Seat;
pub(crate) use state::{Stopped, save};

/// Why a VM of `plan` is not to be had on this architecture, if it is not.
pub(crate) fn refused(plan: &Plan) -> Option<&'static str> {
    (!plan.x2apic).then_some("apic=: there is no APIC on arm64")
}

/// Why no VM is frozen or forked on this architecture.
pub(crate) const NO_FORKS: Option<&str> = None;
/// Who sees to what guests leave in caches: the core.
pub(crate) const CACHES: Caches = Caches::Tracked;
