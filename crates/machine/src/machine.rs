//! What the VMs of a process share.

use std::io;
use std::sync::Arc;

use mayfly_memslot::Hva;
use mayfly_platform::{Host, Platform};
use mayfly_srcu::{Pace, WorkerThread};
use mayfly_vm::{Config, Error, Vcpu, Vm};

use crate::AnyDevice;

/// A VM of the software machine.
pub type MachineVm = Vm<AnyDevice, Hva>;

/// A vCPU of the software machine.
pub type MachineVcpu = Vcpu<AnyDevice, Hva>;

/// The host platform, and the thread that does the deferred work of all VMs.
///
/// Memory that backs a VM's slots has to stay mapped until the slot is deleted, or the VM and its vCPUs are gone.
#[derive(Debug)]
pub struct Machine {
    platform: Arc<Host>,
    worker: WorkerThread,
}

impl Machine {
    /// A machine without VMs, and its worker.
    ///
    /// # Errors
    ///
    /// Where the host has no thread to give.
    pub fn new() -> io::Result<Self> {
        let platform = Arc::new(Host::new());
        let worker = WorkerThread::spawn(platform.clone())?;
        Ok(Self { platform, worker })
    }

    /// Where its VMs live.
    pub fn platform(&self) -> Arc<dyn Platform> {
        self.platform.clone()
    }

    /// A VM whose SRCU domain has `pace`, and the machine's worker.
    ///
    /// # Errors
    ///
    /// As [`Vm::create`].
    pub fn create_vm_paced(&self, pace: Pace) -> Result<MachineVm, Error> {
        let worker = Some(self.worker.worker().clone());
        let srcu = mayfly_srcu::Config { pace, worker, ..Default::default() };
        Vm::create(self.platform(), Config { srcu })
    }

    /// A VM.
    ///
    /// # Errors
    ///
    /// As [`Vm::create`].
    pub fn create_vm(&self) -> Result<MachineVm, Error> {
        self.create_vm_paced(Pace::Urgent)
    }
}
