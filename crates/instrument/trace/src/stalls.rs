//! The waits that a report shows, and the cause of each.

use crate::causes;
use crate::record::{Call, Recorder, Stall, Trace};

/// Waits that are shown.
const MOST: usize = 10;
/// A wait that is shorter is none, in nanoseconds: on a kernel whose tick is not known, or is very short.
pub(crate) const SHORTEST: u64 = 1_000_000;

/// What all the time is called in which something hung on a thread that had no processor, and that made no call.
pub(crate) const RUNNABLE: &str = "runnable, outside of calls";

impl Trace {
    /// Nanoseconds of a tick of the host's, where that is known.
    pub(crate) fn tick(&self) -> Option<u64> {
        let hz = self.host.as_ref()?.hz.filter(|hz| *hz > 0)?;
        Some(1_000_000_000 / u64::from(hz))
    }

    /// By how much looks may count too little of a thread's time on a processor: by a tick, where events tell nothing.
    pub(crate) fn unsure(&self) -> u64 {
        let is_exact = self.recorder == Recorder::Tracefs;
        if is_exact { 0 } else { self.tick().unwrap_or(4_000_000) }
    }

    /// How long a wait is at least.
    pub(crate) fn least(&self) -> u64 {
        self.tick().map_or(SHORTEST, |tick| (tick / 2).clamp(SHORTEST, 2 * SHORTEST))
    }

    /// Finds the longest waits, and the causes of those for which there is evidence.
    pub fn find_stalls(&self) -> Vec<Stall> {
        let mut stalls: Vec<Stall> = causes::find(self);
        let taken: Vec<(i32, u64)> = stalls.iter().map(|stall| (stall.tid, stall.at)).collect();
        let calls =
            self.calls.iter().filter(|call| may_stall(call) && call.took >= Some(self.least()));
        let unexplained = calls.filter(|call| !taken.contains(&(call.tid, call.at)));
        let unexplained: Vec<Stall> = unexplained.map(|call| self.stall_of(call)).collect();
        stalls.extend(unexplained);
        let held = self.held(&stalls).into_iter().map(|held| Stall {
            cause: causes::of_sleep(self, &held),
            what: held.what,
            tid: held.tid,
            at: held.from,
            took: held.took,
            known: held.known,
            ..Stall::default()
        });
        let held: Vec<Stall> = held.collect();
        stalls.extend(held);
        let runnable = self.runnable().into_iter().map(|one| Stall {
            what: RUNNABLE.to_owned(),
            tid: one.tid,
            at: one.from,
            took: one.took,
            cause: Some(causes::of_runnable(self, &one)),
            ..Stall::default()
        });
        stalls.extend(runnable);
        for stall in &mut stalls {
            stall.ticks = self.tick().map(|tick| stall.took as f64 / tick as f64);
        }
        stalls.sort_by_key(|stall| std::cmp::Reverse(stall.took));
        stalls.truncate(MOST);
        stalls
    }

    /// A call as a wait.
    pub(crate) fn stall_of(&self, call: &Call) -> Stall {
        let same = self.calls.iter().filter(|other| other.name == call.name);
        let nth = same.take_while(|other| !std::ptr::eq(*other, call)).count();
        Stall {
            what: call.name.clone(),
            tid: call.tid,
            nth: Some(nth),
            at: call.at,
            took: call.took.unwrap_or(0),
            ..Stall::default()
        }
    }
}

/// Whether a long call is a wait by itself: a vCPU that runs is none, what sleeps is asked for, and what
/// accepts a connection waits for a client.
fn may_stall(call: &Call) -> bool {
    !["KVM_RUN", "sleep", "accept"].contains(&call.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Object, Sample};

    const MS: u64 = 1_000_000;

    fn call(name: &str, at: u64, took: u64) -> Call {
        let (at, took, on) = (at * MS, Some(took * MS), Some(Object::Vm { vm: 0 }));
        Call { tid: 1, at, took, name: name.into(), on, result: Some(0), ..Call::default() }
    }

    #[test]
    fn the_longest_come_first_each_once_with_its_number_among_its_name_s() {
        let close = Sample {
            tid: 1,
            at: 71 * MS,
            took: MS,
            stack: vec!["kvm_destroy_vm".into()],
            ..Sample::default()
        };
        let calls = vec![
            call("KVM_IRQFD", 0, 3),
            call("KVM_IRQFD", 10, 0),
            call("KVM_RUN", 15, 50),
            call("KVM_IRQFD", 66, 4),
            call("close", 70, 9),
        ];
        let trace = Trace { calls, samples: vec![close], ..Trace::default() };
        let told = trace.find_stalls();
        let told: Vec<_> = told
            .iter()
            .map(|stall| (stall.what.as_str(), stall.nth, stall.took / MS, stall.cause.is_some()))
            .collect();
        let expected = [
            ("close", Some(0), 9, true),
            ("KVM_IRQFD", Some(2), 4, false),
            ("KVM_IRQFD", Some(0), 3, false),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn no_more_than_ten_are_told_and_these_are_the_longest() {
        let calls = (1..=20).map(|number| call("KVM_IRQFD", 30 * number, number)).collect();
        let told = Trace { calls, ..Trace::default() }.find_stalls();
        let took: Vec<u64> = told.iter().map(|stall| stall.took / MS).collect();
        assert_eq!(took, (11..=20).rev().collect::<Vec<_>>());
    }
}
