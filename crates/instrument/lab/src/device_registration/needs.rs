//! What is run where nothing is set, and what a run takes of the host.

use std::time::Duration;

use mayfly_machine::FRAMES;
use mayfly_record::Backend;

use crate::experiment::Request;
use crate::needs::{Needs, space_of, space_of_threads};

pub(super) const VMS: u32 = 100;
pub(super) const DEVICES: u32 = 8;
pub(super) const VCPUS: u32 = 2;

/// What a VM's life takes, in ticks: the pauses before it and in it, and what it waits for. On the machine, and on KVM.
const TICKS: [u32; 2] = [9, 26];

/// Bytes for each design.
const MEMORY: u64 = 10 << 20;

pub(super) fn of(request: &Request<'_>) -> Needs {
    let params = request.params;
    let counts = [Backend::Machine, Backend::Kvm].map(|backend| request.count_on(backend));
    let lives = params.vms.unwrap_or(VMS)
        * params.orders_or_all().map(|_| 1).sum::<u32>()
        * params.vcpus_or(&[VCPUS]).len() as u32;
    let most = params.vcpus_or(&[VCPUS]).into_iter().max().unwrap_or(VCPUS);
    let ticks: u32 = counts.iter().zip(TICKS).map(|(count, ticks)| count * ticks).sum();
    Needs {
        memory: MEMORY * u64::from(counts[0] + counts[1]),
        space: match counts[0] {
            0 => MEMORY + space_of_threads(most),
            machines => u64::from(machines) * space_of(FRAMES),
        },
        what_for: match counts[0] {
            0 => format!("a VM of {most} vCPUs"),
            _ => "a software machine of each design".to_owned(),
        },
        time: Duration::from_secs(1) / request.hz() * ticks * lives,
        changes: Vec::new(),
    }
}
