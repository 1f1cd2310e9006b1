//! What threads slept in while the start, the end or a vCPU hung on them, and which no call of the record has.
//!
//! The record has the calls to KVM, to memory and to descriptors. A lock, a file, a socket, a child that is waited for, a
//! signal that stops, a page that comes late: each may hold a VM up as long, and is none of these. Such sleeps are found by
//! the scheduler's events, or by looks at the thread, in two places: on the critical paths, with the waits which these go
//! around; and in a vCPU's thread between its first entry and its last exit.
//!
//! A thread on which nothing hangs waits for work. What it sleeps in is no wait, however long it is.

mod told;
mod vcpus;

use std::collections::HashMap;

use super::index::Index;
use super::pieces::Stretch;
use super::short::{sums, sums_apart};
use super::walk::{Wait, Walk};
use crate::life::runs_vcpu;
use crate::looks::SLACK;
use crate::record::{Call, Sample, Stall, Trace, Wake};

/// Where a thread is that a signal has stopped.
const STOPPED: [&str; 2] = ["do_signal_stop", "do_jobctl_trap"];
/// Where KVM's worker waits for work.
const IDLE: [&str; 1] = ["vhost_task_fn"];
/// What a thread sleeps in that makes no call, and waits for a page.
const FAULTS: [&str; 7] = [
    "handle_mm_fault",
    "do_user_addr_fault",
    "exc_page_fault",
    "asm_exc_page_fault",
    "do_page_fault",
    "do_mem_abort",
    "handle_userfault",
];

/// A sleep that something hung on.
pub(crate) struct Held<'a> {
    pub(crate) tid: i32,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// How long it slept between the two, and how often: many short sleeps may be one wait.
    pub(crate) took: u64,
    pub(crate) times: u64,
    /// The look that saw it longest, if one did.
    pub(crate) seen: Option<&'a Sample>,
    /// Whether its thread runs a vCPU, and had run it before, and was to run it after.
    pub(crate) of_vcpu: bool,
    /// What it had of page faults, if it did not sleep, and was in these for most of the time.
    pub(crate) touched: Option<Touched>,
    /// What it slept in, in a word or two.
    pub(crate) what: String,
    /// What was seen of it, a clause each.
    pub(crate) known: Vec<String>,
}

/// Page faults of a thread that ran its own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touched {
    pub(crate) faults: u64,
    /// Time in the kernel, in nanoseconds.
    pub(crate) system: u64,
}

/// Fewer faults take no time to speak of; and one takes no longer, in nanoseconds: what does is something else.
const FEWEST_FAULTS: u64 = 64;
const LONGEST_FAULT: u64 = 1_000_000;
/// Time in the kernel is counted in hundredths of a second: less than two of these says nothing.
const LEAST_SYSTEM: u64 = 20_000_000;

/// So many are looked into, the longest ones: a report has no more.
const MOST: usize = 1000;

impl Trace {
    /// The sleeps that something hung on, longest first, but for those that overlap what is `listed` of the same thread.
    pub(crate) fn held(&self, listed: &[Stall]) -> Vec<Held<'_>> {
        let sleeps = Sleeps::of(self);
        let (of_paths, of_vcpus) = (sleeps.on_paths(), sleeps.of_vcpus());
        let mut all = [&of_paths.long[..], &of_vcpus.long].concat();
        all.sort_by_key(|one| std::cmp::Reverse(one.slept));
        all.truncate(MOST);
        let is_listed = |one: &Wait| {
            listed.iter().any(|stall| {
                stall.tid == one.tid && stall.at < one.to && one.from < stall.at + stall.took
            })
        };
        let mut kept: Vec<Wait> = Vec::new();
        for one in all {
            if !is_listed(&one) && !kept.iter().any(|other| meet(other, &one)) {
                kept.push(one);
            }
        }
        let is_taken = |one: &Wait| is_listed(one) || kept.iter().any(|other| meet(other, one));
        let by = |short: Vec<(u64, Wait)>| {
            short.into_iter().map(|(kind, one)| ((one.tid, kind), one)).collect::<Vec<_>>()
        };
        let of_vcpus_short = sums(self, by(of_vcpus.short), is_taken);
        let of_paths_short = sums_apart(self, by(of_paths.short), |one| {
            is_taken(one) || of_vcpus_short.iter().any(|other| meet(other, one))
        });
        let is_vcpu_s = |wait: &Wait| {
            of_vcpus_short.contains(wait) || of_vcpus.long.iter().any(|one| meet(one, wait))
        };
        let kept = kept.iter().chain(&of_vcpus_short).chain(&of_paths_short);
        kept.map(|wait| sleeps.told(wait, is_vcpu_s(wait))).collect()
    }

    /// What a thread did while another waited for it, as a clause goes on; nothing where that was not seen.
    pub(crate) fn meanwhile(&self, tid: i32, time: (u64, u64)) -> String {
        Sleeps::of(self).meanwhile(tid, time)
    }
}

