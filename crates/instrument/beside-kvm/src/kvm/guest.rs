//! A vCPU that does one order after the other, as it is told ([`mayfly_lifecycle_steps::guest`]).

use std::sync::Arc;

use anyhow::{Context, bail};
use mayfly_kvm::kvm_ioctls::VcpuExit;
use mayfly_kvm::{KVM_EXIT_DIRTY_RING_FULL, Vcpu, Vm};
use mayfly_lifecycle_steps::course;
use mayfly_lifecycle_steps::forked::Forked;
use mayfly_lifecycle_steps::guest::{BELL, MEMORY, Order, answer};

use super::ring::Ring;

/// A vCPU.
pub(super) struct Obedient {
    vcpu: Vcpu,
    /// If its VM logs in rings, its own.
    pub(super) ring: Option<Ring>,
}

impl Obedient {
    /// One that can be run.
    pub(super) fn new(vm: &Vm, number: u32) -> anyhow::Result<Self> {
        let mut vcpu = vm.create_vcpu(number)?;
        vcpu.start_at(MEMORY)?;
        Ok(Self::of(vcpu))
    }

    /// One that has its registers, or gets them.
    pub(super) const fn of(vcpu: Vcpu) -> Self {
        Self { vcpu, ring: None }
    }

    /// The same, of a VM that logs in rings.
    pub(super) fn with_ring(vm: &Arc<Vm>, number: u32) -> anyhow::Result<Self> {
        let mut this = Self::new(vm, number)?;
        this.ring = Some(Ring::map(vm, &this.vcpu)?);
        Ok(this)
    }

    /// Runs it until it asks for an order.
    pub(super) fn run(&mut self) -> anyhow::Result<()> {
        loop {
            match (self.vcpu.fd_mut().run().context("KVM_RUN")?, &mut self.ring) {
                (VcpuExit::MmioRead(BELL, [_, _, _, _, _, _, _, _]), _) => return Ok(()),
                (VcpuExit::Unsupported(KVM_EXIT_DIRTY_RING_FULL), Some(ring)) => ring.empty()?,
                (other, _) => bail!(
                    "KVM_RUN has returned an exit that the guest's program does not make: {other:?}"
                ),
            }
        }
    }

    /// Has it be between two instructions: it has been told to ask again, and has not run.
    pub(super) fn rest(&mut self) -> anyhow::Result<()> {
        self.answer(answer(Order::Ask, 0));
        let fd = self.vcpu.fd_mut();
        fd.set_kvm_immediate_exit(1);
        let left = fd.run().map(|exit| format!("{exit:?}"));
        fd.set_kvm_immediate_exit(0);
        match left {
            Err(error) if error.errno() == libc::EINTR => Ok(()),
            other => bail!("KVM_RUN that was to leave at once has returned {other:?}"),
        }
    }

    /// Gives it what it reads, when it is next run.
    fn answer(&mut self, answer: u64) {
        // SAFETY: it has come out for a read of a device's register, which `run` has seen, and all of the field is
        // bytes.
        let mmio = unsafe { &mut self.vcpu.fd_mut().get_kvm_run().__bindgen_anon_1.mmio };
        mmio.data = answer.to_le_bytes();
    }

    pub(super) const fn vcpu(&self) -> &Vcpu {
        &self.vcpu
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
