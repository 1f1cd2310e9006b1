//! Whom a measured part interrupted, as the backend counts it.

use mayfly_kvm::{Vcpu, Vm};
use mayfly_machine::Machine;
use mayfly_platform::Op;
use mayfly_stage2::Format;

use super::spent::Spent;

/// What a machine had counted at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupts {
    membarriers: u64,
    tlb_requests: u64,
}

impl Interrupts {
    /// What `machine` has counted so far: heavy barriers, each of which interrupts every processor that runs a thread of
    /// the process; and requests that were put to CPUs' TLBs.
    pub(crate) fn of<F: Format>(machine: &Machine<F>) -> Self {
        let hardware = machine.hardware();
        Self {
            membarriers: hardware.charged(Op::HeavyBarrier),
            tlb_requests: hardware.tlbs().counts().posts,
        }
    }

    /// Adds what was counted between `before` and this to `spent`.
    pub(crate) fn since(self, before: Self, spent: &mut Spent) {
        spent.count("membarriers", self.membarriers - before.membarriers);
        spent.count("tlb_requests", self.tlb_requests - before.tlb_requests);
    }
}

/// Of what KVM counts, that which says who came out of the guest, who was interrupted, and what was forgotten. Kernels
/// and architectures have some of it.
const KVM: [&str; 10] = [
    "exits",
    "irq_exits",
    "request_irq_exits",
    "mmio_exits",
    "io_exits",
    "tlb_flush",
    "remote_tlb_flush",
    "remote_tlb_flush_requests",
    "pf_taken",
    "invlpg",
];

/// Adds what KVM has counted of a VM and its vCPUs since they were created to `spent`; nothing where the kernel does not
/// tell (before v5.14).
pub(crate) fn kvm<'a>(vm: &Vm, vcpus: impl IntoIterator<Item = &'a Vcpu>, spent: &mut Spent) {
    let all = vcpus.into_iter().map(Vcpu::statistics).chain([vm.statistics()]);
    for statistics in all.filter_map(Result::ok) {
        for name in KVM {
            if let Some(count) = statistics.get(name) {
                spent.count(&format!("kvm_{name}"), count);
            }
        }
    }
}
