//! The number of a VM's generation, which a guest is told where it may be forked. On this architecture none is.

#![expect(
    clippy::unnecessary_wraps,
    reason = "where there is a number, there may be no memory for it"
)]

use mayfly_hypervisor::plan::Plan;
use mayfly_vm::HostFault;

use super::chipset::Chipset;
use crate::bare::world::memory::GuestMemory;

/// A VM is about to begin.
pub(crate) fn begin(_plan: &Plan, _memory: &GuestMemory) -> Result<(), HostFault> {
    Ok(())
}

/// One that begins as a frozen VM was is about to.
pub(crate) fn change(
    _plan: &Plan,
    _memory: &GuestMemory,
    _chipset: &Chipset,
) -> Result<(), HostFault> {
    Ok(())
}
