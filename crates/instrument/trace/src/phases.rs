//! The phases of a VM: when each event had happened, and how long it took since the event before.
//!
//! Programs do things in different orders, so the phases stand in the order in which they ended. Together they are
//! the whole trace, without a gap and without an overlap.

use crate::life::{DEVICES, MEMORY, overlap};
use crate::record::{Call, Phase, Trace};
use crate::restore::Restored;

/// The names of phases, in the order in which most programs go through them.
pub const PHASES: [&str; 17] = [
    "exec",
    "request",
    "VM created",
    "memory",
    "irqchip and devices",
    "vCPUs",
    "snapshot mapped",
    "snapshot read",
    "vCPU state",
    "first entry",
    "last exit",
    "threads joined",
    "memory unmapped",
    "fds closed",
    "process gone",
    "VM closed elsewhere",
    "trace ended",
];

/// A phase's name as `--fail-if` has it.
pub fn metric(phase: &str) -> String {
    phase.to_lowercase().replace(' ', "_")
}

/// What is known of a phase's end, before it is known what came before it.
struct Ended {
    name: &'static str,
    at: u64,
    calls: u64,
    in_calls: u64,
}

impl Ended {
    /// With the last of `calls`, if there is one.
    fn with<'a>(name: &'static str, calls: impl Iterator<Item = &'a Call>) -> Option<Self> {
        let mut ended = Self { name, at: 0, calls: 0, in_calls: 0 };
        for call in calls {
            ended.at = ended.at.max(call.end());
            ended.calls += 1;
            ended.in_calls += call.took.unwrap_or(0);
        }
        (ended.calls > 0).then_some(ended)
    }

    fn at(name: &'static str, at: Option<u64>) -> Option<Self> {
        Some(Self { name, at: at?, calls: 0, in_calls: 0 })
    }
}

/// Whose phases are looked for: a VM's between two times, or the whole program's.
#[derive(Clone, Copy)]
pub(crate) struct Scope {
    pub(crate) vm: Option<usize>,
    /// The process that runs the VM.
    pub(crate) program: Option<i32>,
    pub(crate) entry: Option<u64>,
    pub(crate) exit: Option<u64>,
    pub(crate) from: u64,
    /// `None` for a life that ends with its last event.
    pub(crate) to: Option<u64>,
}

impl Trace {
    /// Finds the phases. What was not seen to happen is left out: a program that is killed closes nothing.
    pub fn find_phases(&self) -> Vec<Phase> {
        self.phases_in(&Scope {
            vm: self.vm(),
            program: self.vmm().or(self.processes.first().map(|one| one.pid)),
            entry: self.first_entry(),
            exit: self.last_exit(),
            from: 0,
            to: Some(self.span),
        })
    }

