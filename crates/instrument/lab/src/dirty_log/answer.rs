//! The answer of `dirty-log`: what a dirty log costs the caller and its guests, and what to do.

use mayfly_record::{BASELINE, ResultRow, units};

use crate::answers::Answer;
use crate::params::Bound;
use crate::rows::{Rows, times};

use super::metrics::{CALLED_STALL_LONGEST, CYCLE_CPU, STALL_LONGEST, START_CPU};
use super::names::{INITIALLY_SET, RING, WRITE_LOCKED, WRITE_PROTECT};

/// What a dirty log costs, and what to do.
pub(super) fn answer(rows: &[ResultRow]) -> Answer {
    let rows = Rows::of(rows);
    let (most, vcpus) = rows.machine(BASELINE).most(Bound::VCPUS.name);
    let least = most.least(Bound::WRITTEN.name);
    let of = |variant| {
        rows.machine(variant).with(Bound::VCPUS.name, vcpus).with(Bound::WRITTEN.name, least)
    };
    let [mayfly, protect, set, locked] =
        [BASELINE, WRITE_PROTECT, INITIALLY_SET, WRITE_LOCKED].map(of);
    let guest = || format!("{} writing {least} % of the pages", units::things(vcpus, "vCPU"));
    let start = || {
        let (first, ours) = (protect.time(START_CPU)?, mayfly.time(START_CPU)?);
        Some(format!(
            "What waits: the caller that switches a dirty log on. With {}, write-protecting all of it takes {first} of \
             CPU time, and with Mayfly {ours}.",
            guest()
        ))
    };
    let cycle = || {
        let linux = [WRITE_PROTECT, INITIALLY_SET, RING, WRITE_LOCKED].into_iter();
        let best = linux.filter_map(|name| Some((of(name).p50(CYCLE_CPU)?, name)));
        let (best, name) = best.min()?;
        let ours = mayfly.p50(CYCLE_CPU)?;
        let gain = times(Some(best), Some(ours))?;
        Some(format!(
            "A whole cycle takes the caller {} with Mayfly, and {} with the best of Linux's designs, {name}: {gain} of \
             Mayfly's.",
            units::duration(ours),
            units::duration(best)
        ))
    };
    let stalls = || {
        let (locked, ours) = (locked.time(STALL_LONGEST)?, mayfly.time(STALL_LONGEST)?);
        let set = set.time(CALLED_STALL_LONGEST)?;
        Some(format!(
            "A vCPU's longest stall is {locked} where one lock covers all tables, {set} while a bitmap that began full \
             is cleared, and {ours} with Mayfly."
        ))
    };
    let advice = || {
        mayfly.p50(CYCLE_CPU)?;
        Some(
            "What to do: on KVM, switch the log on with KVM_DIRTY_LOG_INITIALLY_SET, and clear it in small parts."
                .to_owned(),
        )
    };
    Answer::of(None, [start(), cycle(), stalls()], advice())
        .by(Bound::VCPUS.name, vcpus)
        .by(Bound::WRITTEN.name, least)
}
