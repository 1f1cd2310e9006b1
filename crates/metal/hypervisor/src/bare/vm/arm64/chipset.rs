//! What the vCPUs of a run share on arm64: the GIC, PSCI, the offset of the virtual counter.

use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_arm64::timer;
use mayfly_devices::psci::{Core, Psci};
use mayfly_hypervisor::arm64::layout::SHARED_INTERRUPTS;
use mayfly_hypervisor::needs::ITS;
use mayfly_hypervisor::plan::Plan;
use mayfly_vgic::{Config, Kick, Vgic, affinity};
use mayfly_vm::platform::memory::OutOfMemory;

use crate::bare::devices::arch::{Controller, Kicked};
use crate::bare::processor::shared;
use crate::bare::threads;
use crate::bare::threads::kick::Places;
use crate::bare::world::memory::GuestMemory;

/// What the vCPUs of a run share.
pub(crate) struct Chipset {
    pub(crate) controller: Arc<Controller>,
    pub(super) psci: Psci<Vec<Core>>,
    /// How many ticks the guest's counter is behind.
    pub(super) timer_offset: u64,
}

impl Chipset {
    /// That of a VM of `plan`, of whose vCPUs the first is on.
    pub(crate) fn try_new(
        plan: &Plan,
        _memory: &Arc<GuestMemory>,
        places: &Arc<Places>,
    ) -> Result<Self, OutOfMemory> {
        let vcpus = plan.vcpus as usize;
        let cores = (0..vcpus).map(|vcpu| match vcpu {
            0 => Core::on(affinity(vcpu)),
            _ => Core::off(affinity(vcpu)),
        });
        let psci = Psci::new(cores.collect());
        let controller = Self::controller(plan, Kicked(Arc::clone(places)))?;
        Ok(Self::resumed(controller, psci, timer::ticks()))
    }

    /// That of a VM that goes on as another one was, with what was loaded of it.
    pub(super) fn resumed(gic: Controller, psci: Psci<Vec<Core>>, timer_offset: u64) -> Self {
        Self { controller: Arc::new(gic), psci, timer_offset }
    }

    /// The interrupt controller of a VM of `plan`, as after a reset.
    pub(super) fn controller<K: Kick>(plan: &Plan, kick: K) -> Result<Vgic<K>, OutOfMemory> {
        let config = Config {
            vcpus: plan.vcpus as usize,
            spis: SHARED_INTERRUPTS as usize,
            list_registers: shared::get().interface.list_registers,
            linked: &[
                (timer::VIRTUAL_TIMER, timer::VIRTUAL_TIMER),
                (timer::PHYSICAL_TIMER, timer::PHYSICAL_TIMER),
            ],
        };
        let its = plan.its.then_some(ITS);
        let made = Vgic::try_with_pauses(config, its, kick, &mut threads::preemption_point);
        made.map_err(|_| OutOfMemory)
    }

    /// What the guest's virtual counter shows now.
    pub(crate) fn virtual_count(&self) -> u64 {
        timer::ticks().wrapping_sub(self.timer_offset)
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
