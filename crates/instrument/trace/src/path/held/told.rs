//! What is told of a wait: what it was in, who ended it, what that one did meanwhile.

use mayfly_record::units::duration;

use super::{FAULTS, Held, STOPPED, Sleeps, sleeps};
use crate::names::system_call;
use crate::path::walk::Wait;
use crate::record::{Call, Sample};

const STOPPED_BY_SIGNAL: &str = "stopped by a signal";

impl<'a> Sleeps<'a> {
    /// A sleep with what is known of it.
    pub(super) fn told(&self, wait: &Wait, of_vcpu: bool) -> Held<'a> {
        let Wait { tid, from, to, by, slept, .. } = *wait;
        let seen = self.longest(wait);
        let mut known = Vec::new();
        if let Some(seen) = seen {
            known.extend(seen.file.as_ref().map(|file| format!("on {file}")));
            known.extend(seen.channel.as_ref().map(|function| format!("it slept in {function}")));
        }
        let asked = self.asked(wait);
        let times = self.times(wait);
        if times > 1 {
            // By looks it is known how often the thread got a processor, which may have been for other reasons, too.
            let most =
                if by.is_some() || asked.is_some() || self.is_told(tid) { "" } else { "up to " };
            known.push(format!(
                "in {most}{times} sleeps, on average {} each",
                duration(slept / times)
            ));
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
            _ if self.trace.is_stopped(tid, (from, to)) => STOPPED_BY_SIGNAL.to_owned(),
            // Of many sleeps the looks may have seen different ones.
            (Some(_), _) if times > 1 && !self.is_one_call(wait) => "asleep".to_owned(),
            (Some(seen), _) => what(seen),
            (None, Some(_)) => "page faults of its own code".to_owned(),
            (None, None) => "asleep".to_owned(),
        };
        let what = if times > 1 { format!("{what}, {times} times") } else { what };
        Held { tid, from, to, took: slept, times, seen, of_vcpu, touched, what, known }
    }

    pub(super) fn meanwhile(&self, tid: i32, (from, to): (u64, u64)) -> String {
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

    /// The call by which a thread asked to sleep, if that was most of a wait.
    fn asked(&self, wait: &Wait) -> Option<&'a Call> {
        let is_sleep = |call: &&Call| call.name == "sleep";
        let calls = || self.index.calls(wait.tid, wait.from, wait.to).filter(is_sleep);
        let within = |call: &Call| call.end().min(wait.to).saturating_sub(call.at.max(wait.from));
        let took: u64 = calls().map(within).sum();
        calls().next().filter(|_| 2 * took >= wait.slept)
    }

    /// How often a thread slept. If it asked for that, as often as it did.
    fn times(&self, wait: &Wait) -> u64 {
        if wait.times == 1 || self.asked(wait).is_none() {
            return wait.times;
        }
        let calls = self.index.calls(wait.tid, wait.from, wait.to);
        calls.filter(|call| call.name == "sleep").count().max(1) as u64
    }

    /// Whether the scheduler has told of a thread's sleeps.
    fn is_told(&self, tid: i32) -> bool {
        self.ended.contains_key(&tid)
    }

    /// Whether two thirds of the looks that found a thread asleep found it in one call.
    fn is_one_call(&self, wait: &Wait) -> bool {
        let Some(call) = self.longest(wait).map(|look| look.call.map(|(number, _)| number)) else {
            return false;
        };
        let looks = self.index.samples(wait.tid, wait.from, wait.to).filter(|one| sleeps(one));
        let (mut all, mut same) = (0, 0);
        for look in looks {
            all += look.seen;
            same += if look.call.map(|(number, _)| number) == call { look.seen } else { 0 };
        }
        3 * same >= 2 * all
    }
}

/// What a thread slept in, in a word or two.
fn what(look: &Sample) -> String {
    match (&look.call, &look.channel) {
        _ if look.is_in(&STOPPED) => STOPPED_BY_SIGNAL.to_owned(),
        (Some((number, _)), _) => system_call(*number),
        (None, _) if look.is_in(&FAULTS) => "a page fault".to_owned(),
        (None, Some(function)) => format!("asleep in {function}"),
        (None, None) => "asleep".to_owned(),
    }
}
