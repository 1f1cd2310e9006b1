//! What is asked of a trace to find a cause: where a thread was seen, what it had of the processors, what came before.

use crate::looks::is_meant;
use crate::record::{Call, Sample, Thread, Trace};
use crate::spent::Spent;
use crate::times::Accounts;

/// A stretch of a thread's time.
#[derive(Clone, Copy)]
pub(super) struct Stretch<'a> {
    pub(super) trace: &'a Trace,
    pub(super) tid: i32,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl<'a> Stretch<'a> {
    pub(super) fn of(trace: &'a Trace, call: &Call) -> Self {
        Self { trace, tid: call.tid, from: call.at, to: call.end() }
    }

    pub(super) fn took(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    /// The looks at the thread meanwhile.
    pub(super) fn samples(&self) -> impl Iterator<Item = &'a Sample> + use<'a> {
        let Self { trace, tid, from, to } = *self;
        let meanwhile =
            move |one: &&Sample| one.tid == tid && one.at < to && one.at + one.took >= from;
        trace.samples.iter().filter(meanwhile)
    }

    /// The first of `functions` that the thread was seen in, by its stack or by what it waited in; a name that ends in
    /// an asterisk stands for all that begin like it.
    pub(super) fn seen_in(&self, functions: &[&str]) -> Option<String> {
        let mut names = self.samples().flat_map(Sample::functions);
        names.find(|name| is_meant(name, functions)).cloned()
    }

    /// How many looks saw the thread in one of `functions`.
    pub(super) fn looks_at(&self, functions: &[&str]) -> u64 {
        let is_there = |one: &&Sample| one.is_in(functions);
        self.samples().filter(is_there).map(|one| one.seen).sum()
    }

    /// For how long the thread was where looks of one kind found it, in nanoseconds: half of the way to the looks before and
    /// after, but for what it waited for a processor. On a host that is busy looks are not evenly spread.
    pub(super) fn time_by(&self, accounts: &Accounts, is_meant: impl Fn(&Sample) -> bool) -> u64 {
        let mut looks: Vec<&Sample> = self.samples().collect();
        looks.sort_by_key(|one| one.at);
        let end = |one: &Sample| (one.at + one.took).clamp(self.from, self.to);
        let middle = |before: u64, after: u64| before + after.saturating_sub(before) / 2;
        let mut time = 0;
        for (number, look) in looks.iter().enumerate().filter(|(_, look)| is_meant(look)) {
            let at = look.at.clamp(self.from, self.to);
            let before =
                number.checked_sub(1).map_or(self.from, |last| middle(end(looks[last]), at));
            let after = looks.get(number + 1).map(|next| next.at.min(self.to));
            let after = after.map_or(self.to, |after| middle(end(look), after));
            let spent = accounts.spent(self.tid, (before, after), [].into_iter());
            let queued = spent.map_or(0, |spent| spent.queued);
            time += after.saturating_sub(before).saturating_sub(queued);
        }
        time
    }

    /// How the thread spent it, where that was seen.
    pub(super) fn spent(&self, accounts: &Accounts) -> Option<Spent> {
        accounts.spent(self.tid, (self.from, self.to), self.samples())
    }

    /// How many looks there were.
    pub(super) fn looks(&self) -> u64 {
        self.samples().map(|one| one.seen).sum()
    }

    /// How long the thread was seen in one of `functions` and stayed there, in nanoseconds.
    pub(super) fn time_in(&self, functions: &[&str]) -> u64 {
        let is_there = |one: &&Sample| one.is_in(functions);
        self.samples().filter(is_there).map(|one| self.within(one)).sum()
    }

    /// Whether any stack was seen: else this user may not see them.
    pub(super) fn stacks_are_told(&self) -> bool {
        self.trace.samples.iter().any(|one| !one.stack.is_empty())
    }

    /// Processor time of the looks, in nanoseconds. What a look began with before, or went on with behind it, counts by its
    /// share.
    pub(super) fn ran(&self) -> u64 {
        let share = |one: &Sample| {
            let within = self.within(one);
            if within >= one.took {
                return one.ran;
            }
            // The product of two times of some seconds is more than 64 bits hold.
            let part = u128::from(one.ran) * u128::from(within) / u128::from(one.took);
            (part as u64).min(within)
        };
        self.samples().map(share).sum()
    }

    /// How much of a look was in it, in nanoseconds.
    fn within(&self, look: &Sample) -> u64 {
        (look.at + look.took).min(self.to).saturating_sub(look.at.max(self.from))
    }
}

/// Which share of a call its thread ran, of the time in which it did not wait for a processor; `None` where that was not
/// seen.
pub(super) fn ran(call: &Call) -> Option<f64> {
    let used = call.used?;
    let left = call.took?.saturating_sub(used.queued).max(1);
    Some((used.ran as f64 / left as f64).min(1.0))
}

/// A share of [`ran`], as evidence has it.
pub(super) fn told(ran: f64) -> String {
    format!("the call ran {:.0}% of the time", ran * 100.0)
}

/// What a call took, but for what it waited for a processor, in nanoseconds.
pub(crate) fn own(call: &Call) -> u64 {
    let queued = call.used.map_or(0, |used| used.queued);
    call.took.unwrap_or(0).saturating_sub(queued)
}

/// The kernel's version as two numbers.
pub(super) fn kernel(trace: &Trace) -> Option<(u32, u32)> {
    let release = &trace.host.as_ref()?.kernel;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The threads of a process that ran a vCPU.
pub(super) fn runners(trace: &Trace, pid: i32) -> impl Iterator<Item = &Thread> {
    trace.threads.iter().filter(move |thread| thread.pid == pid && trace.ran_vcpu(thread))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_look_of_many_seconds_counts_by_its_share() {
        let look = Sample { tid: 1, took: 10 * SECOND, ran: 9 * SECOND / 2, ..Sample::default() };
        let trace = Trace { samples: vec![look], ..Trace::default() };
        let stretch = Stretch { trace: &trace, tid: 1, from: 0, to: 8 * SECOND };
        assert_eq!(stretch.ran(), 18 * SECOND / 5);
        // It ran evenly: a short part of a look has as large a share as a long one.
        let part = Stretch { to: 2 * SECOND, ..stretch };
        assert_eq!(part.ran(), 9 * SECOND / 10);
    }
}
