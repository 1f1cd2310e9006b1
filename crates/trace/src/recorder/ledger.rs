//! What events have told of threads: how long each ran and waited for a processor, and how much it has read.

use std::cell::Cell;
use std::collections::HashMap;

use crate::record::Used;

/// What a thread does, as the scheduler has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Waits,
    Queued,
    Runs,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    used: Used,
    state: State,
    since: u64,
}

impl Account {
    /// Up to `now`.
    fn used(self, now: u64) -> Used {
        let Used { mut ran, mut queued } = self.used;
        let time = now.saturating_sub(self.since);
        match self.state {
            State::Waits => {}
            State::Queued => queued += time,
            State::Runs => ran += time,
        }
        Used { ran, queued }
    }

    fn becomes(&mut self, state: State, now: u64) {
        *self = Self { used: self.used(now), state, since: now };
    }
}

/// What events have told up to now.
#[derive(Default)]
pub(super) struct Ledger {
    /// The time of the event that is looked at.
    pub(super) at: u64,
    /// When memory was last read, after what it was read for had begun.
    pub(super) looked: Cell<Option<u64>>,
    accounts: HashMap<i32, Account>,
    read: HashMap<i32, u64>,
    resident: HashMap<i32, u64>,
}

impl Ledger {
    /// One thread leaves a processor, as one that could go on or not, and another gets it.
    pub(super) fn switches(&mut self, from: i32, goes_on: bool, to: i32) {
        let now = self.at;
        let left = if goes_on { State::Queued } else { State::Waits };
        for (tid, state) in [(from, left), (to, State::Runs)] {
            if tid != 0 {
                self.accounts.entry(tid).or_default().becomes(state, now);
            }
        }
    }

    /// A thread may go on.
    pub(super) fn wakes(&mut self, tid: i32) {
        let account = self.accounts.entry(tid).or_default();
        if account.state == State::Waits {
            account.becomes(State::Queued, self.at);
        }
    }

    /// A thread runs: it has called something.
    pub(super) fn runs(&mut self, tid: i32) {
        let account = self.accounts.entry(tid).or_default();
        if account.state != State::Runs {
            account.becomes(State::Runs, self.at);
        }
    }

    /// A thread has read so many bytes.
    pub(super) fn reads(&mut self, tid: i32, bytes: u64) {
        *self.read.entry(tid).or_default() += bytes;
    }

    /// A process was seen to have so much memory.
    pub(super) fn has(&mut self, pid: i32, bytes: u64) {
        self.resident.insert(pid, bytes);
    }

    /// What a thread is known to have had of the processors, if it was seen at all.
    pub(super) fn used(&self, tid: i32) -> Option<Used> {
        Some(self.accounts.get(&tid)?.used(self.at))
    }

    pub(super) fn read(&self, tid: i32) -> u64 {
        self.read.get(&tid).copied().unwrap_or(0)
    }

    pub(super) fn resident(&self, pid: i32) -> Option<u64> {
        self.resident.get(&pid).copied()
    }

    /// Another may get a number when its thread is gone.
    pub(super) fn forget(&mut self, tid: i32) {
        self.accounts.remove(&tid);
        self.read.remove(&tid);
        self.resident.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_between_its_switches_and_is_queued_when_it_could() {
        let mut ledger = Ledger::default();
        let at = |ledger: &mut Ledger, time| ledger.at = time;
        at(&mut ledger, 10);
        ledger.switches(0, true, 7);
        at(&mut ledger, 30);
        ledger.switches(7, false, 8);
        at(&mut ledger, 35);
        ledger.wakes(7);
        ledger.wakes(7);
        at(&mut ledger, 40);
        ledger.switches(8, true, 7);
        at(&mut ledger, 41);
        assert_eq!(ledger.used(7), Some(Used { ran: 21, queued: 5 }));
        assert_eq!(ledger.used(8), Some(Used { ran: 10, queued: 1 }));
        assert_eq!((ledger.used(0), ledger.used(9)), (None, None));
        ledger.forget(7);
        assert_eq!(ledger.used(7), None);
    }
}
