//! Counts this process's fds: alone in its binary, since a test beside it would change the count.

use std::fs;
use std::io::{Write, stderr};

use mayfly_kvm::{Kvm, Vcpu, Vm};

#[test]
fn destroying_a_vm_closes_every_fd_that_its_life_opened() {
    let kvm = match Kvm::open() {
        Ok(kvm) if cfg!(target_arch = "x86_64") => kvm,
        other => {
            let why = other
                .err()
                .map_or("the interrupt controllers are x86's".to_owned(), |e| e.to_string());
            let _ = writeln!(stderr(), "not run: {why}");
            return;
        }
    };
    let before = open_fds();
    let vm = Vm::create(&kvm).unwrap();
    vm.create_irqchip().unwrap();
    let vcpus: Vec<Vcpu> = (0..2).map(|id| vm.create_vcpu(id).unwrap()).collect();
    assert_eq!(open_fds(), before + 3, "the VM and two vCPUs");
    // Kernels before v5.14 count nothing that can be read.
    let _ = (vm.statistics(), vcpus[0].statistics());
    assert_eq!(open_fds(), before + 3, "what was counted is read and let go");
    vm.destroy(vcpus);
    assert_eq!(open_fds(), before);
}

fn open_fds() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}
