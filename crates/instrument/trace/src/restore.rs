//! A VM that goes on from a snapshot, as its calls show it: where the snapshot came from, and when its vCPUs had their state.
//!
//! Whoever boots a vCPU sets its registers; whoever restores one sets all that it has, as it was saved. By that alone the two
//! are not told apart, for some VMMs reset a vCPU by setting all of it. But they ask KVM for the state before, and change it. So a
//! VM is restored if its vCPUs' whole state is set and was never asked for, or if it is set, much is read, and it is set again.

use std::collections::HashMap;

use crate::calls::LONG_FILE;
use crate::record::{Call, Object, Trace};

/// What is set of a vCPU that goes on, and not of one that starts.
const WHOLE: [&str; 2] = ["KVM_SET_XSAVE", "KVM_SET_VCPU_EVENTS"];
/// What is asked for by who changes a state.
const ASKS: [&str; 6] = [
    "KVM_GET_REGS",
    "KVM_GET_SREGS",
    "KVM_GET_SREGS2",
    "KVM_GET_XSAVE",
    "KVM_GET_XSAVE2",
    "KVM_GET_VCPU_EVENTS",
];
/// Less is no guest's memory, in bytes.
const LITTLE: u64 = 1 << 20;

/// How a VM got its snapshot.
pub(crate) struct Restored<'a> {
    /// When a file was mapped last that no write reaches.
    pub(crate) mapped: Option<u64>,
    /// When the last large part of it had been read.
    pub(crate) read: Option<u64>,
    /// The calls that set its vCPUs' state.
    pub(crate) state: Vec<&'a Call>,
}

impl Trace {
    /// How the VM of a program got its snapshot before it was entered; `None` for one that booted.
    pub(crate) fn restored(
        &self,
        vm: Option<usize>,
        program: Option<i32>,
        entry: u64,
    ) -> Option<Restored<'_>> {
        let before = || self.calls.iter().filter(move |call| call.at < entry && call.succeeded());
        let is_its =
            |call: &&Call| matches!(call.on, Some(Object::Vcpu { vm: of, .. }) if Some(of) == vm);
        let whole = || before().filter(is_its).filter(|call| WHOLE.contains(&&call.name[..]));
        let (first, last) = (whole().next()?.at, whole().map(Call::end).max()?);
        let was_asked = before().filter(is_its).any(|call| ASKS.contains(&&call.name[..]));
        let read = self.has_read(vm, program, (if was_asked { first } else { 0 }, last));
        if was_asked && read.is_none() {
            return None;
        }
        let is_mapped = |call: &&Call| {
            Some(call.pid) == program && maps_file(call) && self.may_be_mapped_for(vm, call)
        };
        let mapped = before().filter(is_mapped);
        let state = before().filter(is_its).filter(|call| call.name.starts_with("KVM_SET_"));
        Some(Restored { mapped: mapped.map(Call::end).max(), read, state: state.collect() })
    }

    /// Whether what a call maps is memory of a VM's, or of none: then it is of the VM that its thread goes on with.
    fn may_be_mapped_for(&self, vm: Option<usize>, call: &Call) -> bool {
        let address = call.result.and_then(|result| u64::try_from(result).ok()).unwrap_or(0);
        let range = (address, call.argument("length"));
        let is_known = |one: &Option<usize>| *one == vm || self.creation(*one).is_some();
        let mut owners = self.owners(range).filter(is_known).peekable();
        if owners.peek().is_none() {
            return self.may_be_for(vm, call);
        }
        owners.any(|one| one == vm)
    }

    /// Whether a thread does something for a VM: that which its next call is about, or, after its last one, that one's.
    fn may_be_for(&self, vm: Option<usize>, call: &Call) -> bool {
        let about = |one: &Call| one.vm().or_else(|| creates(one));
        let own = || self.calls.iter().filter(|one| one.tid == call.tid);
        let next = own().filter(|one| one.at >= call.at).find_map(about);
        let last = || own().filter(|one| one.at < call.at).filter_map(about).next_back();
        next.or_else(last).is_none_or(|other| Some(other) == vm)
    }

    /// When a thread of a program had last read much for a VM between two of its calls, and between two moments.
    fn has_read(
        &self,
        vm: Option<usize>,
        program: Option<i32>,
        (from, to): (u64, u64),
    ) -> Option<u64> {
        let mut last: HashMap<i32, (u64, u64)> = HashMap::new();
        let mut found = None;
        for call in self.calls.iter().filter(|call| Some(call.pid) == program && call.at <= to) {
            let Some(read) = call.read else { continue };
            let former = last.insert(call.tid, (call.end(), read));
            let is_much = |(since, before): (u64, u64)| {
                since >= from && read.saturating_sub(before) >= LITTLE
            };
            if former.is_some_and(is_much) && self.may_be_for(vm, call) {
                found = found.max(Some(call.at));
            }
        }
        found
    }
}

