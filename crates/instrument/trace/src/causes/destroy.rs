//! The last descriptor of a VM is closed: the VM is destroyed in the caller, which waits for grace periods, and frees its
//! tables (`kvm_destroy_vm` of `virt/kvm/kvm_main.c`).

use super::evidence::Stretch;
use super::likely::likely;
use crate::record::{Call, Cause, Object, Trace};

pub(super) const DESTROYS: [&str; 7] = [
    "kvm_destroy_vm",
    "kvm_put_kvm",
    "kvm_vm_release",
    "kvm_vcpu_release",
    "kvm_arch_destroy_vm",
    "mmu_notifier_unregister",
    "kvm_free_*",
];
/// In what it waits where the stack is not told.
const WAITS_IN: [&str; 2] = ["__synchronize_srcu", "synchronize_*"];

pub(super) fn find(trace: &Trace, call: &Call) -> Option<Cause> {
    if !matches!(call.on, Some(Object::Vm { .. } | Object::Vcpu { .. } | Object::Device { .. })) {
        return None;
    }
    if !["close", "close_range", "munmap", "dup"].contains(&call.name.as_str()) {
        return None;
    }
    let stretch = Stretch::of(trace, call);
    let seen = stretch.seen_in(&DESTROYS).or_else(|| {
        let channel = stretch.seen_in(&WAITS_IN);
        channel.filter(|_| !stretch.stacks_are_told())
    })?;
    let evidence =
        vec!["it drops the VM's last descriptor".to_owned(), format!("it was seen in {seen}")];
    let remedy = "close the VM on a thread that nothing waits for, or end the process and have others watch for its end by a pidfd";
    Some(likely("vm-destruction", "the VM is destroyed in the caller", remedy, evidence))
}
