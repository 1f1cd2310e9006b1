//! What threads have had of the processors, as few moments as tell it: between two of them it grows evenly.

use std::collections::HashMap;

use crate::record::{Account, Thread, Used};

/// Moments that are kept.
const MOST: usize = 100_000;

/// The moments of all threads, in the order in which they came.
#[derive(Default)]
pub(super) struct Accounts {
    all: Vec<Account>,
    /// Of each thread, its last two moments.
    last: HashMap<i32, (Option<usize>, usize)>,
    /// A moment that is left out is this near to the line between its neighbours, in nanoseconds.
    tolerance: u64,
}

impl Accounts {
    pub(super) fn new(tolerance: u64) -> Self {
        Self { tolerance, ..Self::default() }
    }

    /// Writes down what a thread has had by a moment.
    pub(super) fn add(&mut self, tid: i32, at: u64, Used { ran, queued }: Used) {
        let account = Account { tid, at, ran, queued };
        if let Some((Some(before), last)) = self.last.get(&tid).copied()
            && is_between(&self.all[before], &self.all[last], &account, self.tolerance)
        {
            self.all[last] = account;
        } else if self.all.len() < MOST {
            let last = self.last.get(&tid).map(|(_, last)| *last);
            self.last.insert(tid, (last, self.all.len()));
            self.all.push(account);
        }
    }

    /// Another thread may get a number when its thread is gone.
    pub(super) fn forget(&mut self, tid: i32) {
        self.last.remove(&tid);
    }

    pub(super) fn take(&mut self) -> Vec<Account> {
        self.last.clear();
        std::mem::take(&mut self.all)
    }
}

/// Accounts of two sources as one.
pub(super) fn merged(mut one: Vec<Account>, other: Vec<Account>, tolerance: u64) -> Vec<Account> {
    one.extend(other);
    one.sort_by_key(|account| account.at);
    let mut merged = Accounts::new(tolerance);
    for Account { tid, at, ran, queued } in one {
        merged.add(tid, at, Used { ran, queued });
    }
    merged.take()
}

/// What events told of threads, and looks of what events do not tell: of a thread that has begun to end, and of KVM's own.
pub(super) fn completed(events: &[Account], looks: &[Account], threads: &[Thread]) -> Vec<Account> {
    let mut all = Vec::new();
    for thread in threads {
        let is_its = |one: &Account| {
            one.tid == thread.tid
                && one.at >= thread.at
                && thread.gone.is_none_or(|gone| one.at <= gone)
        };
        let is_told = !thread.is_worker() && events.iter().any(is_its);
        let seam = if is_told { thread.ending } else { Some(thread.at) };
        let before = |one: &Account| is_its(one) && seam.is_none_or(|seam| one.at <= seam);
        all.extend(events.iter().copied().filter(|one| is_told && before(one)));
        let Some(seam) = seam else { continue };
        let last = all.last().copied().filter(|one| one.tid == thread.tid);
        let told = last.unwrap_or(Account { tid: thread.tid, at: seam, ran: 0, queued: 0 });
        // Both count from other moments.
        let mut before: Option<Account> = None;
        let mut zero: Option<(u64, u64)> = None;
        for one in looks.iter().filter(|one| is_its(one)) {
            if one.at <= seam {
                before = Some(*one);
                continue;
            }
            let (ran, queued) = *zero.get_or_insert_with(|| at_seam(before, one, seam));
            let grown = |now: u64, then: u64, told: u64| told + now.saturating_sub(then);
            let (ran, queued) =
                (grown(one.ran, ran, told.ran), grown(one.queued, queued, told.queued));
            all.push(Account { ran, queued, ..*one });
        }
    }
    all.sort_by_key(|account| account.at);
    all
}

/// What a thread had by the seam, as looks before and after it have it.
fn at_seam(before: Option<Account>, after: &Account, seam: u64) -> (u64, u64) {
    let Some(before) = before else { return (after.ran, after.queued) };
    let whole = after.at.saturating_sub(before.at).max(1);
    let part = seam.saturating_sub(before.at);
    let at = |from: u64, to: u64| {
        from + (u128::from(to.saturating_sub(from)) * u128::from(part) / u128::from(whole)) as u64
    };
    (at(before.ran, after.ran), at(before.queued, after.queued))
}

/// Whether a moment is on the line between the one before it and the one after it.
fn is_between(before: &Account, one: &Account, after: &Account, tolerance: u64) -> bool {
    let whole = after.at.saturating_sub(before.at).max(1);
    let part = one.at.saturating_sub(before.at);
    let is_near = |of: fn(&Account) -> u64| {
        let grown = of(after).saturating_sub(of(before));
        let expected = (u128::from(grown) * u128::from(part) / u128::from(whole)) as u64;
        of(one).saturating_sub(of(before)).abs_diff(expected) <= tolerance
    };
    is_near(|one| one.ran) && is_near(|one| one.queued)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(accounts: &mut Accounts) -> Vec<(u64, u64, u64)> {
        accounts.take().iter().map(|one| (one.at, one.ran, one.queued)).collect()
    }

    #[test]
    fn a_moment_on_the_line_between_its_neighbours_is_left_out() {
        let mut accounts = Accounts::new(2);
        // It runs, sleeps, and waits for a processor.
        for (at, ran, queued) in [
            (0, 0, 0),
            (10, 9, 0),
            (20, 20, 0),
            (30, 20, 0),
            (40, 20, 0),
            (50, 20, 10),
            (60, 21, 19),
        ] {
            accounts.add(7, at, Used { ran, queued });
        }
        assert_eq!(told(&mut accounts), [(0, 0, 0), (20, 20, 0), (40, 20, 0), (60, 21, 19)]);
    }

    #[test]
    fn what_another_thread_with_the_same_number_had_is_not_on_its_line() {
        let mut accounts = Accounts::new(2);
        for (at, ran) in [(0, 0), (10, 10)] {
            accounts.add(7, at, Used { ran, queued: 0 });
        }
        accounts.forget(7);
        accounts.add(7, 20, Used { ran: 20, queued: 0 });
        assert_eq!(told(&mut accounts).len(), 3);
    }

    #[test]
    fn how_a_thread_ends_is_told_by_looks_and_goes_on_from_what_events_told() {
        let account = |at, ran| Account { tid: 7, at, ran, queued: 0 };
        let thread = |of_kvm| Thread {
            tid: 7,
            at: 5,
            ending: Some(40),
            gone: Some(90),
            of_kvm,
            ..Thread::default()
        };
        let (events, looks) = (
            [account(10, 0), account(40, 30)],
            [account(30, 500), account(50, 520), account(80, 521)],
        );
        let told = |of_kvm| -> Vec<_> {
            let all = completed(&events, &looks, &[thread(of_kvm)]);
            all.iter().map(|one| (one.at, one.ran)).collect()
        };
        assert_eq!(told(false), [(10, 0), (40, 30), (50, 40), (80, 41)]);
        assert_eq!(told(true), [(30, 0), (50, 20), (80, 21)]);
    }
}
