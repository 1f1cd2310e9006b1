//! A vCPU that does one order after the other, as it is told ([`mayfly_lifecycle_steps::guest`]).

use anyhow::{Context, bail};
use mayfly_kvm::kvm_ioctls::VcpuExit;
use mayfly_kvm::{Vcpu, Vm};
use mayfly_lifecycle_steps::course;
use mayfly_lifecycle_steps::guest::{BELL, MEMORY, Order, answer};

/// A vCPU.
pub(super) struct Obedient(Vcpu);

impl Obedient {
    /// One that can be run.
    pub(super) fn new(vm: &Vm, number: u32) -> anyhow::Result<Self> {
        let mut vcpu = vm.create_vcpu(number)?;
        vcpu.start_at(MEMORY)?;
        Ok(Self(vcpu))
    }

    /// Runs it until it asks for an order.
    pub(super) fn run(&mut self) -> anyhow::Result<()> {
        match self.0.fd_mut().run().context("KVM_RUN")? {
            VcpuExit::MmioRead(BELL, [_, _, _, _, _, _, _, _]) => Ok(()),
            other => bail!(
                "KVM_RUN has returned an exit that the guest's program does not make: {other:?}"
            ),
        }
    }

    pub(super) fn into_vcpu(self) -> Vcpu {
        self.0
    }
}

impl course::Vcpu for Obedient {
    type Error = anyhow::Error;

    fn obey(&mut self, order: Order, times: u32) -> anyhow::Result<()> {
        // SAFETY: it has come out for a read of a device's register, which `run` has seen, and all of the field is
        // bytes.
        let mmio = unsafe { &mut self.0.fd_mut().get_kvm_run().__bindgen_anon_1.mmio };
        mmio.data = answer(order, times).to_le_bytes();
        self.run()
    }
}
