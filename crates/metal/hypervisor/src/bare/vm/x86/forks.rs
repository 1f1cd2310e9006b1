//! What freezes a VM, and has others go on as it was: nothing does on x86-64 ([`NO_FORKS`](super::NO_FORKS)). The types are
//! here since the other floors name them. None of them has a value that could be reached.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::convert::Infallible;

use mayfly_hypervisor::plan::Plan;
use mayfly_vapic::LocalApic;
use mayfly_vm::GuestCaches;

use super::chipset::Chipset;
use crate::bare::devices::Devices;
use crate::bare::devices::arch::SerialPort;
use crate::bare::devices::frames::Frames;
use crate::bare::threads::kick::Places;
use crate::bare::vm::kept::{NotKept, NotLoaded, NotResumed};
use crate::bare::vm::origin::Origin;

/// Where a vCPU begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// Its first instruction.
    pub(crate) entry: u64,
    /// Where it finds its parameters.
    pub(crate) context: u64,
}

/// A vCPU whose thread has ended, or that a thread is to go on as.
pub(crate) struct Stopped {
    pub(crate) is_on: bool,
    pub(crate) start: Option<Start>,
    pub(crate) interface: LocalApic,
    pub(crate) registers: Infallible,
    pub(crate) caches: GuestCaches,
}

/// What the vCPUs of a run go on as, by their numbers: each is there until its thread has taken it.
pub(crate) type Vcpus = Vec<Option<Arc<Stopped>>>;

/// A machine that goes on as another one was.
pub(crate) struct Resumed {
    pub(crate) chipset: Chipset,
    pub(crate) devices: Arc<Devices>,
    pub(crate) uart: SerialPort,
    pub(crate) vcpus: Vcpus,
}

/// A machine as it was frozen.
pub(crate) struct Model(Infallible);

impl Model {
    pub(crate) fn load(
        _plan: &Plan,
        _state: &[u8],
        _caches: impl Iterator<Item = GuestCaches>,
        _disk: Option<Frames>,
    ) -> Result<Self, NotLoaded> {
        Err(NotLoaded::OutOfMemory)
    }

    pub(crate) fn of(
        _plan: &Plan,
        _chipset: &Chipset,
        _devices: &Devices,
        _disk: Option<Frames>,
        _uart: SerialPort,
        _vcpus: Vec<Arc<Stopped>>,
        _virtual_count: u64,
    ) -> Result<Self, NotResumed> {
        Err(NotResumed::NotAtRest)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn resume(
        &self,
        _plan: &Plan,
        _places: &Arc<Places>,
        _origin: Origin<'_>,
    ) -> Result<Resumed, NotResumed> {
        match self.0 {}
    }
}

/// The state of a run whose threads have ended.
pub(crate) fn save(
    _plan: &Plan,
    _chipset: &Chipset,
    _devices: &Devices,
    _uart: &SerialPort,
    _vcpus: &[Arc<Stopped>],
    _virtual_count: u64,
) -> Result<Vec<u8>, NotKept> {
    Err(NotKept::NotStopped)
}
