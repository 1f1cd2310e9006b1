//! The work at the beginning and at the end of each call that is recorded.

use super::descriptors::Table;
use super::follow::Follower;
use super::threads::{Inside, Then};
use crate::calls::{LONG, LONG_FILE, SystemCall, runs_vcpu, wanted};
use crate::ioctl;
use crate::record::{Call, Object};

/// Where in the structure of `KVM_CREATE_DEVICE` the kernel puts the descriptor.
const DEVICE_FD: u64 = 4;
/// Debuggers, and tracers of calls, do not work in what is traced.
const PTRACE_REFUSED: &str = "a process of the program was refused ptrace: a traced process cannot have a second tracer, such as a debugger";
/// Tracepoints show numbers alone.
const NOT_READ: &str = "tracefs shows the pointer to a call's structure, and not its contents. These are known only for long calls. So the sizes of most memslots are unknown";

impl Follower {
    /// Says whether the thread goes on now; else it is held back.
    pub(super) fn enters(
        &mut self,
        tid: i32,
        arch: u32,
        number: u64,
        arguments: &[u64; 6],
    ) -> bool {
        let Some(call) = wanted(arch, number, arguments) else { return true };
        let Some((pid, table)) = self.followers.threads.get(&tid).map(|one| (one.pid, one.table))
        else {
            return true;
        };
        let fd = arguments[0] as i32;
        let base = Call { tid, pid, ..Call::default() };
        let known = |follower: &Self, fd: i32| follower.descriptors.known(table, fd).cloned();
        let (call, then) = match call {
            SystemCall::Ioctl => self.kvm(&base, fd, arguments[1] & 0xFFFF_FFFF, arguments[2]),
            SystemCall::Open | SystemCall::OpenAt | SystemCall::OpenAt2 => {
                let path = usize::from(call != SystemCall::Open);
                if !self.opens_kvm(tid, arguments[path]) {
                    return self.may_open_kvm(tid);
                }
                (Call { name: "open".to_owned(), ..base }, Then::Opened)
            }
            SystemCall::Close => {
                self.opened.remove(&(table, fd));
                let Some(object) = known(self, fd) else { return true };
                let call =
                    Call { name: "close".to_owned(), fd: Some(fd), on: Some(object), ..base };
                (call, self.closes(table, fd, fd))
            }
            SystemCall::CloseRange => {
                let last = i32::try_from(arguments[1] & 0xFFFF_FFFF).unwrap_or(i32::MAX);
                let closed = self.descriptors.within(table, fd, last);
                // Flags that only mark descriptors, or give the thread a table of its own first, are told by /proc.
                let Some(first) = closed.first().filter(|_| arguments[2] == 0) else { return true };
                let on = known(self, *first);
                let call = Call { name: "close_range".to_owned(), fd: Some(*first), on, ..base };
                (call, self.closes(table, fd, last))
            }
            SystemCall::Dup | SystemCall::Fcntl => {
                let Some(object) = known(self, fd) else { return true };
                let call = Call { name: "dup".to_owned(), fd: Some(fd), on: Some(object), ..base };
                (call, Then::Duplicated(fd))
            }
            SystemCall::DupTo => {
                let (source, target) = (known(self, fd), known(self, arguments[1] as i32));
                let then = match (&source, &target) {
                    (Some(_), _) => Then::Duplicated(fd),
                    (None, Some(_)) => Then::Closed(arguments[1] as i32, arguments[1] as i32),
                    (None, None) => return true,
                };
                let on = source.or(target);
                (Call { name: "dup".to_owned(), fd: Some(fd), on, ..base }, then)
            }
            SystemCall::Map => {
                let file = arguments[4] as i32;
                let on = if file >= 0 { known(self, file) } else { None };
                let is_private = arguments[3] as i32 & libc::MAP_SHARED == 0;
                let least = if file >= 0 && is_private { LONG_FILE } else { LONG };
                if on.is_none() && arguments[1] < least {
                    return true;
                }
                let fd = (file >= 0).then_some(file);
                let call = Call { name: "mmap".to_owned(), fd, on, ..base };
                (with(call, &[("length", arguments[1]), ("flags", arguments[3])]), Then::Nothing)
            }
            SystemCall::Unmap => {
                let on = self.runs.remove(&(pid, arguments[0]));
                if on.is_none() && arguments[1] < LONG {
                    return true;
                }
                let call = Call { name: "munmap".to_owned(), on, ..base };
                (with(call, &[("address", arguments[0]), ("length", arguments[1])]), Then::Nothing)
            }
            SystemCall::Advise => {
                let call = Call { name: "madvise".to_owned(), ..base };
                let said =
                    [("address", arguments[0]), ("length", arguments[1]), ("advice", arguments[2])];
                (with(call, &said), Then::Nothing)
            }
            SystemCall::Remap => {
                let call = Call { name: "mremap".to_owned(), ..base };
                let said = [("address", arguments[0]), ("length", arguments[1])];
                (with(call, &said), Then::Nothing)
            }
            SystemCall::Sleep => (self.sleep(base, arguments[0]), Then::Nothing),
            SystemCall::ClockSleep => (self.sleep(base, arguments[2]), Then::Nothing),
            SystemCall::Accept => {
                (Call { name: "accept".to_owned(), fd: Some(fd), ..base }, Then::Nothing)
            }
            SystemCall::Ptrace => return self.traces(tid),
        };
        let held = self.holds_back(&call.name);
        let call = self.book.begin(call);
        let looked = self.book.ledger.as_ref().and_then(|ledger| ledger.looked.take());
        if let Some(thread) = self.followers.threads.get_mut(&tid) {
            thread.inside = Some(Inside { call, then, looked });
        }
        if let Some(time) = held {
            self.held.push((self.book.now() + time, tid));
        }
        held.is_none()
    }