/// What is found: waits, and sleeps that are too short to be one.
#[derive(Default)]
struct Found {
    long: Vec<Wait>,
    /// With what goes together: the number of a path, or of a call.
    short: Vec<(u64, Wait)>,
}

impl Found {
    fn add(&mut self, kind: u64, one: Wait, is_long: bool) {
        if is_long {
            self.long.push(one);
        } else {
            self.short.push((kind, one));
        }
    }
}

/// Where sleeps are looked for.
struct Sleeps<'a> {
    trace: &'a Trace,
    index: Index<'a>,
    /// The sleeps of each thread that the scheduler told of, in the order of their ends.
    ended: HashMap<i32, Vec<Wake>>,
}

impl<'a> Sleeps<'a> {
    fn of(trace: &'a Trace) -> Self {
        let mut ended: HashMap<i32, Vec<Wake>> = HashMap::new();
        for wake in &trace.wakes {
            ended.entry(wake.tid).or_default().push(*wake);
        }
        for all in ended.values_mut() {
            all.sort_by_key(|wake| wake.at);
        }
        Self { trace, index: Index::of(trace), ended }
    }

    /// Whether a time is as long as a wait is.
    fn is_long(&self, from: u64, to: u64) -> bool {
        to.saturating_sub(from) >= self.trace.least()
    }

    /// The sleeps on the critical paths, and the waits that these go around.
    fn on_paths(&self) -> Found {
        let mut found = Found::default();
        let walks = self.trace.walks(&self.index).into_iter().zip(0..);
        for (Walk { stretches, waits, inferred }, path) in walks {
            for stretch in &stretches {
                if self.is_long(stretch.from, stretch.to) {
                    self.asleep(*stretch, &mut found.long);
                }
                self.told_of(*stretch).for_each(|one| self.add(path, one, &mut found));
                if self.trace.wakes.is_empty() {
                    self.asked_of(*stretch).for_each(|one| self.add(path, one, &mut found));
                }
            }
            // Of what is inferred, the long ones alone say something.
            let waits = waits.into_iter().filter(|one| !inferred || self.is_long(one.from, one.to));
            waits.for_each(|one| self.add(path, one, &mut found));
        }
        self.stopped().for_each(|one| self.add(u64::MAX, one, &mut found));
        if self.trace.wakes.is_empty() {
            self.of_setter(&mut found.long);
        }
        // KVM's worker waits for work, whoever ends that, and whether or not anybody has looked.
        let works = |tid| self.trace.threads.iter().any(|one| one.tid == tid && one.of_kvm);
        let is_idle =
            |one: &Wait| self.longest(one).map_or_else(|| works(one.tid), |seen| seen.is_in(&IDLE));
        found.long.retain(|one| !is_idle(one));
        found
    }

    /// The times in which a signal stopped the VMM's process, on whichever thread it came to.
    fn stopped(&self) -> impl Iterator<Item = Wait> {
        let vmm = self.trace.vmm();
        let threads = self.trace.threads.iter().filter(move |one| Some(one.pid) == vmm);
        threads.flat_map(|thread| thread.stops().map(|time| Wait::once(thread.tid, time, None)))
    }

