//! An interrupt controller or a timer of KVM's is slow to make.
//!
//! Each registers devices on an I/O bus, and the controller sets the interrupt routing. Up to Linux 6.17
//! `kvm_io_bus_register_dev` (`virt/kvm/kvm_main.c`) waits for a grace period each time. `kvm_set_irq_routing`
//! (`virt/kvm/irqchip.c`) does so on any kernel, and the timer (`kvm_create_pit` of `arch/x86/kvm/i8254.c`) waits for a kernel
//! thread of its own to be started.

use super::evidence::Stretch;
use super::likely::likely;
use crate::record::{Call, Cause, Trace};

const MAKES: [&str; 3] = ["KVM_CREATE_IRQCHIP", "KVM_CREATE_PIT", "KVM_CREATE_PIT2"];

/// What only its own work leads to; a lock that others hold is not among them.
const WORKS_IN: [&str; 11] = [
    "kvm_io_bus_register_dev",
    "kvm_pic_init",
    "kvm_ioapic_init",
    "kvm_setup_default_irq_routing",
    "kvm_set_irq_routing",
    "synchronize_srcu*",
    "__synchronize_srcu",
    "kthread_create_worker*",
    "kthread_create_on_node",
    "__kthread_create_on_node",
    "__kthread_create_worker*",
];

pub(super) fn find(trace: &Trace, call: &Call) -> Option<Cause> {
    if !MAKES.contains(&call.name.as_str()) {
        return None;
    }
    let seen = Stretch::of(trace, call).seen_in(&WORKS_IN)?;
    let what = match call.name.as_str() {
        "KVM_CREATE_IRQCHIP" => "KVM creates the VM's interrupt controllers",
        _ => "KVM creates the VM's interval timer",
    };
    let remedy = "use a split irqchip: KVM then creates no PIC, no IOAPIC, and no PIT";
    let evidence = vec![format!("it was seen in {seen}")];
    Some(likely("irqchip-creation", what, remedy, evidence))
}
