//! The last descriptor of a VM is closed: the VM is destroyed in the caller, which waits for grace periods, and frees its
//! tables (`kvm_destroy_vm` of `virt/kvm/kvm_main.c`).

use mayfly_record::units::duration;

use super::evidence::{Stretch, ran, told};
use super::likely::likely;
use crate::looks::is_meant;
use crate::record::{Call, Cause, Object, Sample, Trace};

const DESTROYS: [&str; 7] = [
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

const NOTIFIER: &str = "its MMU notifier";
/// What a VM has, and the functions that destroy it, as `kvm_destroy_vm` calls them, for x86-64 and for arm64.
const PARTS: [(&str, &[&str]); 7] = [
    ("its interval timer", &["kvm_free_pit", "kvm_pit_*"]),
    (
        "its interrupt controller",
        &["kvm_ioapic_*", "kvm_pic_*", "kvm_vgic_destroy", "kvm_free_irq_*"],
    ),
    (NOTIFIER, &["mmu_notifier_unregister", "__mmu_notifier_*"]),
    (
        "its vCPUs",
        &["kvm_destroy_vcpus", "kvm_free_vcpus", "kvm_arch_vcpu_destroy", "kvm_vcpu_destroy"],
    ),
    (
        "its page tables",
        &["kvm_mmu_*", "kvm_arch_flush_shadow_all", "kvm_free_stage2_pgd", "mmu_free_*"],
    ),
    ("its memslots", &["kvm_free_memslot*", "kvm_arch_free_memslot"]),
    ("its devices", &["kvm_io_bus_destroy", "kvm_destroy_devices"]),
];

/// Whether a look found a thread where it destroys a VM, or a part of it.
pub(super) fn is_of_vm(look: &Sample) -> bool {
    look.is_in(&DESTROYS) || releases_notifier(look)
}

/// Memory that has an MMU notifier, as that of a process with a VM has, waits for its readers before it goes
/// (`__mmu_notifier_release` of `mm/mmu_notifier.c`).
fn releases_notifier(look: &Sample) -> bool {
    look.is_in(&["exit_mmap"]) && look.is_in(&WAITS_IN)
}

/// What part of a VM a look found destroyed. Where the stack has several parts it is the one that is named first.
fn part(look: &Sample) -> Option<&'static str> {
    let named = PARTS.iter().find(|(_, functions)| look.is_in(functions)).map(|(part, _)| *part);
    named.or_else(|| releases_notifier(look).then_some(NOTIFIER))
}

/// What speaks for the destruction of a VM: where it was seen, and in which part of the VM it stayed longest.
pub(super) fn evidence(stretch: &Stretch<'_>) -> Vec<String> {
    let looks = || stretch.samples().filter(|one| is_of_vm(one) || part(one).is_some());
    let all: u64 = looks().map(|one| one.seen).sum();
    let of = |meant: &str| {
        looks().filter(|one| part(one) == Some(meant)).map(|one| one.seen).sum::<u64>()
    };
    let times = PARTS.map(|(part, _)| (of(part), part));
    let longest = times.into_iter().rev().filter(|(looks, _)| *looks > 0).max_by_key(|one| one.0);
    // It is said of the part that is named, if there is one.
    let is_meant_part = |one: &&Sample| longest.is_none_or(|(_, meant)| part(one) == Some(meant));
    let seen = looks().filter(is_meant_part).find_map(|one| {
        let mut functions = one.functions();
        let named = functions.find(|name| is_meant(name, &DESTROYS));
        named.or_else(|| one.functions().find(|name| is_meant(name, &WAITS_IN))).cloned()
    });
    let longest =
        longest.map(|(looks, part)| format!("in {looks} of {all} looks it destroyed {part}"));
    let seen = seen.map(|function| format!("it was seen in {function}"));
    seen.into_iter().chain(longest).collect()
}

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
    if let Some(cause) = right_after(trace, call, &stretch) {
        return Some(cause);
    }
    let mut evidence = vec!["it drops the VM's last descriptor".to_owned()];
    let more = self::evidence(&stretch);
    let channel = more.is_empty().then(|| format!("it was seen in {seen}"));
    evidence.extend(more.into_iter().chain(channel));
    let remedy = "close the VM on a thread that nothing waits for, or end the process and have others watch for its end by a pidfd";
    Some(likely("vm-destruction", "the VM is destroyed in the caller", remedy, evidence))
}

/// So many ticks after its creation, a VM is closed as fast as any.
const SETTLES: u64 = 5;

/// A VM that was never run is closed right after it was created, and the close sleeps for a grace period.
fn right_after(trace: &Trace, call: &Call, stretch: &Stretch<'_>) -> Option<Cause> {
    let made = trace.creation(call.vm())?;
    let since = call.at.checked_sub(made.end())?;
    let tick = trace.tick().unwrap_or(4_000_000);
    let was_run = trace.calls.iter().any(|one| one.name == "KVM_RUN" && one.vm() == call.vm());
    let ran = ran(call)?;
    if was_run || since >= SETTLES * tick || ran >= 0.5 {
        return None;
    }
    let seen = stretch.seen_in(&WAITS_IN)?;
    let evidence = vec![
        format!("KVM_CREATE_VM came {} before, and the VM was never run", duration(since)),
        format!("{} and slept otherwise", told(ran)),
        format!("it was seen in {seen}"),
    ];
    Some(likely(
        "close-after-create",
        "the VM is closed right after it was created, and waits for a grace period",
        "create no VM only to ask what KVM can do: /dev/kvm answers KVM_CHECK_EXTENSION, too; or keep that VM and use it",
        evidence,
    ))
}
