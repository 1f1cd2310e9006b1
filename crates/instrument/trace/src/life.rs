//! A program's VM, as found in its calls: when it was first entered, when it was last left, and which threads ran it.

use crate::calls::KVM_RUN;
use crate::record::{Call, Object, Recorder, Sample, Thread, Trace};

/// What registers devices on an I/O bus of KVM's, or makes an interrupt controller.
pub(crate) const DEVICES: [&str; 10] = [
    "KVM_CREATE_IRQCHIP",
    "KVM_CREATE_PIT",
    "KVM_CREATE_PIT2",
    "KVM_CREATE_DEVICE",
    "KVM_SET_DEVICE_ATTR",
    "KVM_IOEVENTFD",
    "KVM_IRQFD",
    "KVM_SET_GSI_ROUTING",
    "KVM_REGISTER_COALESCED_MMIO",
    "KVM_ENABLE_CAP",
];

/// What sets memslots.
pub(crate) const MEMORY: [&str; 2] = ["KVM_SET_USER_MEMORY_REGION", "KVM_SET_USER_MEMORY_REGION2"];

/// Whether a sample was taken while its thread ran a vCPU.
pub(crate) fn runs_vcpu(sample: &Sample) -> bool {
    sample.call.is_some_and(|(_, arguments)| arguments[1] & 0xFFFF_FFFF == KVM_RUN)
}

/// Where KVM runs a vCPU.
const RUNS: [&str; 1] = ["kvm_arch_vcpu_ioctl_run"];

/// Whether a thread was in its guest when it was seen. Of one that is on a processor, or waits for one, `/proc` does not tell
/// the call. Then the kernel's account of its time says it, or its stack: where it last left a processor.
fn was_in_guest(sample: &Sample) -> bool {
    runs_vcpu(sample) || sample.guest > 0 || sample.call.is_none() && sample.is_in(&RUNS)
}

impl Trace {
    /// When a vCPU was first entered; where the call itself was not seen, when a thread was first seen in it.
    pub fn first_entry(&self) -> Option<u64> {
        if self.is_of_a_running_vm() {
            return None;
        }
        let call = self.calls.iter().find(|call| call.name == "KVM_RUN").map(|call| call.at);
        let sample = self.samples.iter().find(|sample| runs_vcpu(sample)).map(|sample| sample.at);
        call.or(sample)
    }

    /// When the last vCPU was left for the last time: the next call of its thread that was seen, or that one's end.
    pub fn last_exit(&self) -> Option<u64> {
        let goes_on = || self.processes.first().is_none_or(|one| one.gone.is_none());
        if self.is_of_a_running_vm() && goes_on() {
            return None;
        }
        self.threads.iter().filter_map(|thread| self.left(thread)).max()
    }

    /// Whether a thread ran a vCPU of this VM.
    pub(crate) fn ran(&self, thread: &Thread, vm: Option<usize>) -> bool {
        let mut runs = self.calls.iter().filter(|call| call.name == "KVM_RUN");
        runs.any(|call| call.tid == thread.tid && vm.is_some() && call.vm() == vm)
    }

    /// The call that created a VM.
    pub(crate) fn creation(&self, vm: Option<usize>) -> Option<&Call> {
        let vm = vm? as u64;
        self.calls.iter().find(|call| {
            call.name == "KVM_CREATE_VM" && call.succeeded() && call.argument("vm") == vm
        })
    }

    /// Whether a VM was closed by a call, and not by the end of its process.
    pub(crate) fn is_closed(&self, vm: Option<usize>) -> bool {
        let is_it = |on: &Object| matches!(on, Object::Vm { vm: of } if Some(*of) == vm);
        let mut calls = self.calls.iter().filter(|call| call.name.starts_with("close"));
        calls.any(|call| call.on.as_ref().is_some_and(is_it))
    }

    /// When the last vCPU of one VM was left for the last time. Of a thread that ran several VMs, its runs say so.
    pub(crate) fn last_exit_of(&self, vm: usize) -> Option<u64> {
        let runs = |thread: &Thread| {
            let tid = thread.tid;
            self.calls.iter().filter(move |call| call.tid == tid && call.name == "KVM_RUN")
        };
        let own = |call: &&Call| call.vm() == Some(vm);
        let left = |thread: &Thread| {
            let is_alone = runs(thread).all(|call| own(&call));
            let last = || runs(thread).filter(own).map(Call::end).max();
            if is_alone { self.left(thread) } else { last() }
        };
        let threads = self.threads.iter().filter(|thread| self.ran(thread, Some(vm)));
        threads.filter_map(left).max()
    }

