//! When a VM was asked for: the start of a VMM that is driven by a client is counted from there, and not from its execution.
//!
//! A thread of the VMM that takes a connection, or that sleeps until something comes, and then does the first calls to KVM,
//! waited for a client. What comes before that is the client's time.

use std::path::PathBuf;
use std::str::FromStr;

use crate::record::{Call, From, Sample, Trace};
use crate::recorder::Mark;
use crate::usdt::Probe;

/// What the start is counted from, if the user says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Beginning {
    /// The client's request, where the program waits for one before its first call to KVM; else its execution.
    #[default]
    Unsaid,
    /// The program's execution.
    Exec,
    /// What comes to a thread that waits for a client.
    Socket,
    /// The first call of KVM's with this name.
    Call(String),
    /// The first time that the user writes to this file.
    File(PathBuf),
    /// The first time that the program comes to this probe of its own.
    Probe(Probe),
}

impl Beginning {
    /// What is to be waited for while the program is recorded, if it is no event of the record.
    pub fn mark(&self) -> Option<Mark> {
        match self {
            Self::File(path) => Some(Mark::File(path.clone())),
            Self::Probe(probe) => Some(Mark::Probe(probe.clone())),
            _ => None,
        }
    }
}

impl FromStr for Beginning {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "exec" => Ok(Self::Exec),
            "socket" => Ok(Self::Socket),
            name if name.starts_with("KVM_") => Ok(Self::Call(name.to_owned())),
            _ => match (text.strip_prefix("file:"), text.strip_prefix("usdt:")) {
                (Some(path), _) if !path.is_empty() => Ok(Self::File(path.into())),
                (_, Some(probe)) => probe.parse().map(Self::Probe),
                _ => Err("it is one of exec, socket, KVM_..., file:PATH, usdt:PATH:PROVIDER:NAME"
                    .to_owned()),
            },
        }
    }
}

/// Who waits for a client waits for so long, in nanoseconds: short waits are for something else.
const LONG: u64 = 10_000_000;
/// Calls in which a thread waits for a client.
const WAITS: [libc::c_long; 7] = [
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
];
#[cfg(target_arch = "x86_64")]
const OLD_WAITS: [libc::c_long; 3] = [libc::SYS_epoll_wait, libc::SYS_poll, libc::SYS_select];
#[cfg(not(target_arch = "x86_64"))]
const OLD_WAITS: [libc::c_long; 0] = [];

impl Trace {
    /// From when the start is counted; `None` is from the program's execution.
    pub(crate) fn find_from(&self, wanted: &Beginning) -> Option<From> {
        let from = |event: &str, at| From { event: event.to_owned(), at };
        match wanted {
            Beginning::Exec => None,
            Beginning::Unsaid => self.asked(LONG).map(|at| from("socket", at)),
            Beginning::Socket => self.asked(0).map(|at| from("socket", at)),
            Beginning::Call(name) => {
                let first = self.calls.iter().find(|call| call.name == *name);
                first.map(|call| from(name, call.at))
            }
            Beginning::File(_) => self.marked.map(|at| from("file", at)),
            Beginning::Probe(_) => self.marked.map(|at| from("usdt", at)),
        }
    }

    /// When a client was last heard before the VM was created, by a thread that had waited for so long at least.
    fn asked(&self, least: u64) -> Option<u64> {
        let vmm = self.vmm()?;
        let created = self.calls.iter().find(|call| call.name == "KVM_CREATE_VM")?.at;
        let first = self.first_to_kvm(vmm)?.at;
        let accepted = self.calls.iter().filter(|call| {
            call.name == "accept" && call.pid == vmm && call.succeeded() && call.end() <= created
        });
        let is_its = |tid: i32| self.threads.iter().any(|one| one.tid == tid && one.pid == vmm);
        let waits = self.samples.iter().filter(|one| waits_for_client(one) && is_its(one.tid));
        // One that goes on when the VM is created has nothing to do with it.
        let waits = waits.filter(|one| one.at + one.took <= first);
        let waited: Vec<(u64, u64)> = waits
            .map(|one| (one.took, self.wakes_up(one, created)))
            .filter(|(_, at)| *at <= created)
            .collect();
        let has_waited = waited.iter().any(|(took, _)| *took >= least)
            || accepted.clone().any(|call| call.took >= Some(least));
        if !has_waited {
            return None;
        }
        let waited = waited.iter().filter(|(took, _)| *took >= least.min(LONG)).map(|(_, at)| *at);
        accepted.map(Call::end).chain(waited).max()
    }

    /// When a wait was over in which a thread was seen: when it was woken, or else before it was seen to do something else.
    fn wakes_up(&self, seen: &Sample, created: u64) -> u64 {
        let last = seen.at + seen.took;
        let woken = self.wakes.iter().find(|wake| wake.tid == seen.tid && wake.at >= last);
        if let Some(wake) = woken.filter(|wake| wake.since <= last) {
            return wake.at;
        }
        let sample = self.samples.iter().find(|one| one.tid == seen.tid && one.at > last);
        let call = self.calls.iter().find(|one| one.tid == seen.tid && one.at > last);
        let next = sample.map(|one| one.at).into_iter().chain(call.map(|one| one.at)).min();
        next.map_or(last, |next| next.min(created))
    }
}

