//! What the vCPUs of a run share on x86-64: the APICs, the clocks, and the memory that their processors read.

use alloc::sync::Arc;

use mayfly_hypervisor::plan::Plan;
use mayfly_vapic::{Config, Vapic};
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_x86::bare::guest::Time;
use mayfly_x86::bare::timer;
use mayfly_x86::machine::cpuid;

use crate::bare::devices::arch::{Controller, Kicked};
use crate::bare::devices::clock;
use crate::bare::threads::kick::Places;
use crate::bare::world::memory::GuestMemory;

/// What the vCPUs of a run share.
pub(crate) struct Chipset {
    pub(crate) controller: Arc<Controller>,
    pub(super) memory: Arc<GuestMemory>,
    pub(super) time: Time,
    pub(super) x2apic: bool,
}

#[expect(clippy::unused_self, reason = "where vCPUs are turned on by a call, it is kept who is on")]
impl Chipset {
    /// That of a VM of `plan`, with that memory.
    pub(crate) fn try_new(
        plan: &Plan,
        memory: &Arc<GuestMemory>,
        places: &Arc<Places>,
    ) -> Result<Self, OutOfMemory> {
        let config = Config {
            vcpus: plan.vcpus as usize,
            x2apic: plan.x2apic,
            tsc_deadline: true,
            physical_bits: cpuid::PHYSICAL_BITS,
        };
        let controller = Vapic::try_new(config, Kicked(Arc::clone(places)));
        Ok(Self {
            controller: Arc::new(controller.map_err(|_| OutOfMemory)?),
            memory: Arc::clone(memory),
            time: Time::new(clock::now()),
            x2apic: plan.x2apic,
        })
    }

    /// What the guest's counter shows now.
    pub(crate) fn virtual_count(&self) -> u64 {
        timer::ticks().wrapping_sub(self.time.began)
    }

    /// A vCPU's thread begins to run it. Whether it has started is its APIC's to say.
    pub(crate) fn started(&self, _vcpu: usize) {}

    /// A vCPU runs no more.
    pub(crate) fn stopped(&self, _vcpu: usize) {}
}
