//! What VMs on x86-64 do not have.

use mayfly_hypervisor::plan::Plan;
use mayfly_hypervisor::x86::layout::MOST_MEMORY;

/// Why no VM is frozen or forked on this architecture.
pub(crate) const NO_FORKS: Option<&str> = Some("no VM is on x86-64");

/// Why a VM of `plan` is not to be had on this architecture, if it is not.
pub(crate) fn refused(plan: &Plan) -> Option<&'static str> {
    match () {
        () if plan.its => Some("its=: there is no ITS on x86-64"),
        () if plan.memory > MOST_MEMORY => Some("memory=: a VM has at most 3072M on x86-64"),
        () => None,
    }
}
