//! The worker that takes huge pages of guests apart again (x86, `nx_huge_pages`) is started, and joins its VMM's control
//! group: that waits for a grace period, or for a lock which others hold.
//!
//! Up to Linux 6.12 `KVM_CREATE_VM` starts it, from about 6.14 on the first `KVM_RUN` (`kvm_mmu_start_lpage_recovery` of
//! `arch/x86/kvm/mmu/mmu.c`).

use super::evidence::Stretch;
use super::likely::likely;
use crate::record::{Call, Cause, Trace};

const STARTS: [&str; 4] = [
    "kvm_mmu_start_lpage_recovery",
    "kvm_vm_create_worker_thread",
    "kvm_vm_worker_thread",
    "vhost_task_*",
];
const JOINS: [&str; 4] =
    ["cgroup_attach_task_all", "cgroup_attach_task", "percpu_down_write", "cgroup_procs_write*"];

pub(super) fn find(trace: &Trace, call: &Call) -> Option<Cause> {
    let first = || {
        trace
            .calls
            .iter()
            .find(|one| one.name == "KVM_RUN")
            .is_some_and(|one| std::ptr::eq(one, call))
    };
    if call.name != "KVM_CREATE_VM" && !(call.name == "KVM_RUN" && first()) {
        return None;
    }
    let stretch = Stretch::of(trace, call);
    let starts = stretch.seen_in(&STARTS)?;
    let mut evidence = vec![format!("it was seen in {starts}")];
    evidence.extend(stretch.seen_in(&JOINS).map(|joins| format!("and in {joins}")));
    let what = "KVM starts its worker for huge pages, which joins the VMM's control group";
    let remedy = "mount cgroup2 with favordynmods, or load kvm with nx_huge_pages=never where the processor needs no such protection";
    Some(likely("huge-page-worker", what, remedy, evidence))
}
