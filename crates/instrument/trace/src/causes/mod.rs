//! What waits are made of: a catalogue, one file a cause.
//!
//! A cause is named where there is evidence of it, and of nothing else: which call waited, what was called before, where
//! in the kernel the thread was seen, what it had of the processors, how long it took in ticks, what is known of the host.
//! A wait that fits none stays unexplained.

mod between;
mod busy;
mod controller;
mod destroy;
mod dirty_log;
mod elsewhere;
mod evidence;
mod exit;
mod first_touch;
mod grace_period;
mod io;
mod kick;
mod large_memslot;
mod likely;
mod lock;
mod many_mappings;
mod memory_limit;
mod mmap_lock;
mod paging;
mod poll;
mod populate;
mod sleep;
mod slot_delete;
#[cfg(test)]
mod tests;
mod unmap;
mod userfault;
mod vcpus;
mod worker;

pub(crate) use evidence::own;

use crate::path::{Held, Runnable};
use crate::record::{Call, Cause, Stall, Trace};

/// The names of all causes.
pub(crate) const CODES: [&str; 29] = [
    "grace-period",
    "huge-page-worker",
    "many-mappings",
    "irqchip-creation",
    "slot-delete",
    "dirty-log",
    "large-memslot",
    "vm-destruction",
    "close-after-create",
    "held-elsewhere",
    "populated-memory",
    "first-touch",
    "unmapped-memory",
    "mmap-lock",
    "lock-contention",
    "blocking-io",
    "memory-limit",
    "memory-freed-at-exit",
    "vcpus-one-by-one",
    "polled-join",
    "own-sleep",
    "lost-kick",
    "userfault",
    "serial-userfault",
    "snapshot-faults",
    "image-loading",
    "slow-input",
    "busy-processor",
    "cpu-limit",
];

/// Finds the cause of one long call, if it is the one that this is about.
type OfCall = fn(&Trace, &Call) -> Option<Cause>;

/// Finds waits that are no single call, and their cause.
type OfLife = fn(&Trace) -> Vec<Stall>;

/// In the order in which they are asked: that other threads had the processor comes last, for it makes all else longer.
const OF_CALLS: [OfCall; 14] = [
    memory_limit::of_call,
    worker::find,
    many_mappings::find,
    mmap_lock::find,
    dirty_log::find,
    grace_period::find,
    slot_delete::find,
    destroy::find,
    populate::find,
    large_memslot::find,
    unmap::find,
    vcpus::find_one,
    controller::find,
    busy::find,
];

/// Which of them is about others alone.
const ALONE: usize = OF_CALLS.len() - 1;

const OF_LIVES: [OfLife; 9] = [
    poll::find,
    sleep::find,
    kick::find,
    exit::find,
    userfault::find,
    paging::find,
    vcpus::find,
    between::find,
    elsewhere::find,
];

/// The cause of a sleep that is no call of the record.
pub(crate) fn of_sleep(trace: &Trace, held: &Held<'_>) -> Option<Cause> {
    let causes = [memory_limit::of_sleep, lock::find, io::find, first_touch::find, sleep::of_many];
    causes.iter().find_map(|find| find(trace, held))
}

/// The cause of what a thread on a critical path waited for a processor.
pub(crate) fn of_runnable(trace: &Trace, one: &Runnable) -> Cause {
    let took = (one.took, one.hung);
    busy::runnable(trace, took, (one.from, one.to), "the time in which something hung on it")
}

/// All waits of a trace that a cause is found for.
pub(crate) fn find(trace: &Trace) -> Vec<Stall> {
    let long = trace.calls.iter().filter(|call| call.took >= Some(trace.least()));
    let of_call = |call: &Call| {
        // What is short but for others is theirs alone.
        let causes =
            if evidence::own(call) < trace.least() { &OF_CALLS[ALONE..] } else { &OF_CALLS };
        let cause = causes.iter().find_map(|find| find(trace, call))?;
        Some(Stall { cause: Some(cause), ..trace.stall_of(call) })
    };
    let mut stalls: Vec<Stall> = long.filter_map(of_call).collect();
    stalls.extend(OF_LIVES.iter().flat_map(|find| find(trace)));
    stalls
}
