//! The commands that keep a trace, and print it.

use mayfly_hwtrace::{Event, Options, Record};

use crate::bare::processor::frames;
use crate::bare::processor::trace::{Store, is_kept, start as keep, stop, ticket};
use crate::bare::processor::traced::CACHES_MAINTAINED;
use crate::bare::threads;
use crate::bare::threads::console::say;

/// Frames for 1 MiB of events, as an order.
const MIB_ORDER: u32 = 8;

/// Keeps events from now on, as many as fit into `mib` MiB. No VM runs yet.
pub(crate) fn start(mib: u64) {
    if is_kept() {
        return say!("mayfly: a trace is being kept already");
    }
    let order = MIB_ORDER + mib.next_power_of_two().trailing_zeros();
    let Some(first) = threads::frames::allocate(order) else {
        return say!("mayfly: there is no memory for a trace of {mib} MiB");
    };
    // SAFETY: the frames were given to nothing else.
    keep(unsafe { Store::new(first, order) });
}

/// Prints the events that were kept, and keeps no more.
pub(crate) fn print() {
    let Some(store) = stop() else { return say!("mayfly: no trace is being kept") };
    let (records, dropped) = (store.records(), store.dropped());
    say!("mayfly: a trace of {} events; {dropped} are missing", records.len());
    say!("{}", Options { caches_maintained: CACHES_MAINTAINED });
    for record in records {
        say!("{record}");
        threads::preemption_point();
    }
    if dropped > 0 {
        let (begin, end, event) = (ticket(), ticket(), Event::Dropped { count: dropped });
        say!("{}", Record { begin, end, cpu: 0, event });
    }
    say!("mayfly: the trace ends");
    free(&store);
}

/// Keeps no more events, and frees those that were not printed.
pub(crate) fn discard() {
    if let Some(store) = stop() {
        free(&store);
    }
}

fn free(store: &Store) {
    let (first, order) = store.frames();
    // SAFETY: given for that order; nothing uses the store after this.
    unsafe { frames::free(first, order) };
}
