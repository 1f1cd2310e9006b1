//! The number of a VM's generation: 16 random bytes in its memory, which are new whenever it begins, with its kernel or
//! as a frozen VM was. A kernel that knows the device (Linux from 6.10 on, with `CONFIG_VMGENID`) seeds its generator of
//! random numbers by them, and again when an interrupt says that they are new.
//!
//! The kernel maps them as a device's registers, so it may read them past the caches. They are written, and the
//! interrupt is pending, before the first vCPU enters.

use mayfly_hypervisor::arm64::layout::{GENERATION_INTERRUPT, MEMORY, generation};
use mayfly_hypervisor::plan::Plan;
use mayfly_vm::HostFault;

use super::chipset::Chipset;
use crate::bare::world::entropy;
use crate::bare::world::memory::GuestMemory;

const BYTES: usize = 16;

/// Gives a VM that is about to begin a number that no other has.
pub(crate) fn begin(plan: &Plan, memory: &GuestMemory) -> Result<(), HostFault> {
    memory.write_past_caches(generation(plan.memory) - MEMORY, &entropy::number::<BYTES>())
}

/// The same for one that begins as a frozen VM was: it is told.
pub(crate) fn change(
    plan: &Plan,
    memory: &GuestMemory,
    chipset: &Chipset,
) -> Result<(), HostFault> {
    memory.begin_page(generation(plan.memory) - MEMORY, &entropy::number::<BYTES>())?;
    // The SPI is there: the layout has it. A guest that does not know the device has it level-sensitive, and sees nothing.
    let _ = chipset.controller.pulse_spi(GENERATION_INTERRUPT);
    Ok(())
}
