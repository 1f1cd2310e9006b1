//! What is left of a VM that was frozen, from which others begin.
//!
//! A run is frozen as it is ended: all vCPUs leave their guest for good. Each saves its registers before its thread
//! ends. When all threads of the run have ended, its memory is written no more, what was written past the caches is
//! flushed, and the tables of stage 2 are freed. So an entry of a fork names a frame that nothing writes.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_vm::GuestCaches;
use mayfly_vm::platform::memory::OutOfMemory;

use super::arch::{ChipsetState, CpuInterface, CpuState};
use super::run::Run;
use crate::bare::devices::DevicesState;
use crate::bare::devices::arch::SerialPort;
use crate::bare::world::memory::GuestMemory;

/// What a VM was when it was frozen.
pub(crate) struct Template {
    /// Its memory, which no caller writes any more.
    pub(crate) memory: Arc<GuestMemory>,
    /// What its disk held, if it had one.
    pub(crate) disk: Option<Arc<GuestMemory>>,
    /// Its vCPUs, by number; nothing for those that were off.
    pub(crate) vcpus: Vec<Option<Kept>>,
    pub(crate) chipset: ChipsetState,
    pub(crate) devices: DevicesState,
}

impl Template {
    /// What a run leaves whose threads have ended, with the memory of its guest and its disk, and its console.
    pub(super) fn try_of(
        run: &Run,
        memory: Arc<GuestMemory>,
        disk: Option<Arc<GuestMemory>>,
        console: SerialPort,
    ) -> Result<Self, OutOfMemory> {
        let vcpus = core::mem::take(&mut *run.kept.lock());
        let (chipset, devices) = (run.chipset.state()?, run.devices.state(console));
        Ok(Self { memory, disk, vcpus, chipset, devices })
    }

    /// What vCPU `vcpu` goes on as, if it was running.
    pub(super) fn ran(&self, vcpu: u32) -> Option<&Ran> {
        match self.vcpus.get(vcpu as usize)? {
            Some(Kept::Ran(ran)) => Some(ran),
            _ => None,
        }
    }

    /// The vCPUs that were about to start: each with its entry and its argument.
    pub(super) fn starts(&self) -> impl Iterator<Item = (usize, u64, u64)> {
        self.vcpus.iter().enumerate().filter_map(|(vcpu, kept)| match kept {
            Some(Kept::Starts { entry, context }) => Some((vcpu, *entry, *context)),
            _ => None,
        })
    }
}

/// What is kept of a vCPU that was not off.
pub(crate) enum Kept {
    /// It was running.
    Ran(Box<Ran>),
    /// It was about to start.
    Starts { entry: u64, context: u64 },
}

/// A vCPU that was running, between two instructions of its guest.
pub(crate) struct Ran {
    pub(super) cpu: CpuState,
    pub(super) interface: CpuInterface,
    pub(super) caches: GuestCaches,
}