    /// The phases of a scope, which are all of its time.
    pub(crate) fn phases_in(&self, scope: &Scope) -> Vec<Phase> {
        let Scope { vm, program, entry, exit, from, to } = *scope;
        let of_vm = |call: &&Call| call.vm().is_some() && call.vm() == vm;
        let begin = self.calls.iter().filter(|call| entry.is_none_or(|entry| call.at < entry));
        let setup = |names: &'static [&'static str]| {
            begin.clone().filter(of_vm).filter(move |call| names.contains(&call.name.as_str()))
        };
        let created = self.creation(vm).into_iter();
        let after = self.calls.iter().filter(|call| exit.is_some_and(|exit| call.end() >= exit));
        let backing = self.backing_of(vm);
        let unmapped = after.clone().filter(|call| {
            let range = (call.argument("address"), call.argument("length"));
            call.name == "munmap"
                && program.is_none_or(|pid| call.pid == pid)
                && backing.iter().any(|slot| overlap(*slot, range))
        });
        let is_close = |call: &&Call| call.name.starts_with("close");
        let gone = self.processes.iter().filter(|one| Some(one.pid) == program);
        let gone = gone.filter_map(|one| one.gone).max();
        let in_time = |call: &&Call| gone.is_none_or(|gone| call.at <= gone);
        let closed = after.clone().filter(of_vm).filter(is_close).filter(in_time);
        let executed = self.processes.iter().find(|one| Some(one.pid) == program);
        let executed = executed.or(self.processes.first());
        // What runs a VM may execute another program when it is done with it.
        let executed = executed.and_then(|one| {
            let mut times = one.executed.iter().map(|(at, _)| *at);
            times.rfind(|at| entry.is_none_or(|entry| *at <= entry))
        });
        // A thread that joins another goes on as soon as that has ended, and tears the VM down, before the end was seen.
        let torn_down = |since| {
            let calls = unmapped.clone().chain(closed.clone());
            calls.map(|call| call.at).filter(|at| *at >= since).min()
        };
        let joined = self
            .threads
            .iter()
            .filter(|thread| thread.tid != thread.pid && exit.is_some())
            .filter(|thread| to.map_or_else(|| self.ran(thread, vm), |_| self.ran_vcpu(thread)))
            .filter_map(|thread| {
                let gone = thread.gone?;
                Some(torn_down(thread.ending.unwrap_or(gone)).map_or(gone, |at| gone.min(at)))
            });
        // One that outlives the thread that would join it was not joined.
        let first = self.threads.iter().rfind(|one| Some(one.tid) == program);
        let ends = first.and_then(|one| one.ending);
        let joined = joined.max().filter(|at| ends.is_none_or(|ends| *at <= ends));
        let request = self.from.as_ref().map(|from| from.at).filter(|_| to.is_some());
        let restored = entry.and_then(|entry| self.restored(vm, program, entry));
        // What was done before a VM's life began has no part of its time.
        let of_snapshot = |when: fn(&Restored<'_>) -> Option<u64>| {
            restored.as_ref().and_then(when).filter(|at| *at > from)
        };
        let ended = [
            Ended::at("exec", executed.filter(|at| *at > from)),
            Ended::at("request", request.filter(|at| *at > from)),
            Ended::with("VM created", created),
            Ended::with("memory", setup(&MEMORY)),
            Ended::with("irqchip and devices", setup(&DEVICES)),
            Ended::with("vCPUs", setup(&["KVM_CREATE_VCPU"])),
            Ended::at("snapshot mapped", of_snapshot(|one| one.mapped)),
            Ended::at("snapshot read", of_snapshot(|one| one.read)),
            restored.and_then(|one| Ended::with("vCPU state", one.state.into_iter())),
            Ended::at("first entry", entry),
            Ended::at("last exit", exit),
            Ended::at("threads joined", joined),
            Ended::with("memory unmapped", unmapped.clone()),
            Ended::with("fds closed", closed.clone()),
            Ended::at("process gone", gone.filter(|_| to.is_some() || !self.is_closed(vm))),
            Ended::at("VM closed elsewhere", self.closed_elsewhere(vm, program, gone)),
        ];
        let mut ended: Vec<Ended> = ended.into_iter().flatten().collect();
        ended.sort_by_key(|one| one.at);
        // What is left of the time belongs to nothing of this VM's.
        let last = ended.last().map_or(from, |one| one.at);
        ended.extend(Ended::at("trace ended", to.filter(|to| *to > last)));
        let mut before = from;
        let phase = |Ended { name, at, calls, in_calls }| {
            let at = at.max(before);
            let took = at - before;
            before = at;
            Phase { name: name.to_owned(), at, took, calls, in_calls }
        };
        ended.into_iter().map(phase).collect()
    }

    /// When another process than its own gave up a VM, where it had it for longer than that one.
    fn closed_elsewhere(
        &self,
        vm: Option<usize>,
        program: Option<i32>,
        gone: Option<u64>,
    ) -> Option<u64> {
        let (vm, gone) = (vm?, gone?);
        let others = self.processes.iter().filter(|one| Some(one.pid) != program);
        let ended = others.filter(|one| one.held.contains(&vm)).filter_map(|one| one.gone);
        let gives_up = |call: &&Call| {
            call.name.starts_with("close")
                && call.vm() == Some(vm)
                && Some(call.pid) != program
                && call.succeeded()
        };
        let closed = self.calls.iter().filter(gives_up).map(Call::end);
        ended.chain(closed).max().filter(|at| *at > gone)
    }

    /// From the program's execution, or from the request, to the first entry of a vCPU.
    pub fn start(&self) -> Option<u64> {
        let from = self.from.as_ref().map(|from| from.at).or_else(|| self.ended("exec"));
        Some(self.first_entry()?.saturating_sub(from.unwrap_or(0)))
    }

    /// From the last exit of a vCPU to the end of its program.
    pub fn stop(&self) -> Option<u64> {
        Some(self.ended("process gone")?.saturating_sub(self.last_exit()?))
    }

    /// When a phase ended.
    fn ended(&self, name: &str) -> Option<u64> {
        self.phases.iter().find(|phase| phase.name == name).map(|phase| phase.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Object, Process, Thread};

    fn call(name: &str, at: u64, took: u64, on: Object) -> Call {
        let (took, on) = (Some(took), Some(on));
        Call {
            tid: 1,
            pid: 1,
            at,
            took,
            name: name.to_owned(),
            on,
            result: Some(0),
            ..Call::default()
        }
    }

    /// A life in which memory comes last, and a vCPU is on a thread of its own.
    fn life() -> Trace {
        let vm = || Object::Vm { vm: 0 };
        let mut calls = vec![
            call("KVM_CREATE_VM", 10, 5, Object::Kvm),
            call("KVM_CREATE_IRQCHIP", 20, 2, vm()),
            call("KVM_CREATE_VCPU", 30, 1, vm()),
            call("KVM_SET_USER_MEMORY_REGION", 40, 6, vm()),
            call("KVM_SET_USER_MEMORY_REGION", 50, 4, vm()),
            call("KVM_RUN", 100, 10, Object::Vcpu { vm: 0, id: 0 }),
            call("close", 200, 9, vm()),
        ];
        calls[0].arguments.insert("vm".to_owned(), 0);
        calls[5].tid = 2;
        let thread = |tid, at, gone| Thread {
            tid,
            pid: 1,
            at,
            ending: Some(gone - 1),
            gone: Some(gone),
            vcpu: tid == 2,
            ..Thread::default()
        };
        let process = Process {
            pid: 1,
            gone: Some(230),
            executed: vec![(3, "/vmm".to_owned())],
            ..Process::default()
        };
        Trace {
            span: 230,
            processes: vec![process],
            threads: vec![thread(1, 0, 230), thread(2, 60, 180)],
            calls,
            ..Trace::default()
        }
    }

    #[test]
    fn phases_stand_in_the_order_of_their_ends_and_leave_nothing_out() {
        let trace = life();
        let phases = trace.find_phases();
        let ends: Vec<_> = phases.iter().map(|one| (&one.name[..], one.at, one.took)).collect();
        let expected = [
            ("exec", 3, 3),
            ("VM created", 15, 12),
            ("irqchip and devices", 22, 7),
            ("vCPUs", 31, 9),
            ("memory", 54, 23),
            ("first entry", 100, 46),
            ("last exit", 179, 79),
            ("threads joined", 180, 1),
            ("fds closed", 209, 29),
            ("process gone", 230, 21),
        ];
        assert_eq!(ends, expected);
        assert_eq!(phases.iter().map(|phase| phase.took).sum::<u64>(), trace.span);
        let memory = &phases[4];
        assert_eq!((memory.calls, memory.in_calls), (2, 10));
    }

    #[test]
    fn what_comes_after_the_last_event_is_a_phase_of_its_own() {
        let mut trace = life();
        trace.span = 300;
        let phases = trace.find_phases();
        let last = phases.last().map(|one| (&one.name[..], one.at, one.took));
        assert_eq!(last, Some(("trace ended", 300, 70)));
        assert_eq!(phases.iter().map(|phase| phase.took).sum::<u64>(), trace.span);
    }

    #[test]
    fn a_vm_that_outlives_its_process_has_a_phase_of_its_own() {
        let mut trace = life();
        let other = |held| Process { pid: 7, gone: Some(260), held, ..Process::default() };
        trace.span = 280;
        trace.processes.push(other(vec![0]));
        let ends = |trace: &Trace| -> Vec<(String, u64)> {
            let phases = trace.find_phases();
            assert_eq!(phases.iter().map(|phase| phase.took).sum::<u64>(), trace.span);
            phases.into_iter().map(|one| (one.name, one.at)).skip(8).collect()
        };
        let expected = |names: &[(&str, u64)]| -> Vec<(String, u64)> {
            names.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect()
        };
        let own = [("fds closed", 209), ("process gone", 230)];
        let held = [&own[..], &[("VM closed elsewhere", 260), ("trace ended", 280)]].concat();
        assert_eq!(ends(&trace), expected(&held));
        // The same where it closes the VM itself, and goes on; and not where it has another one.
        trace.processes[1] = other(vec![1]);
        let rest = [&own[..], &[("trace ended", 280)]].concat();
        assert_eq!(ends(&trace), expected(&rest));
        trace.calls.push(Call { pid: 7, ..call("close", 240, 5, Object::Vm { vm: 0 }) });
        let closed = [&own[..], &[("VM closed elsewhere", 245), ("trace ended", 280)]].concat();
        assert_eq!(ends(&trace), expected(&closed));
    }

    #[test]
    fn a_thread_whose_end_is_seen_late_was_joined_before_its_vm_was_torn_down() {
        let mut trace = life();
        trace.threads[1].gone = Some(215);
        let phases = trace.find_phases();
        let ends: Vec<_> = phases.iter().map(|one| (&one.name[..], one.at)).collect();
        let expected = [
            ("last exit", 179),
            ("threads joined", 200),
            ("fds closed", 209),
            ("process gone", 230),
        ];
        assert_eq!(ends[6..], expected);
    }

    #[test]
    fn start_and_stop_are_from_the_execution_and_to_the_end() {
        let mut trace = life();
        trace.phases = trace.find_phases();
        assert_eq!((trace.start(), trace.stop()), (Some(97), Some(51)));
        trace.calls.retain(|call| call.name != "KVM_RUN");
        trace.threads[1].vcpu = false;
        trace.phases = trace.find_phases();
        assert_eq!((trace.start(), trace.stop()), (None, None));
    }

    #[test]
    fn a_program_that_is_executed_after_the_vm_has_run_is_not_its_start() {
        let mut trace = life();
        let of = |trace: &mut Trace, times: &[u64]| {
            trace.processes[0].executed = times.iter().map(|at| (*at, String::new())).collect();
            trace.phases = trace.find_phases();
            trace.start()
        };
        assert_eq!(of(&mut trace, &[1, 3, 215]), Some(97));
        assert_eq!(of(&mut trace, &[215]), Some(100));
        assert!(trace.phases.iter().all(|phase| phase.name != "exec"));
    }

    #[test]
    fn another_vm_of_the_same_program_is_not_in_the_phases() {
        let mut trace = life();
        trace.calls.insert(4, call("KVM_CREATE_IRQCHIP", 47, 2, Object::Vm { vm: 1 }));
        let phases = trace.find_phases();
        let devices = phases.iter().find(|phase| phase.name == "irqchip and devices").unwrap();
        assert_eq!((devices.calls, devices.at), (1, 22));
    }

    #[test]
    fn a_run_whose_end_was_not_seen_ends_with_its_thread() {
        let mut trace = life();
        trace.calls[5].took = None;
        assert_eq!(trace.last_exit(), Some(179));
        trace
            .calls
            .insert(6, Call { tid: 2, ..call("KVM_IRQ_LINE", 150, 1, Object::Vm { vm: 0 }) });
        assert_eq!(trace.last_exit(), Some(179));
        trace.calls[5].took = Some(10);
        assert_eq!(trace.last_exit(), Some(150));
    }

    #[test]
    fn a_program_without_vms_has_its_execution_and_its_end() {
        let mut trace = life();
        trace.calls.clear();
        trace.threads[1].vcpu = false;
        let names: Vec<_> = trace.find_phases().into_iter().map(|phase| phase.name).collect();
        assert_eq!(names, ["exec", "process gone"]);
        assert!(Trace::default().find_phases().is_empty());
    }
}
