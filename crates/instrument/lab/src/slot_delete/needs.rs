//! What is run where nothing is set, and what a run takes of the host.

use std::time::Duration;

use mayfly_machine::FRAMES;
use mayfly_record::Backend;

use super::kvm;
use crate::experiment::Request;
use crate::needs::{Needs, space_of, space_of_threads};
use crate::params::Size;

pub(super) const VCPUS: [u32; 4] = [4, 16, 64, 128];
pub(super) const ROUNDS: u32 = 12;
/// How often a VM's slot is deleted and created again.
pub(super) const DELETIONS: u32 = 2;
/// 1 GiB.
pub(super) const MEMORY: Size = Size::blocks(512);

/// What a VM takes, and what each vCPU adds to it.
const VM: Duration = Duration::from_millis(25);
const VCPU: Duration = Duration::from_micros(300);

/// Bytes beside what the vCPUs touch, on the machine.
const BESIDE: u64 = 48 << 20;

/// Bytes on KVM, with what the kernel has for a VM.
const ON_KVM: u64 = 16 << 20;

pub(super) fn of(request: &Request<'_>) -> Needs {
    let params = request.params;
    let (vcpus, memory) = (params.vcpus_or(&VCPUS), params.memory_or(&[MEMORY]));
    let rounds = params.rounds.unwrap_or(ROUNDS);
    let once: Duration = vcpus.iter().map(|vcpus| VM + VCPU * *vcpus).sum();
    let times = request.variants.len() * params.zaps_or_all().count() * memory.len();
    let on_machine = request.count_on(Backend::Machine) > 0;
    let threads = vcpus.iter().copied().filter(|vcpus| *vcpus <= kvm::MOST).max().unwrap_or(0);
    let (memory, space, what_for) = if on_machine {
        (BESIDE, space_of(FRAMES), "a software machine".to_owned())
    } else {
        (ON_KVM, ON_KVM + space_of_threads(threads), format!("a VM of {threads} vCPUs"))
    };
    Needs {
        memory,
        space,
        what_for,
        time: once * rounds * u32::try_from(times).unwrap_or(u32::MAX),
        changes: Vec::new(),
    }
}
