//! The program's control group has as much memory as it may have: who allocates frees memory first, or is slowed down.
//!
//! Above `memory.high` a thread sleeps before it returns from the kernel (`mem_cgroup_handle_over_high` of
//! `mm/memcontrol.c`); at `memory.max` it frees memory of the group (`try_charge_memcg`).

use super::evidence::Stretch;
use super::likely::likely;
use crate::path::Held;
use crate::record::{Call, Cause, Trace};

const LIMITS: [&str; 4] = [
    "mem_cgroup_handle_over_high",
    "__mem_cgroup_handle_over_high",
    "try_to_free_mem_cgroup_pages",
    "mem_cgroup_out_of_memory",
];

pub(super) fn of_call(trace: &Trace, call: &Call) -> Option<Cause> {
    of(&Stretch::of(trace, call))
}

pub(super) fn of_sleep(trace: &Trace, held: &Held<'_>) -> Option<Cause> {
    of(&Stretch { trace, tid: held.tid, from: held.from, to: held.to })
}

/// Named if most looks found the thread there: to pass by is no wait.
fn of(stretch: &Stretch<'_>) -> Option<Cause> {
    let seen = stretch.seen_in(&LIMITS)?;
    let (there, all) = (stretch.looks_at(&LIMITS), stretch.looks());
    (2 * there > all).then(|| {
        likely(
            "memory-limit",
            "the control group has all the memory that it may have, and frees some first",
            "raise the group's memory.high and memory.max, or give the guest less memory",
            vec![format!("it was seen in {seen} in {there} of {all} looks")],
        )
    })
}
