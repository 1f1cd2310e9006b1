//! Whether several threads create a VM's vCPUs sooner than one.

use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crate::{Error, Kvm, Vm};

/// vCPUs of each VM that is tried.
const VCPUS: u32 = 8;

/// VMs of each kind. The median of few is enough to tell a gain of a fifth, which is what threads have to be worth.
const VMS: usize = 5;

/// Whether it pays on this host: whether it takes at most four fifths of the time, threads and all. Not where it cannot be
/// tried.
pub(super) fn pays_in_parallel(kvm: &Kvm) -> bool {
    let measured = || -> Result<bool, Error> {
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        for _ in 0..VMS {
            alone.push(timed(kvm, 1)?);
            together.push(timed(kvm, threads())?);
        }
        Ok(median(together) * 5 < median(alone) * 4)
    };
    threads() > 1 && measured().unwrap_or(false)
}

/// Threads that create vCPUs where several do.
pub(crate) fn threads() -> u32 {
    available_parallelism().map_or(1, NonZero::get).min(VCPUS as usize) as u32
}

fn timed(kvm: &Kvm, threads: u32) -> Result<Duration, Error> {
    let vm = Vm::create(kvm)?;
    vm.create_irqchip()?;
    let start = Instant::now();
    let vcpus = vm.create_vcpus(&(0..VCPUS).collect::<Vec<_>>(), threads)?;
    let took = start.elapsed();
    vm.destroy(vcpus);
    Ok(took)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
