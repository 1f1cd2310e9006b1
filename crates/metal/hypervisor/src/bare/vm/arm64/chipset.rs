//! What the vCPUs of a run share on arm64: the GIC, PSCI, the offset of the virtual counter.

use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_arm64::timer;
use mayfly_devices::psci::{Core, Psci};
use mayfly_hypervisor::arm64::layout::SHARED_INTERRUPTS;
use mayfly_vgic::{Config, Kick, Vgic, affinity};
use mayfly_vm::platform::memory::OutOfMemory;

use crate::bare::devices::arch::{Controller, Kicked};
use crate::bare::processor::shared;
use crate::bare::threads::kick::Places;

/// What the vCPUs of a run share.
pub(crate) struct Chipset {
    pub(crate) controller: Arc<Controller>,
    pub(super) psci: Psci<Vec<Core>>,
    /// How many ticks the guest's counter is behind.
    pub(super) timer_offset: u64,
}

/// A [`Chipset`] as it was when its VM was frozen.
pub(crate) struct ChipsetState {
    vgic: Vgic<Nobody>,
    cores: Vec<Core>,
    /// What the guest's virtual counter has come to.
    count: u64,
}

/// No vCPU: none is kicked in what is frozen.
struct Nobody;

impl Kick for Nobody {
    fn kick(&self, _: usize) {}
}

fn copies(cores: &[Core]) -> Result<Vec<Core>, OutOfMemory> {
    let mut copies = Vec::new();
    copies.try_reserve_exact(cores.len()).map_err(|_| OutOfMemory)?;
    copies.extend(cores.iter().map(Core::copy));
    Ok(copies)
}

impl Chipset {
    /// That of `vcpus` vCPUs, of which the first is on.
    pub(crate) fn try_new(vcpus: usize, places: &Arc<Places>) -> Result<Self, OutOfMemory> {
        let config = Config {
            vcpus,
            spis: SHARED_INTERRUPTS as usize,
            list_registers: shared::get().interface.list_registers,
            linked: &[
                (timer::VIRTUAL_TIMER, timer::VIRTUAL_TIMER),
                (timer::PHYSICAL_TIMER, timer::PHYSICAL_TIMER),
            ],
        };
        let vgic = Vgic::try_new(config, Kicked(Arc::clone(places))).map_err(|_| OutOfMemory)?;
        let cores = (0..vcpus).map(|vcpu| match vcpu {
            0 => Core::on(affinity(vcpu)),
            _ => Core::off(affinity(vcpu)),
        });
        let psci = Psci::new(cores.collect());
        Ok(Self { controller: Arc::new(vgic), psci, timer_offset: timer::ticks() })
    }

    /// That of a VM that goes on as `state` was.
    pub(crate) fn resumed(state: &ChipsetState, places: &Arc<Places>) -> Result<Self, OutOfMemory> {
        let vgic = state.vgic.try_copy(Kicked(Arc::clone(places))).map_err(|_| OutOfMemory)?;
        let psci = Psci::new(copies(&state.cores)?);
        // The guest's counter goes on where it was.
        let timer_offset = timer::ticks().wrapping_sub(state.count);
        Ok(Self { controller: Arc::new(vgic), psci, timer_offset })
    }

    /// What it is, once all threads of the run have ended.
    pub(crate) fn state(&self) -> Result<ChipsetState, OutOfMemory> {
        Ok(ChipsetState {
            vgic: self.controller.try_copy(Nobody).map_err(|_| OutOfMemory)?,
            cores: copies(self.psci.cores())?,
            count: timer::ticks().wrapping_sub(self.timer_offset),
        })
    }

    /// A vCPU begins: it may not have been asked for, as the first.
    pub(crate) fn started(&self, vcpu: usize) {
        if !self.psci.is_on(vcpu) {
            self.psci.started(vcpu);
        }
    }

    /// A vCPU is off.
    pub(crate) fn stopped(&self, vcpu: usize) {
        self.psci.stopped(vcpu);
    }
}
