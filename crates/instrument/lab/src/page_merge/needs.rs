//! What is run where nothing is set, and what a run takes of the host.

use std::time::Duration;

use mayfly_record::Backend;

use super::rig::frames;
use super::shape::Shape;
use crate::experiment::Request;
use crate::needs::{Needs, space_of};
use crate::params::{Ksm, Size};

pub(super) const VMS: u32 = 8;
pub(super) const VCPUS: u32 = 2;
pub(super) const ROUNDS: u32 = 10;
/// 4 MiB.
pub(super) const MEMORY: Size = Size::blocks(2);

/// As KSM merges: each page is a change of its own.
pub(super) const PAGES_A_CHANGE: u32 = 1;

/// Formats that each design on the machine runs in.
const FORMATS: u32 = 2;

/// What a round takes for each MiB of all VMs' memory, on the machine and on KVM.
const MIB: [Duration; 2] = [Duration::from_millis(9), Duration::from_millis(25)];

/// Bytes beside what VMs have.
const BESIDE: u64 = 48 << 20;

/// What is done, one after the other.
pub(super) fn shapes(request: &Request<'_>) -> Vec<Shape> {
    let params = request.params;
    let (vms, rounds) = (params.vms.unwrap_or(VMS), params.rounds.unwrap_or(ROUNDS));
    let pages_a_change = params.pages_a_change.unwrap_or(PAGES_A_CHANGE);
    let of = |vcpus| {
        let shape = move |memory| Shape { vms, vcpus, rounds, memory, pages_a_change };
        params.memory_or(&[MEMORY]).into_iter().map(shape)
    };
    params.vcpus_or(&[VCPUS]).into_iter().flat_map(of).collect()
}

pub(super) fn of(request: &Request<'_>) -> Needs {
    let [machine, kvm] = [Backend::Machine, Backend::Kvm].map(|backend| request.count_on(backend));
    // Left alone, the merger costs nothing.
    let kvm = if request.params.ksm.is_some() { kvm } else { 0 };
    let mut needs = Needs { memory: BESIDE, what_for: "all VMs".to_owned(), ..Needs::default() };
    for shape in shapes(request) {
        let bytes = u64::from(shape.vms) * shape.memory.bytes();
        let mib = bytes as f64 / f64::from(1 << 20);
        let a_mib = MIB[0] * machine * FORMATS + MIB[1] * kvm;
        needs.time += a_mib.mul_f64(mib) * shape.rounds;
        needs.memory = needs.memory.max(BESIDE + 2 * bytes);
        if machine > 0 {
            needs.space = needs.space.max(space_of(frames(shape)));
        }
    }
    needs.changes.extend(request.params.ksm.filter(|_| kvm > 0).map(change));
    needs
}

/// What the host's page merger does to it.
fn change(ksm: Ksm) -> String {
    let whose = match ksm {
        Ksm::Alone => "this run's memory is merged, and taken apart again",
        Ksm::Shared => "all memory is merged of which a process allows it, and others' stays so",
    };
    format!("the page merger's settings, which are put back; {whose}")
}
