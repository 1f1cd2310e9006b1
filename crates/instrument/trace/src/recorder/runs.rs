//! Which threads may be about to run a vCPU: these stop at each call, for `KVM_RUN` passes the filter, and the first one of
//! each thread is to be recorded.
//!
//! A new thread may, while there is a VM (`Follower::ensure`), and so may one that sets up a vCPU. Who has made a vCPU, or has
//! asked for all that it has, prepares it, and runs it only when it has set its registers.

use super::follow::Follower;
use super::threads::{Inside, Then};
use crate::calls::{SystemCall, passes, runs_vcpu, wanted};
use crate::record::{Call, Object};
use crate::sys::ptrace;

/// Who asks for this has asked for all that a vCPU has: nobody needs it alone. And what is set before a vCPU runs.
const ASKS_FOR_ALL: [&str; 2] = ["KVM_GET_XSAVE", "KVM_GET_XSAVE2"];
const SETS: [&str; 6] = [
    "KVM_SET_REGS",
    "KVM_SET_SREGS",
    "KVM_SET_SREGS2",
    "KVM_SET_XSAVE",
    "KVM_SET_ONE_REG",
    "KVM_ARM_VCPU_INIT",
];

impl Follower {
    /// A thread has made a vCPU.
    pub(super) fn has_made(&mut self, tid: i32, vcpu: (usize, u64)) {
        self.not_run.insert(vcpu, tid);
        self.had_vcpus = true;
        if let Some(thread) = self.followers.threads.get_mut(&tid) {
            thread.vcpus.insert(vcpu);
            thread.prepares = thread.vcpus.len() == 1;
            thread.looked_for &= !thread.prepares;
        }
    }

    /// A thread makes a call on a vCPU: where that has not run, the thread may be about to run it.
    pub(super) fn sets_up(&mut self, tid: i32, vcpu: (usize, u64), name: &str) {
        let Some(&maker) = self.not_run.get(&vcpu) else { return };
        let sets = SETS.contains(&name);
        if sets && maker != tid {
            self.is_set_up_by_another(maker);
        }
        if self.is_left_to_another(tid, vcpu.0, maker) {
            return;
        }
        if let Some(thread) = self.followers.threads.get_mut(&tid) {
            thread.vcpus.insert(vcpu);
            thread.prepares |= ASKS_FOR_ALL.contains(&name);
            thread.prepares &= !sets && thread.vcpus.len() == 1;
            thread.looked_for = !thread.has_run && !thread.prepares;
        }
    }

    /// Who made a vCPU, and was to set its registers, may run it when another has set them. It goes on until it stops.
    fn is_set_up_by_another(&mut self, maker: i32) {
        let thread = self.followers.threads.get_mut(&maker).filter(|one| one.prepares);
        let Some(thread) = thread else { return };
        (thread.prepares, thread.looked_for) = (false, !thread.has_run);
        if self.filtered && self.book.ledger.is_none() {
            // Where it sleeps, the kernel has most calls go on as if nothing had been.
            let _ = ptrace::interrupt(maker);
        }
    }

    /// Whether a thread has made a VM, and left it to another to make a vCPU of it: that one will run the vCPU.
    fn is_left_to_another(&self, tid: i32, vm: usize, maker: i32) -> bool {
        self.vm_makers.get(&vm) == Some(&tid)
            && maker != tid
            && self.followers.threads.contains_key(&maker)
    }

    /// A thread that stops at each call begins one. It may run a vCPU, or close a descriptor, without a stop for the filter.
    pub(super) fn passes_by(
        &mut self,
        tid: i32,
        arch: u32,
        number: u64,
        arguments: &[u64; 6],
    ) -> bool {
        self.may_run(tid, arch, number, arguments);
        let is_close = wanted(arch, number, arguments) == Some(SystemCall::Close);
        !(is_close && passes(SystemCall::Close, arguments))
            || self.enters(tid, arch, number, arguments)
    }

