//! Which calls on this host's KVM wait for which others.
//!
//! Since Linux v6.18, registering a device on an I/O bus arms a delay. A call that comes soon after and needs a grace
//! period sleeps until the delay is over: one to two ticks. Which calls do either differs between kernels and between
//! KVM's modules. So it is measured. [`measure`] makes each of two calls in VMs of its own, one right after the other
//! and one a while after, and a [`Pair`] says whether that makes a difference in ticks. [`Waits`] is the result for a
//! whole host, and is measured [once a boot](Waits::of_host).
//!
//! `waits.rs` and `waits/kept.rs` import each other: a host's waits are read from a file, and the file has their
//! fields.

mod call;
mod kept;
mod measure;
mod pair;
mod stage;
mod vcpus;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use call::Call;
pub use measure::{Effort, measure};
pub use pair::{Pair, Verdict};
pub(crate) use vcpus::threads as vcpu_threads;

use crate::Kvm;
use crate::tick::tick;

/// Which call waits for which other, on one host as long as it is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The second call of each pair that was measured, by the first: how long it waits, in nanoseconds. 0 where it does not.
    of: BTreeMap<(Call, Call), u64>,
    parallel_vcpus: bool,
}

impl Waits {
    /// How long measuring what the builder needs takes at most, beyond what is under way.
    const TIME: Duration = Duration::from_secs(2);

    /// This host's, from what was kept of them since it was booted; else they are measured, which takes a second, and
    /// kept. What is kept is in `/run/mayfly` for root, and for others where `XDG_CACHE_HOME` says, or in `~/.cache`. It
    /// is measured anew after a boot, on another kernel, or where KVM's modules are loaded with other parameters; what
    /// cannot be read, or is not what was written there, is measured anew, too. That it cannot be kept is no failure. A
    /// measurement for which there was too little time is not kept.
    pub fn of_host(kvm: &Kvm) -> Self {
        let (path, host) = (kept::path(), kept::host());
        let found = path.as_ref().zip(host.as_ref());
        if let Some(waits) = found.and_then(|(path, host)| kept::read(path, host)) {
            return waits;
        }
        let (waits, is_whole) = Self::measured_at_once(kvm);
        if let Some((path, host)) = found.filter(|_| is_whole) {
            kept::write(path, host, &waits);
        }
        waits
    }

    /// Measures those that bear on the start of a VM: a second, two at the most.
    pub fn measured(kvm: &Kvm) -> Self {
        Self::measured_at_once(kvm).0
    }

    /// The same, and whether there was time for all of it.
    fn measured_at_once(kvm: &Kvm) -> (Self, bool) {
        let tick = tick();
        let effort = Effort { fewest: 3, most: 9, until: Instant::now() + Self::TIME };
        let pairs = measure(kvm, tick, &Self::pairs(), effort);
        let is_known = |pair: &Pair| pair.error.is_some() || pair.verdict(tick) != Verdict::Unknown;
        let waits = Self::of_pairs(&pairs, tick).creating_vcpus(vcpus::pays_in_parallel(kvm));
        (waits, pairs.iter().all(is_known))
    }

    /// What pairs come to, where a tick lasts so long. What cannot be told counts as a wait where half of the samples were
    /// long: a plan that avoids it loses nothing.
    pub fn of_pairs(pairs: &[Pair], tick: Duration) -> Self {
        let known = |pair: &Pair| {
            let waits = match pair.verdict(tick) {
                Verdict::Waits(time) => time.as_nanos(),
                Verdict::Unclear(time) if time > tick / 2 => time.as_nanos(),
                Verdict::Unclear(_) | Verdict::DoesNot => 0,
                Verdict::Unknown => return None,
            };
            Some(((pair.after, pair.call), waits.try_into().unwrap_or(u64::MAX)))
        };
        Self { of: pairs.iter().filter_map(known).collect(), parallel_vcpus: false }
    }

    /// The same, of a host on which creating vCPUs in parallel pays, or does not.
    #[must_use]
    pub fn creating_vcpus(self, in_parallel: bool) -> Self {
        Self { parallel_vcpus: in_parallel, ..self }
    }

    /// How long `call` waits if it comes right after `after`; no time if it does not, or if it is not known.
    pub fn of(&self, after: Call, call: Call) -> Duration {
        Duration::from_nanos(self.of.get(&(after, call)).copied().unwrap_or(0))
    }

    /// Whether anything waits.
    pub fn are_there(&self) -> bool {
        self.of.values().any(|&wait| wait > 0)
    }

    /// Whether several threads create a VM's vCPUs sooner than one.
    pub fn parallel_vcpus(&self) -> bool {
        self.parallel_vcpus
    }

    /// Where they are kept, if anywhere.
    pub fn kept_at() -> Option<PathBuf> {
        kept::path()
    }

    /// The pairs that may come in a VM's start: those that [`Waits::measured`] measures.
    pub fn pairs() -> Vec<(Call, Call)> {
        const STARTING: [Call; 7] = [
            Call::IrqchipFull,
            Call::IrqchipSplit,
            Call::Pit,
            Call::IoeventfdAdd,
            Call::IrqfdAdd,
            Call::Vcpu,
            Call::MemslotAdd,
        ];
        let of = |after: Call| STARTING.into_iter().map(move |call| (after, call));
        STARTING.into_iter().flat_map(of).filter(|(after, call)| after.may_precede(*call)).collect()
    }
}
