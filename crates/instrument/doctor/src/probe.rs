//! The probes: each creates VMs of its own, measures, and ends them.

mod life;
mod memory;
mod order;
mod pairs;
mod shared;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use mayfly_kvm::{Call, Kvm};

use crate::row::names_of;
use shared::Shared;
pub use shared::{Probe, Yield};

/// All probes of a host whose tick lasts so long; what matters most first, and what is left out where a busy host leaves
/// no time for it, last.
pub(crate) fn all(kvm: Kvm, tick: Duration) -> Vec<Probe> {
    let (kvm, seen) = (Arc::new(kvm), Arc::new(OnceLock::new()));
    let of = |name, probe: fn(&Shared, Instant) -> Yield| {
        let shared = Shared { kvm: Arc::clone(&kvm), tick, waits: Arc::clone(&seen) };
        Probe { name, run: Box::new(move |until| probe(&shared, until)) }
    };
    vec![
        of(pairs::NAME, pairs::probe),
        of(order::NAME, order::probe),
        of(life::NAME, life::probe),
        of(memory::NAME, memory::probe),
        of(pairs::OTHERS, pairs::probe_others),
    ]
}

/// Every probe and metric that there may be in an examination, by their names.
pub fn metrics() -> Vec<(&'static str, String)> {
    let calls = Call::ALL.into_iter().flat_map(|after| {
        let of = move |call| names_of(call).map(|metric| (after.name(), metric));
        Call::ALL.into_iter().flat_map(of)
    });
    let of = |rows: &'static [&'static str], metrics: &'static [&'static str]| {
        let of_row = move |row: &&'static str| {
            let row = *row;
            metrics.iter().map(move |metric| (row, (*metric).to_owned()))
        };
        rows.iter().flat_map(of_row)
    };
    let others = of(&[life::NAME], &life::METRICS)
        .chain(of(&order::ROWS, &order::METRICS))
        .chain(of(&memory::ROWS, &memory::METRICS));
    calls.chain(others).collect()
}