    /// The sleeps of the thread that sets a VM up, between its first and its last call to KVM before the first entry: where it
    /// is not seen who ends a wait, the path does not lead back to this thread.
    fn of_setter(&self, into: &mut Vec<Wait>) {
        let Some((vmm, entry)) = self.trace.vmm().zip(self.trace.first_entry()) else { return };
        let asked = self.trace.from.as_ref().map_or(0, |from| from.at);
        let is_its = |call: &&Call| call.is_kvm() && call.pid == vmm && call.at >= asked;
        let mut calls = self.trace.calls.iter().filter(is_its);
        let Some(first) = calls.next() else { return };
        let is_last = |call: &&Call| call.tid == first.tid && call.at < entry;
        let to = calls.filter(is_last).map(|call| call.at).max().unwrap_or(first.at);
        self.asleep(Stretch { tid: first.tid, from: first.at, to }, into);
    }

    fn add(&self, path: u64, one: Wait, into: &mut Found) {
        into.add(path, one, self.is_long(one.from, one.to));
    }

    /// The sleeps of a stretch that the scheduler told of, whether or not anybody looked.
    fn told_of(&self, stretch: Stretch) -> impl Iterator<Item = Wait> {
        let Stretch { tid, from, to } = stretch;
        let all = self.ended.get(&tid).map_or(&[][..], |all| all);
        let ended = all[all.partition_point(|wake| wake.at <= from)..].iter();
        let waits = ended.take_while(move |wake| wake.since < to);
        let waits = waits
            .map(move |wake| Wait::once(tid, (wake.since.max(from), wake.at.min(to)), wake.by));
        waits.filter(move |one| !self.is_recorded(tid, one.from))
    }

    /// The sleeps of a stretch that its thread asked for.
    fn asked_of(&self, Stretch { tid, from, to }: Stretch) -> impl Iterator<Item = Wait> {
        let calls = self.index.calls(tid, from, to).filter(|call| call.name == "sleep");
        calls.map(move |call| Wait::once(tid, (call.at.max(from), call.end().min(to)), None))
    }

    /// The sleeps of a stretch that are long, and in no call of the record but one that asks to sleep.
    fn asleep(&self, stretch: Stretch, into: &mut Vec<Wait>) {
        let Stretch { tid, from, to } = stretch;
        let looks: Vec<&Sample> = self.index.samples(tid, from, to).collect();
        let mut next = 0;
        while let Some(first) = looks.get(next) {
            let same = looks[next..].iter().take_while(|one| is_same(first, one)).count();
            let before = next.checked_sub(1).map_or(from, |last| looks[last].at + looks[last].took);
            let (last, after) = (looks[next + same - 1], looks.get(next + same));
            let turns: u64 = looks[next..next + same].iter().map(|one| one.turns).sum();
            let times = turns + same as u64;
            next += same;
            let seen = (first.at.max(from), (last.at + last.took).min(to));
            if let Some(touching) = self.touching(tid, seen) {
                // What it waited for a processor meanwhile is told by itself.
                let slept = self.own(tid, touching);
                into.push(Wait { slept, ..Wait::once(tid, touching, None) });
                continue;
            }
            if !sleeps(first) || runs_vcpu(first) || self.is_recorded(tid, seen.0) {
                continue;
            }
            // It may have slept since it was last seen at something else, until it was next.
            let called = self.index.calls(tid, seen.1, to).find(|call| call.at >= seen.1);
            let until = [after.map(|one| one.at), called.map(|call| call.at)];
            let until = until.into_iter().flatten().min().unwrap_or(to).min(to);
            let ended = self.index.calls(tid, from, seen.0).map(Call::end);
            let ended = ended.filter(|end| *end <= seen.0).max().unwrap_or(from);
            let window = (before.max(ended).max(from), until);
            if self.is_long(window.0, window.1) {
                into.extend(self.slept(tid, window, (seen, times)));
            }
        }
    }

    /// A time but for what a thread waited for a processor in it.
    fn own(&self, tid: i32, (from, to): (u64, u64)) -> u64 {
        let queued = self.index.spent(tid, from, to).map_or(0, |spent| spent.queued);
        (to - from).saturating_sub(queued)
    }

    /// The part of a time in which a thread was in page faults of its own code, from the first to the last, if it was in these
    /// for most of that.
    fn touching(&self, tid: i32, (from, to): (u64, u64)) -> Option<(u64, u64)> {
        let has_some = |one: &&Sample| one.faults > 0 && one.at >= from && one.at + one.took <= to;
        let mut looks = self.index.samples(tid, from, to).filter(has_some);
        let first = looks.next()?;
        let last = looks.last().unwrap_or(first);
        let part = (first.at, last.at + last.took);
        self.touched(tid, part).map(|_| part)
    }

