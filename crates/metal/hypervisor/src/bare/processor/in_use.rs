//! The moments in which processors use frames of guests that they have found without a lock ([`mayfly_hypervisor::in_use`]).

use mayfly_hypervisor::in_use::{Moment, Moments, wait_for_all};

use super::{cpu, cpus, spin};

static PROCESSORS: [Moments; cpus::MAX] = [const { Moments::new() }; cpus::MAX];

/// This processor uses what it finds from now on, until what this returns is dropped: it keeps its thread meanwhile.
#[inline]
pub(crate) fn begin() -> Moment<'static> {
    // SAFETY: processors are numbered below `cpus::MAX`, each before it comes here (`this_cpu::prepare`).
    unsafe { PROCESSORS.get_unchecked(cpu::number()) }.begin()
}

/// Waits until no processor uses what was taken down before. The caller uses nothing in this way. Interrupts are masked, as in
/// each moment that is waited for: one takes no longer than a copy of a page.
pub(crate) fn wait_for_others() {
    wait_for_all(&PROCESSORS[..cpus::count() as usize], spin::relax);
}
