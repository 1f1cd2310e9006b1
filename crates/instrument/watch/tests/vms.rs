//! VMs of this process, watched by it. They need KVM, and a processor that it can be halted on: x86's.
#![cfg(target_arch = "x86_64")]

use std::io::{Write, stderr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use kvm_ioctls::{VcpuFd, VmFd};
use mayfly_kvm::{GuestMemory, Kvm, MemoryFlags, Vm};
use mayfly_watch::{Row, Sight, State, Watcher, text};

const INTERVAL: Duration = Duration::from_millis(200);
const CODE: u64 = 0x1000;
/// The number of linux/kvm.h.
const KVM_GET_REGS: libc::c_ulong = 0x8090_AE81;

/// This process's VMs.
fn me() -> i32 {
    std::process::id().cast_signed()
}

fn row(sight: &Sight, vm: i32) -> &Row {
    sight.rows.iter().find(|row| row.vm == vm).unwrap_or_else(|| panic!("{sight:?}"))
}

/// Looks until it is so. Panics where it has not come to be so in many intervals.
fn seen(watcher: &mut Watcher, vm: i32, is_so: impl Fn(&Row) -> bool) -> Row {
    let mut last = None;
    for _ in 0..300 {
        let sight = watcher.look(INTERVAL);
        let row = row(&sight, vm);
        if is_so(row) {
            return row.clone();
        }
        last = Some(row.clone());
    }
    panic!("{last:?}");
}

/// A vCPU that is about to execute `CODE`.
fn vcpu(vm: &VmFd) -> VcpuFd {
    let vcpu = vm.create_vcpu(0).unwrap();
    let mut sregs = vcpu.get_sregs().unwrap();
    (sregs.cs.base, sregs.cs.selector) = (0, 0);
    vcpu.set_sregs(&sregs).unwrap();
    let mut regs = vcpu.get_regs().unwrap();
    (regs.rip, regs.rflags) = (CODE, 2);
    vcpu.set_regs(&regs).unwrap();
    vcpu
}

#[test]
fn a_vm_is_followed_from_its_creation_to_its_end() {
    let Ok(kvm) = Kvm::open() else {
        let _ = writeln!(stderr(), "not run: there is no KVM here");
        return;
    };
    let mut watcher = Watcher::new(Some(me()));
    assert!(watcher.look(INTERVAL).rows.is_empty());

    let vm = Vm::create(&kvm).unwrap();
    let fd = vm.fd().as_raw_fd();
    let first = seen(&mut watcher, fd, |_| true);
    assert_eq!((first.pid, first.state, first.vcpus), (me(), State::Starts, Some(0)));
    assert!(first.waits.is_empty() && first.busy.is_none());

    // A guest that does nothing but halt, and gets no interrupt: with KVM's own irqchip it stays inside.
    let memory = GuestMemory::map_populated(1 << 20).unwrap();
    memory.write(CODE as usize, &[0xF4, 0xEB, 0xFD]).unwrap();
    vm.create_irqchip().unwrap();
    vm.set_memory_region(0, 0, &memory, MemoryFlags::default()).unwrap();
    let mut vcpu = vcpu(vm.fd());
    let vcpu_fd = vcpu.as_raw_fd();
    // Both threads end with this process: the one waits for an interrupt, and the other for the one.
    std::thread::spawn(move || vcpu.run().is_ok());
    let idle = seen(&mut watcher, fd, |row| row.state == State::Idle);
    assert_eq!((idle.vcpus, idle.busy), (Some(1), Some(0)));
    std::thread::spawn(move || {
        let mut regs = [0_u64; 18];
        // SAFETY: the call writes as many bytes as its number has, 144, to where they are.
        unsafe { libc::ioctl(vcpu_fd, KVM_GET_REGS, regs.as_mut_ptr()) }
    });
    let waits = seen(&mut watcher, fd, |row| {
        row.waits.first().is_some_and(|wait| wait.looks > 1 && wait.at_least >= INTERVAL)
    });
    assert_eq!(waits.waits.len(), 1);
    assert_eq!(waits.waits[0].call, "KVM_GET_REGS");

    // Another VM of the same process is a row of its own, with nothing of the first one's.
    let other = Vm::create(&kvm).unwrap();
    let sight = watcher.look(INTERVAL);
    let other_row = row(&sight, other.fd().as_raw_fd());
    assert_eq!((sight.rows.len(), other_row.state), (2, State::Starts));
    assert!(other_row.waits.is_empty(), "{sight:?}");
    let shown = text(&sight, 80);
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");

    // A copy of a descriptor is no other VM.
    // SAFETY: the VM has it open.
    let copy = unsafe { BorrowedFd::borrow_raw(other.fd().as_raw_fd()) }.try_clone_to_owned();
    assert_eq!(watcher.look(INTERVAL).rows.len(), 2);
    drop(copy.unwrap());
    other.destroy(vec![]);
    assert_eq!(watcher.look(INTERVAL).rows.len(), 1);
    std::mem::forget((vm, memory));
}

/// Set in the process that has a guest which never leaves.
const IS_GUEST: &str = "MAYFLY_WATCH_TEST_GUEST";

/// A process that ends with the test, whichever way that goes.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Child {
    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a signal to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.0.id().cast_signed(), signal) }, 0);
    }
}

#[test]
fn a_vm_whose_process_a_signal_has_stopped_does_not_run() {
    let Ok(kvm) = Kvm::open() else {
        let _ = writeln!(stderr(), "not run: there is no KVM here");
        return;
    };
    if std::env::var_os(IS_GUEST).is_some() {
        // SAFETY: it ends this process, also where the one that waits for it cannot.
        unsafe { libc::alarm(120) };
        let vm = Vm::create(&kvm).unwrap();
        let memory = GuestMemory::map_populated(1 << 20).unwrap();
        memory.write(CODE as usize, &[0xEB, 0xFE]).unwrap();
        vm.set_memory_region(0, 0, &memory, MemoryFlags::default()).unwrap();
        let mut vcpu = vcpu(vm.fd());
        // A signal ends the call, and it is made again.
        while vcpu.run().is_err_and(|error| error.errno() == libc::EINTR) {}
        return;
    }
    let me = std::env::current_exe().unwrap();
    let mut guest = std::process::Command::new(me);
    guest.args(["--exact", "a_vm_whose_process_a_signal_has_stopped_does_not_run", "--nocapture"]);
    guest.env(IS_GUEST, "1");
    let guest = Child(guest.spawn().unwrap());
    let mut watcher = Watcher::new(Some(guest.0.id().cast_signed()));
    let mut comes_to = |state: State| {
        let found = (0..300).find_map(|_| {
            let row = watcher.look(INTERVAL).rows.into_iter().next();
            row.filter(|row| row.state == state)
        });
        found.unwrap_or_else(|| panic!("it is never {state}"))
    };
    assert!(comes_to(State::Runs).busy.is_some_and(|busy| busy > 0));
    guest.signal(libc::SIGSTOP);
    assert_eq!(comes_to(State::Stopped).busy, Some(0));
    guest.signal(libc::SIGCONT);
    comes_to(State::Runs);
}
