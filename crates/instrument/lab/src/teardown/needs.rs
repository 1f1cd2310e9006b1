//! What a run takes of the host.

use std::time::Duration;

use mayfly_record::Backend;

use super::kvm;
use super::names::{SIZES, rounds};
use crate::experiment::Request;
use crate::mapping::Mapping;
use crate::needs::{Needs, space_of};
use crate::params::Size;
use crate::populate::frames_for;

/// What it takes to build a VM of a GiB and to end it: on the machine, in either mapping; and on KVM, where it is
/// touched.
const GIB: [Duration; 2] = [Duration::from_millis(12), Duration::from_millis(600)];

/// Bytes beside what VMs have.
const BESIDE: u64 = 64 << 20;

/// What a run takes, where `sample` bytes are touched on the machine at most.
pub(super) fn of(request: &Request<'_>, sample: Size) -> Needs {
    let sizes = request.params.memory_or(&SIZES);
    let largest = sizes.iter().copied().max().unwrap_or(SIZES[0]);
    // What there is no room for does not run.
    let runs =
        |size: &Size| Mapping::ALL.iter().any(|of| kvm::why_not(*size, *of, request).is_none());
    let on_kvm: Vec<Size> = sizes.iter().copied().filter(runs).collect();
    let [machine, kvm] = [Backend::Machine, Backend::Kvm].map(|backend| request.count_on(backend));
    let gib = |sizes: &[Size]| {
        sizes.iter().map(|size| size.bytes()).sum::<u64>() as f64 / (1_u64 << 30) as f64
    };
    let times = rounds(request) * Mapping::ALL.len() as u32;
    let runs_on = |count: u32| u64::from(count.min(1));
    let touched_on_kvm = on_kvm.iter().map(|size| size.bytes()).max().unwrap_or(0);
    // Entries of 8 bytes for each 4 KiB.
    let on_machine = sample.bytes().min(largest.bytes()) + (largest.bytes() >> 9);
    Needs {
        memory: BESIDE + (on_machine * runs_on(machine)).max(touched_on_kvm * runs_on(kvm)),
        space: runs_on(machine) * frames_for(largest).map_or(u64::MAX, space_of),
        what_for: format!("a VM of {largest}"),
        time: GIB[0].mul_f64(gib(&sizes)) * machine * times
            + GIB[1].mul_f64(gib(&on_kvm)) * kvm * times,
        changes: Vec::new(),
    }
}
