//! What is run where nothing is set, and what a run takes of the host.

use std::time::Duration;

use mayfly_machine::FRAMES;
use mayfly_record::Backend;

use crate::experiment::Request;
use crate::needs::{Needs, space_of};
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

/// Bytes beside what the vCPUs touch.
const BESIDE: u64 = 48 << 20;

pub(super) fn of(request: &Request<'_>) -> Needs {
    let params = request.params;
    let (vcpus, memory) = (params.vcpus_or(&VCPUS), params.memory_or(&[MEMORY]));
    let rounds = params.rounds.unwrap_or(ROUNDS);
    let once: Duration = vcpus.iter().map(|vcpus| VM + VCPU * *vcpus).sum();
    let times = request.variants.len() * params.zaps_or_all().count() * memory.len();
    let machine = u64::from(request.count_on(Backend::Machine).min(1));
    Needs {
        memory: BESIDE,
        space: machine * space_of(FRAMES),
        what_for: "a software machine".to_owned(),
        time: once * rounds * u32::try_from(times).unwrap_or(u32::MAX),
        changes: Vec::new(),
    }
}