/// The VM that a call creates, if it does.
fn creates(call: &Call) -> Option<usize> {
    let creates = call.name == "KVM_CREATE_VM" && call.succeeded();
    creates.then(|| call.argument("vm") as usize)
}

/// Whether it maps a file so that what the guest writes stays out of it.
fn maps_file(call: &Call) -> bool {
    let flags = call.argument("flags");
    let has = |flag: i32| flags & flag as u64 != 0;
    call.name == "mmap"
        && call.fd.is_some()
        && call.argument("length") >= LONG_FILE
        && has(libc::MAP_PRIVATE)
        && !has(libc::MAP_ANONYMOUS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Process;

    const MIB: u64 = 1 << 20;

    /// A call on a vCPU, with what its thread had read by then, in MiB.
    fn vcpu(name: &str, at: u64, read: u64) -> Call {
        let (took, read) = (Some(1), Some(read * MIB));
        let on = Some(Object::Vcpu { vm: 0, id: 0 });
        let (name, result) = (name.to_owned(), Some(0));
        Call { tid: 1, pid: 1, at, took, name, on, result, read, ..Call::default() }
    }

    fn maps(at: u64, flags: i32) -> Call {
        let mut call = Call { on: None, fd: Some(9), ..vcpu("mmap", at, 0) };
        call.arguments = [("length", 64 * MIB), ("flags", flags as u64)]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        call
    }

    /// The phases that are a restore's, of these calls and an entry at 100.
    fn told(calls: Vec<Call>) -> Vec<(String, u64, u64)> {
        let mut created = Call { on: Some(Object::Kvm), ..vcpu("KVM_CREATE_VM", 1, 0) };
        created.arguments.insert("vm".to_owned(), 0);
        let calls = [created].into_iter().chain(calls).chain([vcpu("KVM_RUN", 100, 200)]).collect();
        let process = Process { pid: 1, gone: Some(300), ..Process::default() };
        let trace = Trace { calls, processes: vec![process], span: 300, ..Trace::default() };
        let phases = trace.find_phases();
        assert_eq!(phases.iter().map(|one| one.took).sum::<u64>(), trace.span);
        let names = ["snapshot mapped", "snapshot read", "vCPU state"];
        let own = phases.into_iter().filter(|one| names.contains(&&one.name[..]));
        own.map(|one| (one.name, one.at, one.calls)).collect()
    }

    fn phase(name: &str, at: u64, calls: u64) -> (String, u64, u64) {
        (name.to_owned(), at, calls)
    }

    #[test]
    fn a_vm_whose_state_is_set_before_and_after_much_is_read_is_restored() {
        // QEMU's `-incoming`: a reset, the reset's own state again, and then what was saved.
        let calls = |read: u64| {
            let names = ["KVM_SET_XSAVE", "KVM_GET_XSAVE", "KVM_SET_XSAVE"];
            let resets = names.iter().zip([10, 20, 30]).map(|(name, at)| vcpu(name, at, 1));
            let loads = ["KVM_SET_REGS", "KVM_SET_XSAVE"].map(|name| vcpu(name, 80, 1 + read));
            resets.chain(loads).collect::<Vec<_>>()
        };
        let restored = [phase("snapshot read", 80, 0), phase("vCPU state", 81, 4)];
        assert_eq!(told(calls(128)), restored);
        assert_eq!(told(calls(0)), []);
    }

    #[test]
    fn a_vm_whose_state_is_set_and_never_asked_for_is_restored() {
        // Firecracker maps the memory of a snapshot, and reads little.
        let calls = |flags: i32, asks: Option<&str>| {
            let sets = ["KVM_SET_REGS", "KVM_SET_XSAVE", "KVM_SET_VCPU_EVENTS"];
            let sets = sets.iter().zip([40, 50, 60]).map(|(name, at)| vcpu(name, at, 0));
            let asks = asks.map(|name| vcpu(name, 30, 0));
            [maps(20, flags)].into_iter().chain(asks).chain(sets).collect::<Vec<_>>()
        };
        let state = || phase("vCPU state", 61, 3);
        let mapped = phase("snapshot mapped", 21, 0);
        assert_eq!(told(calls(libc::MAP_PRIVATE, None)), [mapped, state()]);
        // Shared memory is what other processes have of the guest's.
        assert_eq!(told(calls(libc::MAP_SHARED, None)), [state()]);
        assert_eq!(told(calls(libc::MAP_PRIVATE, Some("KVM_GET_SREGS"))), []);
    }

    /// Two VMs of one program, of which one thread restores the first from 10 on, and then the second, to be entered at 50 and
    /// at 100; and the first calls of the record, made before either is there.
    fn two(before: Vec<Call>, second: Vec<Call>) -> Trace {
        let created = |vm: u64, at, read| {
            let mut call = Call { on: Some(Object::Kvm), ..vcpu("KVM_CREATE_VM", at, read) };
            call.arguments.insert("vm".to_owned(), vm);
            call
        };
        let of = |vm, call: Call| Call { on: Some(Object::Vcpu { vm, id: 0 }), ..call };
        let first = [vcpu("KVM_SET_XSAVE", 20, 8), vcpu("KVM_RUN", 50, 8)];
        let second =
            second.into_iter().map(|call| if call.on.is_some() { of(1, call) } else { call });
        let all =
            before.into_iter().chain([created(0, 10, 0)]).chain(first.map(|call| of(0, call)));
        let calls = all.chain([created(1, 60, 8)]).chain(second).collect();
        let process = Process { pid: 1, gone: Some(300), ..Process::default() };
        Trace { calls, processes: vec![process], span: 300, ..Trace::default() }
    }

    /// When what was mapped and read for a VM was.
    fn got(trace: &Trace, vm: usize, entry: u64) -> (Option<u64>, Option<u64>) {
        let restored = trace.restored(Some(vm), Some(1), entry).expect("it is restored");
        (restored.mapped, restored.read)
    }

    #[test]
    fn what_is_read_for_one_vm_of_a_program_is_not_another_s_snapshot() {
        let second = vec![vcpu("KVM_SET_XSAVE", 80, 72), vcpu("KVM_RUN", 100, 72)];
        let trace = two(vec![], second);
        assert_eq!((got(&trace, 0, 50), got(&trace, 1, 100)), ((None, Some(20)), (None, Some(80))));
        // One that is restored from little is not restored from the other's.
        let second = vec![vcpu("KVM_SET_XSAVE", 80, 8), vcpu("KVM_RUN", 100, 8)];
        assert_eq!(got(&two(vec![], second), 1, 100), (None, None));
    }

    #[test]
    fn a_file_that_is_mapped_for_one_vm_of_a_program_is_not_another_s_snapshot() {
        let mapped =
            |at, address: u64| Call { result: Some(address as i64), ..maps(at, libc::MAP_PRIVATE) };
        let given = |vm, at, address: u64| {
            let arguments = [("memory", address), ("size", 64 * MIB), ("slot", 0)];
            let arguments = arguments.map(|(name, value)| (name.to_owned(), value)).into();
            let on = Some(Object::Vm { vm });
            Call { on, arguments, ..vcpu("KVM_SET_USER_MEMORY_REGION", at, 0) }
        };
        let (one, other) = (4096 * MIB, 8192 * MIB);
        let second = || vec![vcpu("KVM_SET_XSAVE", 80, 8), vcpu("KVM_RUN", 100, 8)];
        // Both are mapped before either VM is there, and each is given to its own.
        let mut trace = two(vec![mapped(2, one), mapped(5, other)], second());
        trace.calls.insert(3, given(0, 15, one));
        trace.calls.push(given(1, 90, other));
        assert_eq!((got(&trace, 0, 50).0, got(&trace, 1, 100).0), (Some(3), Some(6)));
        // Where it is not known what memslots are, a file is mapped for what its thread goes on with.
        let mut unknown = second();
        unknown.insert(0, mapped(70, other));
        let trace = two(vec![mapped(2, one)], unknown);
        assert_eq!((got(&trace, 0, 50).0, got(&trace, 1, 100).0), (Some(3), Some(71)));
    }

    #[test]
    fn a_vm_that_boots_an_image_is_not_restored() {
        // The image is read before the vCPU has a state, or the vCPU has its first registers alone.
        let qemu = ["KVM_GET_XSAVE", "KVM_SET_XSAVE"].map(|name| vcpu(name, 40, 64)).into();
        assert_eq!(told(qemu), []);
        let small = ["KVM_SET_SREGS", "KVM_SET_REGS"];
        let small = small.iter().zip([30, 70]).map(|(name, at)| vcpu(name, at, at)).collect();
        assert_eq!(told(small), []);
    }
}
