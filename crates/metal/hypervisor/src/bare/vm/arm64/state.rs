//! The machine of a VM that is frozen, as bytes ([`state`]).

use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_arm64::resumed;
use mayfly_arm64::vcpu::AtRest;
use mayfly_hypervisor::arm64::state::{self, Shape, Start, Vcpu};
use mayfly_hypervisor::plan::Plan;
use mayfly_state::{SectionWriter, Writer};
use mayfly_vgic::CpuInterface;
use mayfly_vm::GuestCaches;
use mayfly_vm::platform::memory::OutOfMemory;

use super::chipset::Chipset;
use super::format::PA_RANGE;
use crate::bare::devices::arch::SerialPort;
use crate::bare::devices::{Devices, Parts};
use crate::bare::threads;
use crate::bare::vm::kept::NotKept;

/// A vCPU whose thread has ended, or that a thread is to go on as.
pub(crate) struct Stopped {
    /// It has begun and is on.
    pub(crate) is_on: bool,
    /// Where it begins, if it was turned on and has not begun.
    pub(crate) start: Option<Start>,
    pub(crate) interface: CpuInterface,
    pub(crate) registers: AtRest,
    pub(crate) caches: GuestCaches,
}

impl Vcpu for Stopped {
    fn start(&self) -> Option<Start> {
        self.start
    }

    fn interface(&self) -> &CpuInterface {
        &self.interface
    }

    fn save(&self, to: &mut SectionWriter<'_, '_>) -> bool {
        self.registers.save(to);
        true
    }
}

/// Bytes of a state that are made room for at first.
const BYTES: usize = 4096;
/// Bytes of it that are cleared before interrupts are looked for.
const AT_ONCE: usize = 16 << 10;

/// What a machine of `plan` is.
pub(super) fn shape(plan: &Plan) -> Shape {
    let Plan { memory, vcpus, disk, hvc, balloon, .. } = *plan;
    let has_card = plan.card.network.is_some();
    Shape { memory, vcpus, has_disk: disk != 0, has_card, has_console: hvc, has_balloon: balloon }
}

/// The state of a run of `plan` whose threads have ended, with its `vcpus` in the order of their numbers.
pub(crate) fn save(
    plan: &Plan,
    chipset: &Chipset,
    devices: &Devices,
    uart: &SerialPort,
    vcpus: &[Arc<Stopped>],
    virtual_count: u64,
) -> Result<Vec<u8>, NotKept> {
    let mut room = BYTES;
    loop {
        // Anew, so that what was written before is not copied.
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(room).map_err(|_| OutOfMemory)?;
        while bytes.len() < room {
            bytes.resize(room.min(bytes.len() + AT_ONCE), 0);
            threads::preemption_point();
        }
        let mut writer = Writer::new(&mut bytes);
        let clock = devices.clock();
        let saved = devices.with(|Parts { entropy, disk, card, console, balloon }| {
            let parts = state::Parts {
                shape: shape(plan),
                pause: threads::preemption_point,
                processors: &resumed::machine(PA_RANGE),
                virtual_count,
                gic: &chipset.controller,
                psci: &chipset.psci,
                uart,
                clock: &clock,
                entropy,
                disk: disk.as_deref(),
                card: card.as_deref(),
                console: console.as_deref(),
                balloon: balloon.as_deref(),
            };
            // Interrupts are looked for before each vCPU, which takes some thousand instructions.
            let vcpus = vcpus.iter().inspect(|_| threads::preemption_point());
            parts.save(vcpus.map(Arc::as_ref), &mut writer)
        });
        saved.map_err(|_| NotKept::NotStopped)?;
        threads::preemption_point();
        match writer.finish_with_pauses(&mut threads::preemption_point) {
            Ok(length) => {
                bytes.truncate(length);
                return Ok(bytes);
            }
            Err(error) if error.needed > room => room = error.needed,
            Err(_) => return Err(NotKept::OutOfMemory),
        }
    }
}
