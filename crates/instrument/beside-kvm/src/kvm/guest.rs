//! A vCPU that does one order after the other, as it is told ([`mayfly_lifecycle_steps::guest`]).

use std::sync::Arc;

use anyhow::{Context, bail};
use mayfly_kvm::kvm_ioctls::VcpuExit;
use mayfly_kvm::{KVM_EXIT_DIRTY_RING_FULL, Vcpu, Vm};
use mayfly_lifecycle_steps::course;
use mayfly_lifecycle_steps::forked::Forked;
use mayfly_lifecycle_steps::guest::BELL;

use super::arch::Start;
use super::ring::Ring;

/// A vCPU.
pub(super) struct Obedient {
    pub(super) vcpu: Vcpu,
    /// If its VM logs in rings, its own.
    pub(super) ring: Option<Ring>,
}

impl Obedient {
    /// One that can be run.
    pub(super) fn new(vm: &Vm, number: u32, start: &Start) -> anyhow::Result<Self> {
        let mut vcpu = vm.create_vcpu(number)?;
        start.begin(&mut vcpu, number)?;
        Ok(Self::of(vcpu))
    }

    /// One that has its registers, or gets them.
    pub(super) const fn of(vcpu: Vcpu) -> Self {
        Self { vcpu, ring: None }
    }

    /// The same, of a VM that logs in rings.
    pub(super) fn with_ring(vm: &Arc<Vm>, number: u32, start: &Start) -> anyhow::Result<Self> {
        let mut this = Self::new(vm, number, start)?;
        this.ring = Some(Ring::map(vm, &this.vcpu)?);
        Ok(this)
    }

    /// Runs it until it asks for an order.
    pub(super) fn run(&mut self) -> anyhow::Result<()> {
        loop {
            let exit = match self.vcpu.fd_mut().run() {
                // It has waited until another vCPU has started it, and starts now.
                Err(error) if error.errno() == libc::EAGAIN => continue,
                other => other.context("KVM_RUN")?,
            };
            match (exit, &mut self.ring) {
                (VcpuExit::MmioRead(BELL, [_, _, _, _, _, _, _, _]), _) => return Ok(()),
                (VcpuExit::Unsupported(KVM_EXIT_DIRTY_RING_FULL), Some(ring)) => ring.empty()?,
                (other, _) => bail!(
                    "KVM_RUN has returned an exit that the guest's program does not make: {other:?}"
                ),
            }
        }
    }

    /// Gives it what it reads, when it is next run.
    pub(super) fn answer(&mut self, answer: u64) {
        // SAFETY: it has come out for a read of a device's register, which `run` has seen, and all of the field is
        // bytes.
        let mmio = unsafe { &mut self.vcpu.fd_mut().get_kvm_run().__bindgen_anon_1.mmio };
        mmio.data = answer.to_le_bytes();
    }

    pub(super) fn into_vcpu(self) -> Vcpu {
        self.vcpu
    }
}

impl course::Vcpu for Obedient {
    type Error = anyhow::Error;

    fn obey_answer(&mut self, answer: u64) -> anyhow::Result<()> {
        self.answer(answer);
        self.run()
    }
}

impl Forked for Obedient {
    fn go_on(&mut self) -> anyhow::Result<()> {
        self.run()
    }
}