    /// The page faults of a thread's own code, if it was in these for most of the time.
    fn touched(&self, tid: i32, (from, to): (u64, u64)) -> Option<Touched> {
        let is_within = |one: &&Sample| one.at >= from && one.at + one.took <= to;
        let (mut faults, mut system, mut free) = (0, 0, 0);
        for look in self.index.samples(tid, from, to).filter(is_within) {
            (faults, system) = (faults + look.faults, system + look.system);
            // It did something else meanwhile; a vCPU's thread, run its guest.
            let is_free = look.faults == 0 && look.took > 0;
            free += if is_free { self.own(tid, (look.at, look.at + look.took)) } else { 0 };
        }
        // For the time in which it could run, and others did, it had no fault.
        let own = self.own(tid, (from, to));
        let is_most = own >= self.trace.least() && 2 * system >= own && 2 * free < own;
        let are_faults = faults >= FEWEST_FAULTS && system / faults.max(1) <= LONGEST_FAULT;
        (is_most && are_faults && system >= LEAST_SYSTEM).then_some(Touched { faults, system })
    }

    /// Whether a thread was in a call of the record, and in none that asks to sleep.
    fn is_recorded(&self, tid: i32, at: u64) -> bool {
        let mut calls = self.index.calls(tid, at, at + 1);
        calls.any(|call| call.name != "sleep" && call.at <= at && at < call.end())
    }

    /// How long a thread slept around the time in which it was seen asleep: by the scheduler's events, or by what its
    /// processor time leaves.
    fn slept(
        &self,
        tid: i32,
        (from, to): (u64, u64),
        (seen, times): ((u64, u64), u64),
    ) -> Option<Wait> {
        let ended = self.ended.get(&tid).map_or(&[][..], |all| all);
        let wake = ended.get(ended.partition_point(|wake| wake.at < seen.0));
        if let Some(wake) = wake.filter(|wake| wake.since <= seen.1) {
            let wait = Wait::once(tid, (wake.since.max(from), wake.at.min(to)), wake.by);
            // What is short counts with its like.
            return self.is_long(wait.from, wait.to).then_some(wait);
        }
        let (from, to) = (from.max(seen.0.saturating_sub(SLACK)), to.min(seen.1 + SLACK));
        let slept = self.index.spent(tid, from, to)?.asleep();
        let from = from.max(seen.0.saturating_sub(slept));
        let wait = Wait::once(tid, (from, (from + slept).min(to)), None);
        if slept / times.max(1) >= self.trace.least() {
            return self.is_long(wait.from, wait.to).then_some(wait);
        }
        // It slept many times, of which none is known by itself, unless it asked for them.
        let mut calls = self.index.calls(tid, seen.0, seen.1);
        if calls.any(|call| call.name == "sleep") {
            return None;
        }
        let to = seen.1.max(wait.to);
        (slept >= self.trace.least()).then_some(Wait { to, times, slept, ..wait })
    }

    /// The look that saw a wait longest.
    fn longest(&self, wait: &Wait) -> Option<&'a Sample> {
        let within =
            |one: &Sample| (one.at + one.took).min(wait.to).saturating_sub(one.at.max(wait.from));
        let looks = self.index.samples(wait.tid, wait.from, wait.to).filter(|one| sleeps(one));
        looks.max_by_key(|one| (within(one), one.seen))
    }
}

/// Whether two waits are of one thread at one time.
fn meet(one: &Wait, other: &Wait) -> bool {
    one.tid == other.tid && one.from < other.to && other.from < one.to
}

/// Whether a thread slept when it was looked at.
fn sleeps(look: &Sample) -> bool {
    look.channel.is_some()
}

/// Whether two looks found a thread in one and the same thing: in one call, or, without a call, in one function.
fn is_same(one: &Sample, other: &Sample) -> bool {
    let of = |look: &Sample| look.call.map(|(number, arguments)| (number, arguments[0]));
    match (of(one), of(other)) {
        (None, None) => one.channel == other.channel,
        (first, second) => first == second && sleeps(one) == sleeps(other),
    }
}

#[cfg(test)]
mod tests;
