//! VMs on x86-64: the format of their tables, their APICs, the exits of a vCPU, and how a kernel is loaded.

mod board;
mod chipset;
mod forks;
mod format;
pub(crate) mod generation;
mod load;
mod ram;
mod refused;
mod seat;

use mayfly_vm::Caches;

pub(crate) use board::{Processor, answer, goes_off, no_port, processor, stop};
pub(crate) use chipset::Chipset;
pub(crate) use forks::{Model, Resumed, Start, Stopped, Vcpus, save};
pub(crate) use format::{vmid_bits, with_format};
pub(crate) use load::load;
pub(crate) use mayfly_hypervisor::x86::part::Part;
pub(crate) use mayfly_x86::bare::guest::{Confinement, Reason};
pub(crate) use refused::{NO_FORKS, refused};
pub(crate) use seat::Seat;

/// Who sees to what guests leave in caches: nobody has to.
pub(crate) const CACHES: Caches = Caches::Coherent;
