//! What the threads of a process did that ran before it was traced: a VM that was there has no start to tell of.

use std::collections::BTreeMap;
use std::fmt;

use mayfly_record::units::{duration, percent, things};

use crate::life::runs_vcpu;
use crate::record::{Call, Sample, Thread, Trace};

/// Threads that have a line: those that were on a processor longest, or could have been.
const MOST_THREADS: usize = 20;
/// Names of calls that are listed.
const MOST_CALLS: usize = 12;

/// Lists threads and calls.
pub(crate) struct Meanwhile<'a>(pub(crate) &'a Trace);

impl Trace {
    /// Whether the VM was there before the trace began: neither its creation nor its first entry was seen.
    pub(crate) fn is_of_a_running_vm(&self) -> bool {
        self.attached
            && !self.calls.iter().any(|call| call.name == "KVM_CREATE_VM" && call.succeeded())
    }
}

/// A thread's line.
struct Line {
    busy: u64,
    text: String,
}

impl fmt::Display for Meanwhile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace = self.0;
        let named = trace.threads.iter().zip(trace.thread_names());
        let mut lines: Vec<Line> = named.map(|(thread, name)| line(trace, thread, &name)).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.busy));
        writeln!(f, "the VM ran before: what its threads did meanwhile")?;
        writeln!(
            f,
            "  {:>5}  {:>8}  {:>6}  {:>9}  thread",
            "ran", "runnable", "asleep", "KVM_RUN"
        )?;
        for Line { text, .. } in lines.iter().take(MOST_THREADS) {
            writeln!(f, "  {text}")?;
        }
        if lines.len() > MOST_THREADS {
            writeln!(f, "  and {}", things((lines.len() - MOST_THREADS) as u64, "more thread"))?;
        }
        let calls = calls(trace);
        if !calls.is_empty() {
            writeln!(f, "calls: {}", calls.join(", "))?;
        }
        Ok(())
    }
}

fn line(trace: &Trace, thread: &Thread, name: &str) -> Line {
    let (from, to) = (thread.at, thread.gone.unwrap_or(trace.span).max(thread.at));
    let spent = trace.spent(thread.tid, from, to).unwrap_or_default();
    let known = spent.whole().saturating_sub(spent.unseen);
    let share = |time: u64| match known {
        0 => "-".to_owned(),
        known => percent(time as f64 / known as f64),
    };
    let runs = if thread.vcpu { thread.runs.to_string() } else { "-".to_owned() };
    let (ran, queued, asleep) = (share(spent.ran), share(spent.queued), share(spent.asleep()));
    let waits = most(trace, thread).map_or_else(String::new, |found| format!(", {found}"));
    let text = format!("{ran:>5}  {queued:>8}  {asleep:>6}  {runs:>9}  {name}{waits}");
    Line { busy: spent.ran + spent.queued, text }
}

/// Where a thread was in most looks at it.
fn most(trace: &Trace, thread: &Thread) -> Option<String> {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    let looks: Vec<&Sample> = trace.samples.iter().filter(|one| one.tid == thread.tid).collect();
    for look in &looks {
        let place =
            look.channel.as_deref().or(if runs_vcpu(look) { Some("its guest") } else { None });
        if let Some(place) = place {
            *seen.entry(place).or_default() += look.seen;
        }
    }
    let all: u64 = looks.iter().map(|look| look.seen).sum();
    let (place, times) = seen.into_iter().max_by_key(|(_, times)| *times)?;
    Some(format!("in {place} in {times} of {}", things(all, "look")))
}

/// How often each call was made, and how long it took, longest first.
fn calls(trace: &Trace) -> Vec<String> {
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for Call { name, took, .. } in trace.calls.iter().filter(|call| call.name != "KVM_RUN") {
        let sum = sums.entry(name).or_default();
        (sum.0, sum.1) = (sum.0 + 1, sum.1 + took.unwrap_or(0));
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, (_, took))| std::cmp::Reverse(*took));
    let told = sums.iter().take(MOST_CALLS);
    told.map(|(name, (count, took))| format!("{count} x {name} ({})", duration(*took))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::KVM_RUN;
    use crate::record::{Account, Object};
    use crate::text::Text;

    /// A vCPU that is in its guest, and a thread that waits; it was attached to.
    fn trace() -> Trace {
        let thread = |tid, vcpu, runs| Thread { tid, pid: 7, vcpu, runs, ..Thread::default() };
        let account = |tid, at, ran| Account { tid, at, ran, queued: 0 };
        let guest = Some((libc::SYS_ioctl as u64, [9, KVM_RUN, 0, 0]));
        let look = |tid, channel: Option<&str>, call| Sample {
            tid,
            at: 10,
            took: 900,
            seen: 8,
            call,
            channel: channel.map(str::to_owned),
            ..Sample::default()
        };
        let on = Some(Object::Vcpu { vm: 0, id: 0 });
        let run = Call { tid: 8, pid: 7, at: 500, name: "KVM_RUN".into(), on, ..Call::default() };
        let line = Call { tid: 7, pid: 7, at: 600, took: Some(5), ..Call::default() };
        Trace {
            attached: true,
            span: 1000,
            threads: vec![thread(7, false, 0), thread(8, true, 240)],
            accounts: vec![
                account(7, 0, 0),
                account(7, 1000, 0),
                account(8, 0, 0),
                account(8, 1000, 750),
            ],
            samples: vec![look(7, Some("do_sys_poll"), None), look(8, None, guest)],
            calls: vec![run, Call { name: "KVM_IRQ_LINE".into(), ..line }],
            ..Trace::default()
        }
    }

    #[test]
    fn a_vm_that_ran_before_has_no_start_and_its_threads_are_told() {
        let mut trace = trace();
        trace.phases = trace.find_phases();
        trace.critical_paths = trace.find_critical_paths();
        let names: Vec<&str> = trace.phases.iter().map(|one| &one.name[..]).collect();
        assert_eq!(names, ["trace ended"]);
        assert_eq!((trace.start(), trace.stop(), trace.critical_paths.len()), (None, None, 0));
        let text = Text(&trace).to_string();
        let words = |part: &str| {
            let line = text.lines().find(|line| line.contains(part)).unwrap_or_default();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let vcpu = "75% 0.0% 25% 240 vCPU 0 of VM 0, thread 8, in its guest in 8 of 8 looks";
        assert_eq!(words("vCPU 0 of VM 0"), vcpu);
        assert_eq!(
            words("do_sys_poll"),
            "0.0% 0.0% 100% - thread 7, in do_sys_poll in 8 of 8 looks"
        );
        assert_eq!(words("calls:"), "calls: 1 x KVM_IRQ_LINE (5 ns)");
    }

    #[test]
    fn a_vm_that_makes_no_call_while_it_is_looked_at_is_not_called_none() {
        let mut trace = trace();
        trace.calls.clear();
        let text = Text(&trace).to_string();
        assert!(text.contains("what its threads did meanwhile") && !text.contains("never opened"));
    }

    #[test]
    fn a_process_that_makes_its_vm_while_it_is_traced_has_a_start() {
        let mut trace = trace();
        let create =
            Call { tid: 7, pid: 7, at: 400, took: Some(5), result: Some(3), ..Call::default() };
        trace.calls.insert(0, Call { name: "KVM_CREATE_VM".into(), ..create });
        trace.phases = trace.find_phases();
        assert_eq!(trace.start(), Some(500));
        assert!(!Text(&trace).to_string().contains("meanwhile"));
    }
}
