//! What events have told of threads: how long each ran and waited for a processor, and how much it has read.

use std::cell::Cell;
use std::collections::HashMap;

use super::accounts::Accounts;
use super::both_ends::BothEnds;
use crate::record::{Used, Wake};

/// Waits that are kept of the beginning, and as many of the end.
const MOST: usize = 25_000;
/// A shorter wait delays no other thread, in nanoseconds.
const SHORT: u64 = 20_000;

/// What a thread does, as the scheduler has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Waits,
    Queued,
    Runs,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    used: Used,
    state: State,
    since: u64,
}

impl Known {
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
    /// Waits that are over, and the thread that ended each.
    woken: BothEnds<Wake, MOST>,
    /// What threads had of the processors, and when.
    pub(super) accounts: Accounts,
    known: HashMap<i32, Known>,
    read: HashMap<i32, u64>,
    resident: HashMap<i32, u64>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self { accounts: Accounts::new(SHORT), ..Self::default() }
    }

    /// One thread leaves a processor, as one that could go on or not, and another gets it.
    /// Of threads that are not `ours` nothing is kept.
    pub(super) fn switches(
        &mut self,
        from: i32,
        goes_on: bool,
        to: i32,
        is_ours: impl Fn(i32) -> bool,
    ) {
        let now = self.at;
        let left = if goes_on { State::Queued } else { State::Waits };
        for (tid, state) in [(from, left), (to, State::Runs)] {
            if tid != 0 && is_ours(tid) {
                self.becomes(tid, state, now);
            }
        }
    }

    /// A thread was woken; `by` is the thread that woke it, if it was a thread.
    pub(super) fn wakes(&mut self, tid: i32, by: Option<i32>) {
        let at = self.at;
        // One of which nothing was seen before has begun to wait at a time that is not known.
        let known = self.known.get(&tid).is_some_and(|one| one.state == State::Waits);
        let Known { since, state, .. } = self.known.get(&tid).copied().unwrap_or_default();
        if state == State::Waits {
            self.becomes(tid, State::Queued, at);
        }
        if known && at.saturating_sub(since) >= SHORT {
            self.woken.push(Wake { tid, since, at, by });
        }
    }

    /// The waits that are over, in the order of their ends; there are none of them here any more.
    pub(super) fn take_woken(&mut self) -> Vec<Wake> {
        std::mem::take(&mut self.woken).into_vec()
    }

    /// A thread whose switches are not told was woken, and so must have waited.
    pub(super) fn has_waited(&mut self, tid: i32) {
        if let Some(known) = self.known.get_mut(&tid) {
            known.state = State::Waits;
        }
    }

    /// A thread begins to end: its switches are not told from now on.
    pub(super) fn ends(&mut self, tid: i32) {
        if let Some(used) = self.used(tid) {
            self.accounts.add(tid, self.at, used);
            self.accounts.forget(tid);
        }
    }

    /// A thread runs: it has called something.
    pub(super) fn runs(&mut self, tid: i32) {
        if self.known.get(&tid).is_none_or(|one| one.state != State::Runs) {
            self.becomes(tid, State::Runs, self.at);
        }
    }

    fn becomes(&mut self, tid: i32, state: State, now: u64) {
        let known = self.known.entry(tid).or_default();
        known.becomes(state, now);
        let used = known.used;
        self.accounts.add(tid, now, used);
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
        Some(self.known.get(&tid)?.used(self.at))
    }

    pub(super) fn read(&self, tid: i32) -> u64 {
        self.read.get(&tid).copied().unwrap_or(0)
    }

    pub(super) fn resident(&self, pid: i32) -> Option<u64> {
        self.resident.get(&pid).copied()
    }

    /// Another may get a number when its thread is gone.
    pub(super) fn forget(&mut self, tid: i32) {
        self.accounts.forget(tid);
        self.known.remove(&tid);
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
        ledger.switches(0, true, 7, |_| true);
        at(&mut ledger, 30);
        ledger.switches(7, false, 8, |_| true);
        at(&mut ledger, 35);
        ledger.wakes(7, Some(8));
        ledger.wakes(7, Some(9));
        at(&mut ledger, 40);
        ledger.switches(8, true, 7, |_| true);
        at(&mut ledger, 41);
        assert_eq!(ledger.used(7), Some(Used { ran: 21, queued: 5 }));
        assert_eq!(ledger.used(8), Some(Used { ran: 10, queued: 1 }));
        assert_eq!((ledger.used(0), ledger.used(9)), (None, None));
        ledger.forget(7);
        assert_eq!(ledger.used(7), None);
    }

    #[test]
    fn what_a_thread_had_is_kept_with_its_moments() {
        let mut ledger = Ledger::default();
        for (at, from, goes_on, to) in [(10, 0, true, 7), (30, 7, true, 0), (45, 0, true, 7)] {
            ledger.at = at;
            ledger.switches(from, goes_on, to, |_| true);
        }
        ledger.at = 50;
        ledger.switches(7, false, 0, |_| true);
        ledger.at = 90;
        ledger.ends(7);
        let told: Vec<_> =
            ledger.accounts.take().iter().map(|one| (one.at, one.ran, one.queued)).collect();
        assert_eq!(told, [(10, 0, 0), (30, 20, 0), (45, 20, 15), (50, 25, 15), (90, 25, 15)]);
    }

    #[test]
    fn of_more_waits_than_are_kept_the_first_and_the_last_are() {
        let mut ledger = Ledger::default();
        for turn in 0..3 * MOST as u64 {
            ledger.at = turn * 2 * SHORT;
            ledger.switches(7, false, 0, |_| true);
            ledger.at += SHORT;
            ledger.wakes(7, Some(8));
        }
        let kept: Vec<u64> = ledger.take_woken().iter().map(|one| one.since / SHORT / 2).collect();
        let most = MOST as u64;
        assert_eq!(kept, (0..most).chain(2 * most..3 * most).collect::<Vec<_>>());
        assert!(ledger.take_woken().is_empty());
    }

    #[test]
    fn a_wait_is_known_from_its_beginning_and_by_who_ended_it_if_it_was_long() {
        let mut ledger = Ledger { at: 1_000, ..Ledger::default() };
        // The beginning of this one was not seen.
        ledger.wakes(6, Some(8));
        ledger.switches(7, false, 8, |_| true);
        ledger.at += SHORT;
        ledger.wakes(7, Some(8));
        ledger.wakes(7, Some(9));
        ledger.switches(8, false, 7, |_| true);
        ledger.at += SHORT - 1;
        ledger.wakes(8, Some(7));
        ledger.switches(7, false, 8, |_| true);
        ledger.at += SHORT;
        ledger.wakes(7, None);
        // Of one whose switches are not told, that it was woken says that it had waited.
        ledger.at += SHORT;
        ledger.has_waited(7);
        ledger.wakes(7, Some(8));
        let mut woken = ledger.take_woken();
        let last = woken.pop().map(|one| (one.tid, one.at, one.by));
        assert_eq!(last, Some((7, ledger.at, Some(8))));
        let one = Wake { tid: 7, since: 1_000, at: 1_000 + SHORT, by: Some(8) };
        let since = 1_000 + 2 * SHORT - 1;
        assert_eq!(woken, [one, Wake { tid: 7, since, at: since + SHORT, by: None }]);
    }
}
