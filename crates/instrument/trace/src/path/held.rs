//! What threads slept in while the start, the end or a vCPU hung on them, and which no call of the record has.
//!
//! The record has the calls to KVM, to memory and to descriptors. A lock, a file, a socket, a child that is waited for, a
//! signal that stops, a page that comes late: each may hold a VM up as long, and is none of these. Such sleeps are found by
//! the scheduler's events, or by looks at the thread, in two places: on the critical paths, with the waits which these go
//! around; and in a vCPU's thread between its first entry and its last exit.
//!
//! A thread on which nothing hangs waits for work. What it sleeps in is no wait, however long it is.

use std::collections::HashMap;

use mayfly_record::units::duration;

use super::index::Index;
use super::pieces::Stretch;
use super::walk::{Wait, Walk};
use crate::life::runs_vcpu;
use crate::looks::SLACK;
use crate::names::system_call;
use crate::record::{Call, Sample, Stall, Thread, Trace, Wake};

/// Where a thread is that a signal has stopped.
const STOPPED: [&str; 2] = ["do_signal_stop", "do_jobctl_trap"];
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
        let of_vcpus = sleeps.of_vcpus();
        let mut all = [&sleeps.on_paths()[..], &of_vcpus].concat();
        all.sort_by_key(|one| std::cmp::Reverse(one.to - one.from));
        all.truncate(MOST);
        let mut kept: Vec<Wait> = Vec::new();
        for one in all {
            let is_listed = listed.iter().any(|stall| {
                stall.tid == one.tid && stall.at < one.to && one.from < stall.at + stall.took
            });
            if !is_listed && !kept.iter().any(|other| meet(other, &one)) {
                kept.push(one);
            }
        }
        let is_vcpu_s = |wait: &Wait| of_vcpus.iter().any(|one| meet(one, wait));
        kept.iter().map(|wait| sleeps.told(wait, is_vcpu_s(wait))).collect()
    }

    /// When a thread first ran a vCPU.
    fn first_run(&self, thread: &Thread) -> Option<u64> {
        let mut calls = self.calls.iter().filter(|call| call.tid == thread.tid);
        let called = calls.find(|call| call.name == "KVM_RUN").map(|call| call.at);
        let mut samples = self.samples.iter().filter(|one| one.tid == thread.tid);
        called.or_else(|| samples.find(|one| runs_vcpu(one)).map(|one| one.at))
    }

    /// Whether KVM has the interrupt controllers, or at least the local ones, and so halts vCPUs itself.
    fn has_controller(&self) -> bool {
        const HAS: [&str; 3] = ["KVM_CREATE_IRQCHIP", "KVM_ENABLE_CAP", "KVM_CREATE_DEVICE"];
        self.calls.iter().any(|call| HAS.contains(&call.name.as_str()))
    }

    /// What a thread did while another waited for it, as a clause goes on; nothing where that was not seen.
    pub(crate) fn meanwhile(&self, tid: i32, time: (u64, u64)) -> String {
        Sleeps::of(self).meanwhile(tid, time)
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
    fn on_paths(&self) -> Vec<Wait> {
        let mut all = Vec::new();
        for Walk { stretches, waits, .. } in self.trace.walks(&self.index) {
            all.extend(waits.into_iter().filter(|one| self.is_long(one.from, one.to)));
            for stretch in stretches.into_iter().filter(|one| self.is_long(one.from, one.to)) {
                self.asleep(stretch, &mut all);
                all.extend(self.told_of(stretch));
            }
        }
        all
    }

    /// The sleeps of a stretch that the scheduler told of, whether or not anybody looked.
    fn told_of(&self, stretch: Stretch) -> Vec<Wait> {
        let Stretch { tid, from, to } = stretch;
        let all = self.ended.get(&tid).map_or(&[][..], |all| all);
        let ended = all[all.partition_point(|wake| wake.at <= from)..].iter();
        let waits = ended.take_while(|wake| wake.since < to).map(|wake| Wait {
            tid,
            from: wake.since.max(from),
            to: wake.at.min(to),
            by: wake.by,
        });
        waits
            .filter(|one| self.is_long(one.from, one.to) && !self.is_recorded(tid, one.from))
            .collect()
    }

    /// The sleeps of vCPUs' threads between their first entry and their last exit. Where KVM has no interrupt controller, a
    /// vCPU that halts sleeps in a lock of its program's: that is no wait.
    fn of_vcpus(&self) -> Vec<Wait> {
        let mut all = Vec::new();
        let may_halt = !self.trace.has_controller();
        for thread in self.trace.threads.iter().filter(|thread| self.trace.ran_vcpu(thread)) {
            let run = self.trace.first_run(thread).zip(self.trace.left(thread));
            let Some((from, to)) = run.filter(|(from, to)| from < to) else { continue };
            let mut own = Vec::new();
            self.asleep(Stretch { tid: thread.tid, from, to }, &mut own);
            let is_futex = |look: &Sample| look.is_in_call(&[libc::SYS_futex]);
            own.retain(|one| !may_halt || self.longest(one).is_some_and(|seen| !is_futex(seen)));
            all.extend(own);
        }
        all
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
            next += same;
            let seen = (first.at.max(from), (last.at + last.took).min(to));
            if self.touched(tid, seen).is_some() {
                into.push(Wait { tid, from: seen.0, to: seen.1, by: None });
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
                into.extend(self.slept(tid, window, seen));
            }
        }
    }

    /// The page faults of a thread's own code, if it was in these for most of the time.
    fn touched(&self, tid: i32, (from, to): (u64, u64)) -> Option<Touched> {
        let is_within = |one: &&Sample| one.at >= from && one.at + one.took <= to;
        let looks = self.index.samples(tid, from, to).filter(is_within);
        let sum =
            |(faults, system): (u64, u64), one: &Sample| (faults + one.faults, system + one.system);
        let (faults, system) = looks.fold((0, 0), sum);
        let is_most = self.is_long(from, to) && 2 * system >= to - from;
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
    fn slept(&self, tid: i32, (from, to): (u64, u64), seen: (u64, u64)) -> Option<Wait> {
        let ended = self.ended.get(&tid).map_or(&[][..], |all| all);
        let wake = ended.get(ended.partition_point(|wake| wake.at < seen.0));
        if let Some(wake) = wake.filter(|wake| wake.since <= seen.1) {
            let wait = Wait { tid, from: wake.since.max(from), to: wake.at.min(to), by: wake.by };
            if self.is_long(wait.from, wait.to) {
                return Some(wait);
            }
        }
        let (from, to) = (from.max(seen.0.saturating_sub(SLACK)), to.min(seen.1 + SLACK));
        let slept = self.index.spent(tid, from, to)?.asleep();
        let from = from.max(seen.0.saturating_sub(slept));
        let to = (from + slept).min(to);
        self.is_long(from, to).then_some(Wait { tid, from, to, by: None })
    }

    /// The look that saw a wait longest.
    fn longest(&self, wait: &Wait) -> Option<&'a Sample> {
        let within =
            |one: &Sample| (one.at + one.took).min(wait.to).saturating_sub(one.at.max(wait.from));
        let looks = self.index.samples(wait.tid, wait.from, wait.to).filter(|one| sleeps(one));
        looks.max_by_key(|one| (within(one), one.seen))
    }

    /// A sleep with what is known of it.
    fn told(&self, wait: &Wait, of_vcpu: bool) -> Held<'a> {
        let Wait { tid, from, to, by } = *wait;
        let seen = self.longest(wait);
        let mut known = Vec::new();
        if let Some(seen) = seen {
            known.extend(seen.file.as_ref().map(|file| format!("on {file}")));
            known.extend(seen.channel.as_ref().map(|function| format!("it slept in {function}")));
        }
        let asked = self.index.calls(tid, from, to).find(|call| call.name == "sleep");
        if let Some(time) = asked.map(|call| call.argument("time")).filter(|time| *time > 0) {
            known.push(format!("it asked to sleep for {}", duration(time)));
        }
        if let Some(by) = by.filter(|by| *by != tid && self.trace.thread_number(*by, to).is_some())
        {
            known.push(format!("thread {by} ended it{}", self.meanwhile(by, (from, to))));
        }
        let touched = if seen.is_none() { self.touched(tid, (from, to)) } else { None };
        let what = match (seen, touched) {
            // As the record has it.
            _ if asked.is_some() => "sleep".to_owned(),
            (Some(seen), _) => what(seen),
            (None, Some(_)) => "page faults of its own code".to_owned(),
            (None, None) => "asleep".to_owned(),
        };
        Held { tid, from, to, seen, of_vcpu, touched, what, known }
    }

    fn meanwhile(&self, tid: i32, (from, to): (u64, u64)) -> String {
        let within = |call: &Call| call.end().min(to).saturating_sub(call.at.max(from));
        let calls = self.index.calls(tid, from, to);
        let longest = calls.max_by_key(|call| within(call));
        if let Some(call) = longest.filter(|call| 2 * within(call) >= to - from) {
            return format!(", which was in {} for {} of it", call.name, duration(within(call)));
        }
        let spent = self.index.spent(tid, from, to);
        match spent.filter(|spent| 2 * spent.unseen < to - from) {
            Some(spent) if spent.is_its_own() => ", which ran meanwhile".to_owned(),
            Some(spent) => format!(", which meanwhile ran {}, {spent}", duration(spent.ran)),
            None => String::new(),
        }
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

/// What a thread slept in, in a word or two.
fn what(look: &Sample) -> String {
    match (&look.call, &look.channel) {
        _ if look.is_in(&STOPPED) => "stopped by a signal".to_owned(),
        (Some((number, _)), _) => system_call(*number),
        (None, _) if look.is_in(&FAULTS) => "a page fault".to_owned(),
        (None, Some(function)) => format!("asleep in {function}"),
        (None, None) => "asleep".to_owned(),
    }
}

#[cfg(test)]
mod tests;
