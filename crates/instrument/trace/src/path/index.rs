//! The calls of each thread, and the looks at it, where they are found without going through all of them.

use std::collections::HashMap;

use crate::record::{Call, Sample, Thread, Trace};
use crate::spent::Spent;
use crate::times::Accounts;
use crate::words::lived;

/// Those of a trace, by thread, in the order of their beginnings.
pub(super) struct Index<'a> {
    calls: HashMap<i32, Vec<&'a Call>>,
    samples: HashMap<i32, Vec<&'a Sample>>,
    accounts: Accounts,
    threads: &'a [Thread],
}

impl<'a> Index<'a> {
    pub(super) fn of(trace: &'a Trace) -> Self {
        let accounts = Accounts::of(trace);
        let mut index = Self {
            calls: HashMap::new(),
            samples: HashMap::new(),
            accounts,
            threads: &trace.threads,
        };
        for call in &trace.calls {
            index.calls.entry(call.tid).or_default().push(call);
        }
        for sample in &trace.samples {
            index.samples.entry(sample.tid).or_default().push(sample);
        }
        for all in index.calls.values_mut() {
            all.sort_by_key(|call| call.at);
        }
        for all in index.samples.values_mut() {
            all.sort_by_key(|sample| sample.at);
        }
        index
    }

    /// A thread's calls that were under way between two times.
    pub(super) fn calls(&self, tid: i32, from: u64, to: u64) -> impl Iterator<Item = &'a Call> {
        let all = self.calls.get(&tid).map_or(&[][..], |all| all);
        meanwhile(all, from, to, |call| (call.at, call.end()))
    }

    /// When a thread that was there at a time began to end.
    pub(super) fn ending(&self, tid: i32, at: u64) -> Option<u64> {
        let mut threads = self.threads.iter().rev();
        threads.find(|one| one.tid == tid && lived(one, at))?.ending
    }

    /// How a thread spent its time between two moments.
    pub(super) fn spent(&self, tid: i32, from: u64, to: u64) -> Option<Spent> {
        self.accounts.spent(tid, (from, to), self.samples(tid, from, to))
    }

    /// The looks at a thread that were between two times, or around them.
    pub(super) fn samples(&self, tid: i32, from: u64, to: u64) -> impl Iterator<Item = &'a Sample> {
        let all = self.samples.get(&tid).map_or(&[][..], |all| all);
        meanwhile(all, from, to, |sample| (sample.at, sample.at + sample.took))
    }
}

/// A thread does one thing at a time: of those that had begun before, the last alone may go on.
fn meanwhile<'a, T>(
    all: &[&'a T],
    from: u64,
    to: u64,
    span: impl Fn(&T) -> (u64, u64),
) -> impl Iterator<Item = &'a T> {
    let first = all.partition_point(|one| span(one).0 < from).saturating_sub(1);
    let last = all.partition_point(|one| span(one).0 < to);
    let all: Vec<&'a T> = all[first.min(last)..last].to_vec();
    all.into_iter().filter(move |one| span(one).1 >= from)
}
