//! Which calls wait for which others.

use std::time::{Duration, Instant};

use mayfly_kvm::{Call, Effort, Waits, measure};

use super::shared::{Shared, Yield};

pub(super) const NAME: &str = "pairs";
pub(super) const OTHERS: &str = "other-pairs";

/// Samples of each pair, and of one that a busy host makes hard to tell.
const SAMPLES: [usize; 2] = [4, 15];

/// How long the pairs that matter most may take.
const LONGEST: Duration = Duration::from_secs(4);

/// The pairs of a VM's start, which a builder has to know, and what is known to wait on one kernel or another: a change of
/// memory, or a device taken away, after a registration.
pub(super) fn probe(shared: &Shared, until: Instant) -> Yield {
    let found = of(shared, matters_most, until.min(Instant::now() + LONGEST));
    let waits = Waits::of_pairs(&found.pairs, shared.tick);
    shared.waits.get_or_init(|| waits);
    found
}

/// All others.
pub(super) fn probe_others(shared: &Shared, until: Instant) -> Yield {
    of(shared, |after, call| !matters_most(after, call), until)
}

fn of(shared: &Shared, which: impl Fn(Call, Call) -> bool, until: Instant) -> Yield {
    let after = |after: Call| Call::ALL.into_iter().map(move |call| (after, call));
    let pairs = Call::ALL.into_iter().flat_map(after);
    let is_one = |&(after, call): &(Call, Call)| after.may_precede(call) && which(after, call);
    let pairs: Vec<_> = pairs.filter(is_one).collect();
    let [fewest, most] = SAMPLES;
    let pairs = measure(&shared.kvm, shared.tick, &pairs, Effort { fewest, most, until });
    Yield { pairs, rows: Vec::new() }
}

fn matters_most(after: Call, call: Call) -> bool {
    let registers = [Call::IrqchipFull, Call::Pit, Call::IoeventfdAdd, Call::IoeventfdRemove];
    let pays = [Call::MemslotMove, Call::MemslotDelete, Call::IoeventfdRemove];
    Waits::pairs().contains(&(after, call)) || registers.contains(&after) && pays.contains(&call)
}