    /// Descriptors are closed. They are forgotten when that begins: when it is seen to end, another thread may have been given the
    /// number. (Where a descriptor takes the place of another, nobody else is given the number.)
    fn closes(&mut self, table: Table, first: i32, last: i32) -> Then {
        for fd in self.descriptors.within(table, first, last) {
            self.descriptors.forget(table, fd);
        }
        Then::Nothing
    }

    /// A thread opens something. By events, it may be the device all the same: its path is read too late.
    fn may_open_kvm(&mut self, tid: i32) -> bool {
        if let (Some(ledger), Some(thread)) =
            (&self.book.ledger, self.followers.threads.get_mut(&tid))
        {
            ledger.looked.take();
            let then = Then::MayBeKvm(ledger.at);
            thread.inside = Some(Inside { call: None, then, looked: None });
        }
        true
    }

    /// What a call's structure held was read when the call had ended, and may be another's.
    fn forget_what_was_read(&mut self, number: usize) {
        let call = &mut self.book.trace.calls[number];
        if call.name == "sleep" || ioctl::looked_at(&call.name) > 0 {
            call.arguments.retain(|name, _| name == "structure");
            self.book.note(NOT_READ);
        }
    }

    /// A thread calls `ptrace`. That is no call of a VM's life, so it is not kept; but how it ends is looked at.
    fn traces(&mut self, tid: i32) -> bool {
        if let Some(thread) = self.followers.threads.get_mut(&tid) {
            thread.inside = Some(Inside { call: None, then: Then::Traced, looked: None });
        }
        true
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

    /// A call that is waited for has ended.
    pub(super) fn leaves(&mut self, tid: i32, result: i64) {
        let Some(thread) = self.followers.threads.get_mut(&tid) else { return };
        let Some(Inside { call, then, looked }) = thread.inside.take() else { return };
        let (pid, table) = (thread.pid, thread.table);
        thread.has_run |= then == Then::Ran;
        if let Some(call) = call {
            self.book.end(call, result);
            self.book.count_mappings(call);
            if looked.is_some_and(|looked| looked >= self.book.now()) {
                self.forget_what_was_read(call);
            }
        }
        let made = i32::try_from(result).ok().filter(|fd| *fd >= 0);
        match then {
            Then::Ran => {}
            Then::Traced => {
                if result == -i64::from(libc::EPERM) {
                    self.book.note(PTRACE_REFUSED);
                }
            }
            Then::Closed(first, last) => {
                for fd in self.descriptors.within(table, first, last) {
                    self.descriptors.forget(table, fd);
                }
            }
            Then::Opened => {
                if let Some(fd) = made {
                    self.descriptors.set(table, fd, Object::Kvm);
                }
            }
            Then::MayBeKvm(at) => {
                if let Some(fd) = made {
                    let took = Some(self.book.now().saturating_sub(at));
                    let (name, result) = ("open".to_owned(), Some(result));
                    let call = Call { tid, pid, at, took, name, result, ..Call::default() };
                    self.opened.insert((table, fd), call);
                }
            }
            Then::Duplicated(from) => {
                let object = self.descriptors.known(table, from).cloned();
                if let (Some(fd), Some(object)) = (made, object) {
                    self.descriptors.set(table, fd, object);
                }
            }
            Then::Kvm => {
                if let Some(call) = call.filter(|_| result >= 0) {
                    self.made(tid, call, result);
                }
            }
            Then::Nothing => {
                let Some(call) = call.map(|call| &self.book.trace.calls[call]) else { return };
                if let (true, Some(on), Ok(address)) =
                    (call.name == "mmap", call.on.clone(), u64::try_from(result))
                {
                    self.runs.insert((pid, address), on);
                }
            }
        }
    }

    /// An ioctl of KVM's.
    fn kvm(&mut self, base: &Call, fd: i32, request: u64, argument: u64) -> (Call, Then) {
        let tid = base.tid;
        let table = self.followers.threads[&tid].table;
        if let Some(call) = self.opened.remove(&(table, fd)) {
            self.book.keep(call);
            self.descriptors.set(table, fd, Object::Kvm);
        }
        let tables = self.followers.tables();
        let on = self.descriptors.used(tid, table, fd, request, &tables);
        let name = ioctl::name(request, &on);
        let mut structure = vec![0; ioctl::looked_at(&name)];
        if !structure.is_empty() {
            let read = self.book.memory(tid, argument, &mut structure);
            structure.truncate(read);
        }
        let mut arguments = ioctl::arguments(&name, argument, &structure);
        if name == "KVM_CREATE_DEVICE" {
            arguments.insert("structure".to_owned(), argument);
        }
        if let Object::Vcpu { vm, id } = on
            && let Some(&maker) = self.not_run.get(&(vm, id))
            && !self.is_left_to_another(tid, vm, maker)
            && let Some(thread) = self.followers.threads.get_mut(&tid)
        {
            thread.looked_for = !thread.has_run;
        }
        (Call { name, fd: Some(fd), on: Some(on), arguments, ..base.clone() }, Then::Kvm)
    }

    /// Whether a thread has made a VM, and left it to another to make a vCPU of it: that one will run the vCPU.
    fn is_left_to_another(&self, tid: i32, vm: usize, maker: i32) -> bool {
        self.vm_makers.get(&vm) == Some(&tid)
            && maker != tid
            && self.followers.threads.contains_key(&maker)
    }

    /// What an ioctl has made, if it makes something.
    fn made(&mut self, tid: i32, number: usize, result: i64) {
        let table = self.followers.threads[&tid].table;
        let call = &mut self.book.trace.calls[number];
        let vm = match call.on {
            Some(Object::Vm { vm } | Object::Vcpu { vm, .. } | Object::Device { vm }) => vm,
            _ => 0,
        };
        let (fd, object) = match call.name.as_str() {
            "KVM_CREATE_VM" => {
                let vm = self.descriptors.new_vm();
                self.vm_makers.insert(vm, tid);
                call.arguments.insert("vm".to_owned(), vm as u64);
                (result as i32, Object::Vm { vm })
            }
            "KVM_CREATE_VCPU" => {
                let id = call.argument("id");
                self.not_run.insert((vm, id), tid);
                self.had_vcpus = true;
                (result as i32, Object::Vcpu { vm, id })
            }
            "KVM_GET_STATS_FD" => (result as i32, Object::Device { vm }),
            "KVM_CREATE_DEVICE" => {
                let structure = call.arguments.remove("structure").unwrap_or(0);
                let mut fd = [0; 4];
                // KVM_CREATE_DEVICE_TEST makes none. Where memory is read too late, the descriptor's use will tell.
                if call.argument("flags") != 0
                    || self.book.ledger.is_some()
                    || self.book.memory(tid, structure + DEVICE_FD, &mut fd) != fd.len()
                {
                    return;
                }
                (i32::from_le_bytes(fd), Object::Device { vm })
            }
            _ => return,
        };
        self.descriptors.set(table, fd, object);
    }

    /// Whether what is opened is the device; where that cannot be read, it may be, and its descriptor's use will tell.
    fn opens_kvm(&self, tid: i32, path: u64) -> bool {
        const DEVICE: &[u8] = b"/dev/kvm\0";
        let mut read = [0; DEVICE.len()];
        self.book.memory(tid, path, &mut read) == DEVICE.len() && read == DEVICE
    }

    /// A sleep, with its time as 64-bit programs say it.
    fn sleep(&self, base: Call, time: u64) -> Call {
        let mut read = [0; 16];
        let call = Call { name: "sleep".to_owned(), ..base };
        if self.book.memory(call.tid, time, &mut read) != read.len() {
            return call;
        }
        let (seconds, rest) = read.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
        let time = number(seconds).saturating_mul(1_000_000_000).saturating_add(number(rest));
        with(call, &[("time", time)])
    }

    /// How long the call that begins is held back, if it is the one.
    fn holds_back(&mut self, name: &str) -> Option<u64> {
        let delay = self.delay.as_ref().filter(|delay| delay.name == name)?;
        let nth = self.met;
        self.met += 1;
        (nth == delay.nth && delay.time > 0).then_some(delay.time)
    }
}

fn with(mut call: Call, arguments: &[(&str, u64)]) -> Call {
    call.arguments.extend(arguments.iter().map(|(name, value)| ((*name).to_owned(), *value)));
    call
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

    /// Which of the two may be about to run a vCPU that a thread has made of the first one's VM, when both have asked for its
    /// registers.
    fn looked_for(maker: i32) -> [bool; 2] {
        let mut one = follower();
        calls(&mut one, MAIN, 3, 0xAE01, 4);
        calls(&mut one, maker, 4, 0xAE41, 5);
        for tid in [MAIN, OTHER] {
            calls(&mut one, tid, 5, 0x8090_AE81, 0);
        }
        let Trace { calls, .. } = &one.book.trace;
        assert_eq!(calls.last().map(|call| &call.name[..]), Some("KVM_GET_REGS"));
        [MAIN, OTHER].map(|tid| one.followers.threads[&tid].looked_for)
    }

    #[test]
    fn who_made_a_vm_does_not_stop_at_each_call_for_a_vcpu_that_another_thread_has_made() {
        assert_eq!(looked_for(OTHER), [false, true]);
        // Of a vCPU that the first one has made, either may be the one that runs it.
        assert_eq!(looked_for(MAIN), [true, true]);
    }

    #[test]
    fn a_number_that_was_closed_may_be_another_thread_s_before_the_close_is_seen_to_end() {
        for number in [libc::SYS_close, libc::SYS_close_range] {
            let mut one = follower();
            let table = one.followers.threads[&MAIN].table;
            calls(&mut one, MAIN, 3, 0xAE01, 4);
            assert!(one.enters(MAIN, ARCHITECTURES[0].audit, number as u64, &[4, 4, 0, 0, 0, 0]));
            calls(&mut one, OTHER, 3, 0xAE01, 4);
            one.leaves(MAIN, 0);
            assert_eq!(one.descriptors.known(table, 4), Some(&Object::Vm { vm: 1 }));
        }
    }
}