    /// A thread that is looked for may be about to run a vCPU.
    pub(super) fn may_run(&mut self, tid: i32, arch: u32, number: u64, arguments: &[u64; 6]) {
        if !runs_vcpu(arch, number, arguments) {
            return;
        }
        let Some(thread) = self.followers.threads.get(&tid).filter(|one| !one.has_run) else {
            return;
        };
        let (pid, table) = (thread.pid, thread.table);
        let fd = arguments[0] as i32;
        let tables = self.followers.tables();
        let on = self.descriptors.used(tid, table, fd, arguments[1], &tables);
        let call = Call {
            tid,
            pid,
            name: "KVM_RUN".to_owned(),
            fd: Some(fd),
            on: Some(on.clone()),
            ..Call::default()
        };
        let call = self.book.begin(call);
        if let Object::Vcpu { vm, id } = on {
            self.not_run.remove(&(vm, id));
        }
        if let Some(thread) = self.followers.threads.get_mut(&tid) {
            thread.inside = Some(Inside { call, then: Then::Ran, looked: None });
            self.book.trace.threads[thread.number].vcpu = true;
            self.watched.runs(tid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::calls::ARCHITECTURES;
    use crate::record::Trace;
    use crate::recorder::book::Book;
    use crate::recorder::clock::Clock;
    use crate::recorder::sampler::Watched;
    use crate::recorder::threads::Followed;

    /// Numbers that no thread has.
    const MAIN: i32 = i32::MAX - 2;
    const OTHER: i32 = i32::MAX - 1;

    /// A program with two threads that have one table of descriptors.
    fn follower() -> Follower {
        let book = Book::new(Clock::start(), Vec::new());
        let mut one = Follower::new(book, Arc::new(Watched::default()), MAIN, None);
        let table = one.descriptors.empty();
        one.descriptors.set(table, 3, Object::Kvm);
        for tid in [MAIN, OTHER] {
            let number = one.book.thread(tid, MAIN, None);
            one.begin(tid, Followed::at_first(MAIN, table, number));
        }
        one
    }

    /// A thread makes an ioctl of KVM's, which gives a result.
    fn calls(one: &mut Follower, tid: i32, fd: u64, request: u64, result: i64) {
        let number = libc::SYS_ioctl as u64;
        let arguments = [fd, request, 0, 0, 0, 0];
        assert!(one.enters(tid, ARCHITECTURES[0].audit, number, &arguments));
        one.leaves(tid, result);
    }

    /// Which of the two may be about to run a vCPU that a thread has made of the first one's VM, when both have set its
    /// registers.
    fn looked_for(maker: i32) -> [bool; 2] {
        let mut one = follower();
        calls(&mut one, MAIN, 3, 0xAE01, 4);
        calls(&mut one, maker, 4, 0xAE41, 5);
        for tid in [MAIN, OTHER] {
            calls(&mut one, tid, 5, 0x4090_AE82, 0);
        }
        let Trace { calls, .. } = &one.book.trace;
        assert_eq!(calls.last().map(|call| &call.name[..]), Some("KVM_SET_REGS"));
        [MAIN, OTHER].map(|tid| one.followers.threads[&tid].looked_for)
    }

    #[test]
    fn who_has_made_a_vcpu_or_asked_for_all_that_it_has_does_not_run_it_before_it_sets_registers() {
        let mut one = follower();
        calls(&mut one, MAIN, 3, 0xAE01, 4);
        calls(&mut one, OTHER, 4, 0xAE41, 5);
        let is_looked_for = |one: &Follower| one.followers.threads[&OTHER].looked_for;
        assert!(!is_looked_for(&one));
        // KVM_GET_REGS alone may be to tell the user of them.
        for (request, expected) in [
            (0x8090_AE81, false),
            (0x4090_AE82, true),
            (0x8090_AE81, true),
            (0x9000_AECF, false),
            (0x8090_AE81, false),
            (0x4090_AE82, true),
        ] {
            calls(&mut one, OTHER, 5, request, 0);
            assert_eq!(is_looked_for(&one), expected, "{request:#x}");
        }
        // Of two vCPUs, it may run the other one.
        let table = one.followers.threads[&OTHER].table;
        one.descriptors.set(table, 6, Object::Vcpu { vm: 0, id: 1 });
        one.not_run.insert((0, 1), OTHER);
        calls(&mut one, OTHER, 6, 0x9000_AECF, 0);
        assert!(is_looked_for(&one));
    }

    #[test]
    fn who_has_made_a_vcpu_may_run_it_when_another_thread_has_set_its_registers() {
        let mut one = follower();
        calls(&mut one, MAIN, 3, 0xAE01, 4);
        calls(&mut one, OTHER, 4, 0xAE41, 5);
        let is_looked_for = |one: &Follower| one.followers.threads[&OTHER].looked_for;
        calls(&mut one, MAIN, 5, 0x8090_AE81, 0);
        assert!(!is_looked_for(&one));
        calls(&mut one, MAIN, 5, 0x4090_AE82, 0);
        assert!(is_looked_for(&one));
    }

    #[test]
    fn a_vm_whose_descriptor_passes_the_filter_when_it_is_closed_has_its_threads_stopped_at_each_call()
     {
        let mut one = follower();
        let closely =
            |one: &Follower| one.descriptors.lowest_is_of_vm(one.followers.threads[&OTHER].table);
        assert!(!closely(&one), "/dev/kvm has it");
        calls(&mut one, MAIN, 3, 0xAE01, 3);
        assert!(closely(&one));
        let close = libc::SYS_close as u64;
        assert!(one.passes_by(OTHER, ARCHITECTURES[0].audit, close, &[3, 0, 0, 0, 0, 0]));
        one.leaves(OTHER, 0);
        assert!(!closely(&one));
        let last = one.book.trace.calls.last().unwrap();
        assert_eq!((&last.name[..], last.vm()), ("close", Some(0)));
    }

    #[test]
    fn who_made_a_vm_does_not_stop_at_each_call_for_a_vcpu_that_another_thread_has_made() {
        assert_eq!(looked_for(OTHER), [false, true]);
        // Of a vCPU that the first one has made, either may be the one that runs it.
        assert_eq!(looked_for(MAIN), [true, true]);
    }
}
