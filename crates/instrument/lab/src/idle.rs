//! Whether guests are more than the host's processors, and what follows.

use std::thread::available_parallelism;
use std::time::Duration;

/// What a stay in the guest takes of a processor, with something to spare.
const BUSY: Duration = Duration::from_micros(60);

/// For how long each of `vcpus` vCPUs is idle between two stays in the guest: not at all where each has a processor.
/// Where they are more, for long enough that the processors suffice: who is asked something comes to it soon, as it
/// would on a processor of its own, and not when all others have had their turns.
pub(crate) fn idle(vcpus: u32) -> Duration {
    let processors = processors();
    if vcpus > processors { BUSY * vcpus / processors } else { Duration::ZERO }
}

/// Processors that this process may run on.
fn processors() -> u32 {
    available_parallelism().ok().and_then(|count| u32::try_from(count.get()).ok()).unwrap_or(1)
}

/// Whether the time on the clock is what is measured: each vCPU has a processor, and so have the caller and the worker.
/// With one less it is the scheduler's as well.
pub(crate) fn has_clock(vcpus: u32, cpus: usize) -> bool {
    cpus >= vcpus as usize + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_counts_where_there_is_a_processor_for_each_thread() {
        for (vcpus, cpus, counts) in [(4, 6, true), (4, 5, false), (1, 2, false), (128, 130, true)]
        {
            assert_eq!(has_clock(vcpus, cpus), counts, "{vcpus} vCPUs on {cpus} CPUs");
        }
    }
}
