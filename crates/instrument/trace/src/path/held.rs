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
use super::short::sums;
use super::walk::{Wait, Walk};
use crate::life::runs_vcpu;
use crate::looks::SLACK;
use crate::names::system_call;
use crate::record::{Call, Sample, Stall, Thread, Trace, Wake};

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
        let short = of_vcpus.short.iter().map(|one| ((one.tid, sleeps.call(one)), *one));
        let of_vcpus_short = sums(self, short, is_taken);
        let short = of_paths.short.into_iter().map(|one| (one.tid, one));
        let of_paths_short = sums(self, short, |one| {
            is_taken(one) || of_vcpus_short.iter().any(|other| meet(other, one))
        });
        let is_vcpu_s = |wait: &Wait| {
            of_vcpus_short.contains(wait) || of_vcpus.long.iter().any(|one| meet(one, wait))
        };
        let kept = kept.iter().chain(&of_vcpus_short).chain(&of_paths_short);
        kept.map(|wait| sleeps.told(wait, is_vcpu_s(wait))).collect()
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

/// What is found: waits, and sleeps that are too short to be one.
#[derive(Default)]
struct Found {
    long: Vec<Wait>,
    short: Vec<Wait>,
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
        for Walk { stretches, waits, inferred } in self.trace.walks(&self.index) {
            for stretch in &stretches {
                if self.is_long(stretch.from, stretch.to) {
                    self.asleep(*stretch, &mut found.long);
                }
                self.told_of(*stretch).for_each(|one| self.add(one, &mut found));
            }
            // Of what is inferred, the long ones alone say something.
            let waits = waits.into_iter().filter(|one| !inferred || self.is_long(one.from, one.to));
            waits.for_each(|one| self.add(one, &mut found));
        }
        // KVM's worker waits for work, whoever ends that.
        let is_idle = |one: &Wait| self.longest(one).is_some_and(|seen| seen.is_in(&IDLE));
        found.long.retain(|one| !is_idle(one));
        found
    }

    fn add(&self, one: Wait, into: &mut Found) {
        let is_long = self.is_long(one.from, one.to);
        if is_long { &mut into.long } else { &mut into.short }.push(one);
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

    /// The sleeps of vCPUs' threads between their first entry and their last exit. Where KVM has no interrupt controller, a
    /// vCPU that halts sleeps in a lock of its program's: that is no wait.
    fn of_vcpus(&self) -> Found {
        let mut found = Found::default();
        let may_halt = !self.trace.has_controller();
        for thread in self.trace.threads.iter().filter(|thread| self.trace.ran_vcpu(thread)) {
            let run = self.trace.first_run(thread).zip(self.trace.left(thread));
            let Some((from, to)) = run.filter(|(from, to)| from < to) else { continue };
            let mut own = Vec::new();
            self.asleep(Stretch { tid: thread.tid, from, to }, &mut own);
            let is_meant = |look: &Sample| !may_halt || !look.is_in_call(&[libc::SYS_futex]);
            own.retain(|one| self.longest(one).is_some_and(is_meant) || !may_halt);
            found.long.extend(own);
            let looks = self.index.samples(thread.tid, from, to);
            let looks = looks.filter(|one| sleeps(one) && !runs_vcpu(one) && is_meant(one));
            let looks = looks.filter(|one| !self.is_recorded(thread.tid, one.at));
            let short = looks.filter_map(|look| self.around(look, (from, to)));
            found.short.extend(short.filter(|one| !self.is_long(one.from, one.to)));
        }
        found
    }

    /// The sleep that a look found a thread in, as the scheduler told it; else as long as the look, or the time without a
    /// processor around it.
    fn around(&self, look: &Sample, (from, to): (u64, u64)) -> Option<Wait> {
        let (tid, seen) = (look.tid, look.at + look.took);
        let ended = self.ended.get(&tid).map_or(&[][..], |all| all);
        let wake = ended.get(ended.partition_point(|wake| wake.at < look.at));
        if let Some(wake) = wake {
            let is_it = wake.since <= look.at;
            return is_it.then(|| Wait::once(tid, (wake.since, wake.at), wake.by));
        }
        let (before, after) = self.neighbours(look);
        let window =
            (before.max(look.at.saturating_sub(SLACK)).max(from), after.min(seen + SLACK).min(to));
        let slept = self.index.spent(tid, window.0, window.1)?.asleep();
        let times = look.turns + 1;
        let wait = Wait::once(tid, (look.at, seen.max(look.at + 1)), None);
        (slept / times < self.trace.least()).then_some(Wait { slept, times, ..wait })
    }

    /// When a thread was last seen before a look at it, and first after it.
    fn neighbours(&self, look: &Sample) -> (u64, u64) {
        let (mut before, mut after) = (0, u64::MAX);
        for one in self.index.samples(look.tid, 0, u64::MAX) {
            if one.at < look.at {
                before = one.at + one.took;
            } else if one.at > look.at {
                after = after.min(one.at);
            }
        }
        (before, after)
    }

    /// The number of the call that a wait was seen in.
    fn call(&self, wait: &Wait) -> Option<u64> {
        let looks = self.index.samples(wait.tid, wait.from, wait.to + 1);
        let mut numbers = looks.filter_map(|look| look.call.map(|(number, _)| number));
        numbers.next()
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
            if self.touched(tid, seen).is_some() {
                into.push(Wait::once(tid, seen, None));
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

    /// The page faults of a thread's own code, if it was in these for most of the time.
    fn touched(&self, tid: i32, (from, to): (u64, u64)) -> Option<Touched> {
        let is_within = |one: &&Sample| one.at >= from && one.at + one.took <= to;
        let looks = self.index.samples(tid, from, to).filter(is_within);
        let sum =
            |(faults, system): (u64, u64), one: &Sample| (faults + one.faults, system + one.system);
        let (faults, system) = looks.fold((0, 0), sum);
        // For the time in which it could run, and others did, it had no fault.
        let queued = self.index.spent(tid, from, to).map_or(0, |spent| spent.queued);
        let own = (to - from).saturating_sub(queued);
        let is_most = own >= self.trace.least() && 2 * system >= own;
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
        // It slept many times, of which none is known by itself.
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

    /// A sleep with what is known of it.
    fn told(&self, wait: &Wait, of_vcpu: bool) -> Held<'a> {
        let Wait { tid, from, to, by, times, slept } = *wait;
        let seen = self.longest(wait);
        let mut known = Vec::new();
        if let Some(seen) = seen {
            known.extend(seen.file.as_ref().map(|file| format!("on {file}")));
            known.extend(seen.channel.as_ref().map(|function| format!("it slept in {function}")));
        }
        let asked = self.index.calls(tid, from, to).find(|call| call.name == "sleep");
        if times > 1 {
            known.push(format!("in {times} sleeps, on average {} each", duration(slept / times)));
        }
        if let Some(time) = asked.map(|call| call.argument("time")).filter(|time| *time > 0) {
            known.push(format!("it asked to sleep for {}", duration(time)));
        }
        if let Some(by) = by.filter(|by| *by != tid && self.trace.thread_number(*by, to).is_some())
        {
            let ended = if times > 1 { "them all" } else { "it" };
            known.push(format!("thread {by} ended {ended}{}", self.meanwhile(by, (from, to))));
        }
        let touched = if seen.is_none() { self.touched(tid, (from, to)) } else { None };
        let what = match (seen, touched) {
            // As the record has it.
            _ if asked.is_some() => "sleep".to_owned(),
            (Some(seen), _) => what(seen),
            (None, Some(_)) => "page faults of its own code".to_owned(),
            (None, None) => "asleep".to_owned(),
        };
        let what = if times > 1 { format!("{what}, {times} times") } else { what };
        Held { tid, from, to, took: slept, times, seen, of_vcpu, touched, what, known }
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
