//! A grace period that a registration has started, and that the next call that needs one waits for.
//!
//! Since Linux 6.18 `kvm_io_bus_register_dev` frees the old bus by `call_srcu` (`virt/kvm/kvm_main.c`). That grace period
//! is a normal one: it takes one to two ticks. `synchronize_srcu_expedited`, by which a change of memslots and
//! `kvm_io_bus_unregister_dev` wait, cannot make it faster once it has begun. To take a device away begins none.

use mayfly_record::units::duration;

use super::evidence::{Stretch, kernel, own, ran, told};
use super::likely::likely;
use crate::life::MEMORY;
use crate::record::{Call, Cause, Object, Trace};

/// What begins a grace period, unless it takes a device away.
const REGISTERS: [&str; 5] = [
    "KVM_CREATE_IRQCHIP",
    "KVM_CREATE_PIT2",
    "KVM_IOEVENTFD",
    "KVM_REGISTER_COALESCED_MMIO",
    "KVM_CREATE_DEVICE",
];
/// `KVM_IOEVENTFD_FLAG_DEASSIGN` (linux/kvm.h).
const DEASSIGN: u64 = 1 << 2;
/// `KVM_IRQFD_FLAG_DEASSIGN`.
const DEASSIGN_IRQ: u64 = 1;
/// What waits for one, beside memslots.
const PAYS: [&str; 5] = [
    "KVM_CREATE_VCPU",
    "KVM_IOEVENTFD",
    "KVM_UNREGISTER_COALESCED_MMIO",
    "KVM_IRQFD",
    "KVM_SET_GSI_ROUTING",
];
const WAITS_IN: [&str; 4] =
    ["__synchronize_srcu", "synchronize_srcu*", "srcu_*", "kvm_swap_active_memslots"];
/// A grace period has ended so many ticks after it has begun, with room for a host that is late.
const LASTS: u64 = 3;
/// And so many if the host is so busy that the sampler did not run.
const SLOWEST: u64 = 12;
/// The first kernel that defers.
const DEFERS: (u32, u32) = (6, 18);

pub(super) fn find(trace: &Trace, call: &Call) -> Option<Cause> {
    if !MEMORY.contains(&call.name.as_str()) && !PAYS.contains(&call.name.as_str()) {
        return None;
    }
    let tick = trace.tick().unwrap_or(4_000_000);
    let armed = armed(trace, call, tick)?;
    let stretch = Stretch::of(trace, call);
    let seen = stretch.seen_in(&WAITS_IN);
    let ran = ran(call).unwrap_or(0.0);
    let since = call.at.saturating_sub(armed.end());
    // The name alone does not tell two calls apart.
    let [an_earlier, earlier] =
        if armed.name == call.name { ["an earlier ", "the earlier "] } else { ["", ""] };
    let mut evidence = vec![
        format!("{earlier}{} came {} before", armed.name, duration(since)),
        format!("{} and slept otherwise", told(ran)),
    ];
    // If stacks may be read, the sampler has seen it there, if it was looked at.
    let would_be_seen = stretch.stacks_are_told() && stretch.samples().next().is_some();
    match (seen, would_be_seen, kernel(trace)) {
        // To pass by there is no wait for it: it has to have slept, and there.
        (Some(function), ..) if ran < 0.5 && 2 * stretch.looks_at(&WAITS_IN) >= stretch.looks() => {
            evidence.push(format!("it was seen in {function}"));
        }
        (None, false, Some(kernel)) if kernel >= DEFERS && ran < 0.5 && fits(call, tick) => {
            evidence.push(format!("Linux {}.{} defers what is freed", kernel.0, kernel.1));
        }
        _ => return None,
    }
    let what = format!("a grace period that {an_earlier}{} started", armed.name);
    Some(likely("grace-period", what, remedy(call), evidence))
}

/// What to do about the wait of `call`, by what it does.
fn remedy(call: &Call) -> &'static str {
    match call.name.as_str() {
        _ if waits_to_take_away(call) => {
            "remove devices two ticks or more after the last registration; if the VM is closed anyway, remove none"
        }
        "KVM_CREATE_VCPU" => {
            "create vCPUs before devices are registered, or do slow work after the registration, while the grace period runs"
        }
        name if MEMORY.contains(&name) && call.arguments.get("size") == Some(&0) => {
            "delete memslots before devices are registered, or two ticks after; if the VM is closed anyway, delete none"
        }
        name if MEMORY.contains(&name) => {
            "set memory before devices are registered, or do slow work after the registration, while the grace period runs"
        }
        _ => {
            "make this call before devices are registered, or do slow work after the registration, while the grace period runs"
        }
    }
}

/// Whether a call takes a device away from a bus.
fn takes_away(call: &Call) -> bool {
    match call.name.as_str() {
        "KVM_IOEVENTFD" => call.argument("flags") & DEASSIGN != 0,
        "KVM_IRQFD" => call.argument("flags") & DEASSIGN_IRQ != 0,
        name => name == "KVM_UNREGISTER_COALESCED_MMIO",
    }
}

/// Whether a call that has waited takes a device away. To register one waits for nothing. So `KVM_IOEVENTFD` takes one
/// away if its flags are not in the record.
fn waits_to_take_away(call: &Call) -> bool {
    let is_unknown = call.name == "KVM_IOEVENTFD" && !call.arguments.contains_key("flags");
    is_unknown || takes_away(call)
}

/// The registration whose grace period is not over when the call begins.
fn armed<'a>(trace: &'a Trace, call: &Call, tick: u64) -> Option<&'a Call> {
    let vm = vm_of(call)?;
    trace.calls.iter().rev().find(|other| {
        other.at < call.at
            && call.at.saturating_sub(other.end()) < LASTS * tick
            && other.succeeded()
            && vm_of(other) == Some(vm)
            && REGISTERS.contains(&other.name.as_str())
            && !takes_away(other)
    })
}

fn vm_of(call: &Call) -> Option<usize> {
    match call.on {
        Some(Object::Vm { vm } | Object::Vcpu { vm, .. } | Object::Device { vm }) => Some(vm),
        _ => None,
    }
}

/// Whether it is as long as such a wait is.
fn fits(call: &Call, tick: u64) -> bool {
    (tick / 4..=SLOWEST * tick).contains(&own(call))
}