    /// When a thread left its vCPU for the last time.
    pub(crate) fn left(&self, thread: &Thread) -> Option<u64> {
        let mine = |tid: i32, at: u64| {
            tid == thread.tid && at >= thread.at && thread.gone.is_none_or(|gone| at <= gone)
        };
        let calls = || self.calls.iter().filter(|call| mine(call.tid, call.at));
        let ran = calls().filter(|call| call.name == "KVM_RUN").map(Call::end).max();
        // Events tell each run: then nothing is made of a stack that may be older.
        let is_inside = if self.recorder == Recorder::Tracefs { runs_vcpu } else { was_in_guest };
        let seen = self.samples.iter().filter(|one| mine(one.tid, one.at) && is_inside(one));
        let inside = ran.max(seen.map(|one| one.at + one.took).max())?;
        // A run whose end was not seen ended with its thread.
        if self.recorder == Recorder::Tracefs
            && calls().any(|call| call.end() == inside && call.took.is_some())
        {
            // Each run has an event when it ends.
            return Some(inside);
        }
        let unended = calls().any(|call| call.name == "KVM_RUN" && call.took.is_none());
        let next = calls().filter(|call| !unended && call.name != "KVM_RUN" && call.at >= inside);
        next.map(|call| call.at).min().or(thread.ending).or(thread.gone).or(Some(inside))
    }

    /// Whether a thread ran a vCPU, as far as that was seen.
    pub(crate) fn ran_vcpu(&self, thread: &Thread) -> bool {
        let seen = || self.samples.iter().any(|one| one.tid == thread.tid && runs_vcpu(one));
        thread.vcpu || seen()
    }

    /// The thread of a process that was gone last: it gives up what all of them held.
    ///
    /// `ptrace` reports the first thread when all others are gone. It is the last only where it went on for longer than
    /// the others.
    pub(crate) fn last_gone(&self, pid: i32) -> Option<&Thread> {
        let threads = self.threads.iter().rev().filter(|one| one.pid == pid && one.gone.is_some());
        let last = threads.clone().max_by_key(|one| one.gone)?;
        let other = threads.filter(|one| one.tid != pid).max_by_key(|one| one.gone);
        let outlives = |other: &&Thread| {
            let (begun, reported) = (last.ending.or(last.gone), last.gone);
            other.gone.zip(begun).zip(reported).is_some_and(|((gone, begun), reported)| {
                gone > begun && gone - begun >= reported.saturating_sub(begun) / 2
            })
        };
        match self.recorder {
            Recorder::Tracefs => Some(self.last_told(pid, last)),
            _ if last.tid != pid => Some(last),
            _ => other.filter(outlives).or(Some(last)),
        }
    }

    /// The last thread of a process by events, if `last` seems to be.
    ///
    /// A thread may be over, and leave its processor for good only when others have left it to it: after the process was waited
    /// for. Until then it is not told when it was gone. One that goes on is seen to.
    fn last_told<'a>(&'a self, pid: i32, last: &'a Thread) -> &'a Thread {
        let waited = self.processes.iter().rfind(|one| one.pid == pid).and_then(|one| one.waited);
        let all = || self.threads.iter().filter(|one| one.pid == pid && one.gone.is_some());
        let told = all().filter(|one| one.gone != waited).max_by_key(|one| one.gone);
        let Some(told) = told.filter(|_| last.gone == waited) else { return last };
        let seen = |thread: &Thread| {
            let looks = self.samples.iter().filter(|one| one.tid == thread.tid);
            looks.map(|one| one.at + one.took).max().filter(|at| Some(*at) > told.gone)
        };
        let untold = all().filter(|one| one.gone == waited);
        let goes_on = untold.filter_map(|one| Some((seen(one)?, one)));
        goes_on.max_by_key(|(at, _)| *at).map_or(told, |(_, one)| one)
    }

    /// The VM that was entered first; else the one that was created last.
    pub(crate) fn vm(&self) -> Option<usize> {
        let entered = self.calls.iter().find_map(|call| match (&call.name[..], &call.on) {
            ("KVM_RUN", Some(Object::Vcpu { vm, .. })) => Some(*vm),
            _ => None,
        });
        let created = || {
            let mut calls = self.calls.iter().rev();
            let made = calls.find(|call| call.name == "KVM_CREATE_VM" && call.succeeded())?;
            Some(made.argument("vm") as usize)
        };
        entered.or_else(created)
    }

    /// The process that has created VMs, or used one first.
    pub(crate) fn vmm(&self) -> Option<i32> {
        let created = self.calls.iter().find(|call| call.name == "KVM_CREATE_VM");
        created.or_else(|| self.calls.iter().find(|call| call.is_kvm())).map(|call| call.pid)
    }

    /// The first call to KVM of a process: the thread that makes it is the one that sets the VM up.
    pub(crate) fn first_to_kvm(&self, pid: i32) -> Option<&Call> {
        self.calls.iter().find(|call| call.is_kvm() && call.pid == pid)
    }

    /// What backed a guest's memory by then: address and length of each memslot that was set before, also of those that
    /// were deleted again.
    pub(crate) fn backing(&self, before: u64) -> Vec<(u64, u64)> {
        let set = self.slots().filter(|call| call.at < before && call.succeeded());
        set.filter_map(ranges).collect()
    }

