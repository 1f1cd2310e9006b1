//! What the tests on the real KVM share.

use std::env::consts::ARCH;
use std::io::{self, Write};
use std::sync::Once;

use mayfly_kvm::{Error, GuestMemory, Kvm, MemoryFlags, Payload, Vcpu, Vm};

static SAID: Once = Once::new();

pub(crate) const MIB: u64 = 1 << 20;

/// This host's KVM, whose guests run the payload; where there is none, or none for this user, says so in one line.
pub(crate) fn kvm() -> Option<Kvm> {
    kvm_with_guests_of(if ARCH == "aarch64" { ARCH } else { "x86_64" })
}

/// The same for guests of an architecture, as [`std::env::consts::ARCH`] names it.
pub(crate) fn kvm_with_guests_of(arch: &str) -> Option<Kvm> {
    let why = match Kvm::open() {
        Ok(kvm) if arch == ARCH => return Some(kvm),
        Ok(_) => format!("this host is {ARCH}"),
        Err(
            error @ (Error::NoDevice(_) | Error::NoPermission { .. } | Error::UnsupportedArch(_)),
        ) => error.to_string(),
        Err(error) => panic!("{error}"),
    };
    // Past the harness, which keeps what passing tests print to itself; and once for them all.
    let mut stderr = io::stderr();
    SAID.call_once(|| {
        writeln!(stderr, "tests on KVM with guests of {arch} not run: {why}").unwrap();
    });
    None
}

/// 2 MiB with the payload's code in it.
pub(crate) fn memory_with_code() -> GuestMemory {
    let memory = GuestMemory::map(2 << 20).unwrap();
    Payload::install(&memory).unwrap();
    memory
}

/// A VM with interrupt controllers, `memory` at gpa 0 and one vCPU about to run `payload`.
pub(crate) fn ready(kvm: &Kvm, memory: &GuestMemory, payload: &Payload) -> (Vm, Vcpu) {
    let vm = Vm::create(kvm).unwrap();
    vm.create_irqchip().unwrap();
    vm.set_memory_region(0, 0, memory, MemoryFlags::default()).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.finish_irqchip().unwrap();
    vcpu.load(payload).unwrap();
    (vm, vcpu)
}
