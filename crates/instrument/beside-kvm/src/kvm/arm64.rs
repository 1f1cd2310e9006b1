//! arm64: perf counts instructions, by exception level, and a guest begins as out of a reset.

mod counted;
pub(super) mod perf;

use mayfly_kvm::{GuestMemory, Kvm, Vcpu, Vm};
use mayfly_lifecycle_steps::guest::{ENTRY, arm64};

pub(super) use counted::Counter;

/// How a vCPU begins.
pub(super) struct Start;

impl Start {
    #[expect(clippy::unnecessary_wraps, reason = "as on x86-64")]
    pub(super) fn of(_kvm: &Kvm) -> anyhow::Result<Self> {
        Ok(Self)
    }

    /// Has a vCPU that has not run begin so.
    #[expect(clippy::unused_self, reason = "as on x86-64")]
    pub(super) fn begin(&self, vcpu: &mut Vcpu, _number: u32) -> anyhow::Result<()> {
        Ok(vcpu.start_at(ENTRY)?)
    }
}

/// Writes the guest's code to the memory that it begins with.
pub(super) fn install(memory: &GuestMemory) -> anyhow::Result<()> {
    arm64::install(Vm::DISTRIBUTOR, Vm::REDISTRIBUTORS, |at, bytes| {
        Ok(memory.write(usize::try_from(at)?, bytes)?)
    })
}