fn waits_for_client(sample: &Sample) -> bool {
    let number = sample.call.map(|(number, _)| number);
    let calls = |numbers: &[libc::c_long]| numbers.iter().any(|one| number == Some(*one as u64));
    calls(&WAITS) || calls(&OLD_WAITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Object, Process, Thread, Wake};

    const MS: u64 = 1_000_000;

    fn call(name: &str, at: u64, took: u64) -> Call {
        let (at, took, on) = (at * MS, Some(took * MS), Some(Object::Kvm));
        Call { tid: 1, pid: 1, at, took, name: name.into(), on, result: Some(0), ..Call::default() }
    }

    fn look(number: libc::c_long, at: u64, took: u64) -> Sample {
        let call = Some((number as u64, [0; 4]));
        Sample { tid: 1, at: at * MS, took: took * MS, call, ..Sample::default() }
    }

    /// A VMM that is executed at 2 ms, creates its VM at 930 ms, and enters it at 945 ms.
    fn trace(samples: Vec<Sample>, calls: Vec<Call>) -> Trace {
        let executed = vec![(2 * MS, "/vmm".to_owned())];
        let process = Process { pid: 1, gone: Some(990 * MS), executed, ..Process::default() };
        let own = [call("KVM_CREATE_VM", 930, 1), call("KVM_RUN", 945, 5)];
        Trace {
            span: 990 * MS,
            processes: vec![process],
            threads: vec![Thread { tid: 1, pid: 1, gone: Some(990 * MS), ..Thread::default() }],
            calls: [calls, own.to_vec()].concat(),
            samples,
            ..Trace::default()
        }
    }

    fn start(mut trace: Trace, wanted: &Beginning) -> Option<(String, u64, Option<u64>)> {
        trace.from = trace.find_from(wanted);
        trace.phases = trace.find_phases();
        assert_eq!(trace.phases.iter().map(|one| one.took).sum::<u64>(), trace.span);
        let is_phase =
            |at: u64| trace.phases.iter().any(|one| one.name == "request" && one.at == at);
        let from = trace.from.clone()?;
        assert!(is_phase(from.at), "{:?}", trace.phases);
        Some((from.event, from.at / MS, trace.start().map(|start| start / MS)))
    }

    #[test]
    fn the_start_of_a_vmm_that_waits_for_a_client_is_from_the_request_on() {
        let waits = || trace(vec![look(libc::SYS_epoll_pwait, 10, 908)], vec![]);
        // It was last seen there at 918 ms, and no later than by its first call.
        assert_eq!(start(waits(), &Beginning::Unsaid), Some(("socket".into(), 930, Some(15))));
        let mut woken = waits();
        woken.wakes = vec![Wake { tid: 1, since: 9 * MS, at: 920 * MS, by: Some(7) }];
        assert_eq!(
            start(woken.clone(), &Beginning::Unsaid),
            Some(("socket".into(), 920, Some(25)))
        );
        assert_eq!(start(woken, &Beginning::Exec), None);
        // By ptrace a connection says it.
        let accepted =
            trace(vec![look(libc::SYS_epoll_pwait, 10, 808)], vec![call("accept", 925, 0)]);
        assert_eq!(start(accepted, &Beginning::Unsaid), Some(("socket".into(), 925, Some(20))));
        let blocks = trace(vec![], vec![call("accept", 10, 900)]);
        assert_eq!(start(blocks, &Beginning::Unsaid), Some(("socket".into(), 910, Some(35))));
    }

    #[test]
    fn a_program_that_waits_for_nobody_before_its_vm_starts_with_its_execution() {
        // A short wait is for something else; one of a process that makes no VM, or after it, is no request.
        assert_eq!(
            start(trace(vec![look(libc::SYS_ppoll, 10, 4)], vec![]), &Beginning::Unsaid),
            None
        );
        let mut other = trace(vec![look(libc::SYS_ppoll, 10, 900)], vec![]);
        other.threads[0].pid = 5;
        assert_eq!(start(other, &Beginning::Unsaid), None);
        let late = trace(vec![look(libc::SYS_ppoll, 935, 9)], vec![]);
        assert_eq!(start(late, &Beginning::Unsaid), None);
        let sleeps = trace(vec![look(libc::SYS_futex, 10, 900)], vec![]);
        assert_eq!(start(sleeps, &Beginning::Unsaid), None);
    }

    #[test]
    fn the_user_says_from_when_the_start_is_counted() {
        let by = |text: &str| {
            let mut one = trace(vec![], vec![call("KVM_CHECK_EXTENSION", 500, 1)]);
            one.marked = Some(700 * MS);
            start(one, &text.parse().unwrap())
        };
        assert_eq!(by("KVM_CHECK_EXTENSION"), Some(("KVM_CHECK_EXTENSION".into(), 500, Some(445))));
        assert_eq!(by("file:/tmp/now"), Some(("file".into(), 700, Some(245))));
        assert_eq!((by("exec"), by("KVM_IRQFD"), by("socket")), (None, None, None));
        for wrong in ["", "file:", "sockets", "kvm_run"] {
            assert!(wrong.parse::<Beginning>().is_err(), "{wrong}");
        }
    }
}