    /// What backs a VM's memory at any time.
    pub(crate) fn backing_of(&self, vm: Option<usize>) -> Vec<(u64, u64)> {
        self.slots().filter(|call| call.vm() == vm && call.succeeded()).filter_map(ranges).collect()
    }

    /// The VMs of which a memslot has had some of this memory, as often as it was set.
    pub(crate) fn owners(&self, range: (u64, u64)) -> impl Iterator<Item = Option<usize>> {
        let has_some = move |call: &&Call| {
            call.succeeded() && ranges(call).is_some_and(|slot| overlap(slot, range))
        };
        self.slots().filter(has_some).map(Call::vm)
    }

    /// The calls that set memslots.
    fn slots(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| MEMORY.contains(&call.name.as_str()))
    }

    /// Whether it was seen what each memslot is.
    pub(crate) fn knows_slots(&self) -> bool {
        self.slots().all(|call| !call.arguments.is_empty())
    }
}

/// The memory of a call that sets a memslot, and deletes none: address and length.
fn ranges(call: &Call) -> Option<(u64, u64)> {
    let size = call.argument("size");
    (size > 0).then(|| (call.argument("memory"), size))
}

impl Thread {
    /// From when to when a signal that cannot be caught stopped it, and with it its process, until another let it go on.
    pub(crate) fn stops(&self) -> impl Iterator<Item = (u64, u64)> {
        let stops = self.signals.iter().filter(|(_, signal)| *signal == libc::SIGSTOP);
        stops.filter_map(|(from, _)| {
            let mut later = self.signals.iter().filter(|(at, _)| at > from);
            let (to, _) = later.find(|(_, signal)| *signal == libc::SIGCONT)?;
            Some((*from, *to))
        })
    }
}

impl Trace {
    /// Whether a signal had stopped a thread for all of a time.
    pub(crate) fn is_stopped(&self, tid: i32, (from, to): (u64, u64)) -> bool {
        let thread = self.thread_number(tid, from).map(|number| &self.threads[number]);
        thread
            .is_some_and(|thread| thread.stops().any(|(since, until)| since <= from && to <= until))
    }
}

/// Whether two ranges of addresses overlap, each an address and a length.
pub(crate) fn overlap(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0 < other.0.saturating_add(other.1) && other.0 < one.0.saturating_add(one.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Process;

    /// A vCPU that runs from 10 on, is seen at something between 20 and 90, asks for its registers at 95, and ends at 99.
    fn left(recorder: Recorder, sample: Sample) -> Option<u64> {
        let call = |name: &str, at, took| Call {
            tid: 7,
            at,
            took: Some(took),
            name: name.to_owned(),
            ..Call::default()
        };
        let calls =
            vec![call("KVM_RUN", 10, 2), call("KVM_IRQ_LINE", 14, 1), call("KVM_GET_REGS", 95, 1)];
        let thread = Thread { tid: 7, ending: Some(99), gone: Some(99), ..Thread::default() };
        let samples = vec![Sample { tid: 7, at: 20, took: 70, seen: 70, ..sample }];
        let trace = Trace { recorder, calls, samples, ..Trace::default() };
        trace.left(&thread)
    }

    #[test]
    fn a_thread_whose_end_was_not_told_is_the_last_where_it_is_seen_to_go_on() {
        let last = |seen: u64, gone: u64| {
            let thread = |tid, gone| Thread { tid, pid: 7, gone: Some(gone), ..Thread::default() };
            let threads = vec![thread(7, 50), thread(8, 80), thread(9, gone)];
            let samples = vec![Sample { tid: 9, at: 10, took: seen - 10, ..Sample::default() }];
            let process =
                Process { pid: 7, waited: Some(80), gone: Some(80), ..Process::default() };
            let (recorder, processes) = (Recorder::Tracefs, vec![process]);
            let trace = Trace { recorder, processes, threads, samples, ..Trace::default() };
            trace.last_gone(7).map(|one| one.tid)
        };
        assert_eq!((last(45, 80), last(60, 80)), (Some(7), Some(9)));
        // The end of this one was told.
        assert_eq!((last(45, 75), last(45, 90)), (Some(9), Some(9)));
    }

    #[test]
    fn a_vcpu_whose_guest_keeps_a_processor_was_left_when_something_else_was_seen_of_it() {
        let stack = || vec!["xfer_to_guest_mode_handle_work".to_owned(), RUNS[0].to_owned()];
        let in_guest = Sample { guest: 10, ..Sample::default() };
        let preempted = Sample { stack: stack(), ..Sample::default() };
        for sample in [in_guest, preempted.clone()] {
            assert_eq!(left(Recorder::Ptrace, sample), Some(95));
        }
        // It runs code of its own, or is in another call.
        let reads = Some((libc::SYS_read as u64, [0; 4]));
        for sample in [Sample::default(), Sample { call: reads, ..preempted.clone() }] {
            assert_eq!(left(Recorder::Ptrace, sample), Some(14));
        }
        // What events tell is exact.
        assert_eq!(left(Recorder::Tracefs, preempted), Some(12));
    }
}
