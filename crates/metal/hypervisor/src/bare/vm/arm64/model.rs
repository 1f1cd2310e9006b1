//! What a frozen VM was beside its memory, as a machine that never runs; and machines that go on as it was.
//!
//! The model is loaded from the state that was saved, once, when the VM is frozen: so all that a state is held against is
//! looked at then, and what nothing can go on as is not frozen. Of a VM that is forked while it runs, the model is a copy of
//! the machine itself, which is at rest, and goes on. Each machine that goes on is a copy of the model. A copy is
//! of registers and words; nothing of it is looked at again.

use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_arm64::saved::offset;
use mayfly_arm64::{resumed, timer};
use mayfly_devices::psci::{Core, Psci};
use mayfly_devices::virtio::{Mmio, NotDrained};
use mayfly_hypervisor::arm64::state::{Fresh, Start};
use mayfly_hypervisor::plan::Plan;
use mayfly_state::State;
use mayfly_vgic::{CpuInterface, NotCopied, Vgic, affinity};
use mayfly_vm::GuestCaches;
use mayfly_vm::platform::memory::OutOfMemory;

use super::chipset::Chipset;
use super::format::PA_RANGE;
use super::state::{Stopped, shape};
use crate::bare::devices::arch::{Kicked, RealTimeClock, SerialPort};
use crate::bare::devices::frames::Frames;
use crate::bare::devices::{Devices, Look, Parts, Raw};
use crate::bare::threads;
use crate::bare::threads::kick::Places;
use crate::bare::vm::kept::{NotLoaded, NotResumed};
use crate::bare::vm::origin::Origin;

/// What the vCPUs of a run go on as, by their numbers: each is there until its thread has taken it.
pub(crate) type Vcpus = Vec<Option<Arc<Stopped>>>;

/// A machine that goes on as another one was.
pub(crate) struct Resumed {
    pub(crate) chipset: Chipset,
    pub(crate) devices: Arc<Devices>,
    pub(crate) uart: SerialPort,
    pub(crate) vcpus: Vcpus,
}

/// A machine as it was frozen.
pub(crate) struct Model {
    gic: Vgic<fn(usize)>,
    psci: Psci<Vec<Core>>,
    virtual_count: u64,
    uart: SerialPort,
    clock: RealTimeClock,
    devices: Raw,
    /// Those that go on as these share them, and copy them to where they run.
    vcpus: Vec<Arc<Stopped>>,
}

impl From<NotDrained> for NotResumed {
    fn from(_: NotDrained) -> Self {
        Self::NotAtRest
    }
}

impl From<NotCopied> for NotResumed {
    fn from(why: NotCopied) -> Self {
        match why {
            NotCopied::OutOfMemory(_) => Self::OutOfMemory,
            NotCopied::Inside(_) => Self::NotAtRest,
        }
    }
}

/// A vCPU whose registers are to be loaded. Not inlined: they have a KiB, which is on the stack for a moment.
#[inline(never)]
fn off(number: usize, start: Option<Start>, interface: CpuInterface) -> Arc<Stopped> {
    let registers = resumed::fresh(affinity(number));
    Arc::new(Stopped { is_on: false, start, interface, registers, caches: GuestCaches::default() })
}

impl Model {
    /// The machine of `plan` whose `state` was saved here, with that disk, and those caches of its vCPUs.
    #[inline(never)]
    pub(crate) fn load(
        plan: &Plan,
        state: &[u8],
        caches: impl Iterator<Item = GuestCaches>,
        disk: Option<Frames>,
    ) -> Result<Self, NotLoaded> {
        let count = plan.vcpus as usize;
        let mut gic = Chipset::controller(plan, (|_| ()) as fn(usize))?;
        let mut devices = Raw::new(plan, disk);
        threads::preemption_point();
        let mut uart = SerialPort::new();
        let mut clock = RealTimeClock::new();
        let (mut cores, mut vcpus) = (Vec::new(), Vec::new());
        cores.try_reserve_exact(count).map_err(|_| OutOfMemory)?;
        cores.extend((0..count).map(|vcpu| Core::off(affinity(vcpu))));
        vcpus.try_reserve_exact(count).map_err(|_| OutOfMemory)?;
        let Parts { entropy, disk, card, console, balloon } = devices.parts();
        let fresh = Fresh {
            shape: shape(plan),
            pause: threads::preemption_point,
            processors: &resumed::machine(PA_RANGE),
            gic: &mut gic,
            uart: &mut uart,
            clock: &mut clock,
            entropy,
            disk,
            card,
            console,
            balloon,
        };
        let sections = State::reopen(state)?.sections();
        let loaded = fresh.load(sections, cores, |number, vcpu| {
            let mut stopped = off(number as usize, vcpu.start, vcpu.interface);
            // Nobody else has it yet.
            if let Some(stopped) = Arc::get_mut(&mut stopped) {
                resumed::load(&mut stopped.registers, vcpu.registers)?;
            }
            vcpus.push(stopped);
            threads::preemption_point();
            Ok(())
        })?;
        for ((number, vcpu), caches) in vcpus.iter_mut().enumerate().zip(caches) {
            if let Some(vcpu) = Arc::get_mut(vcpu) {
                vcpu.is_on = loaded.psci.is_on(number) && vcpu.start.is_none();
                vcpu.caches = caches;
            }
        }
        let (psci, virtual_count) = (loaded.psci, loaded.virtual_count);
        Ok(Self { gic, psci, virtual_count, uart, clock, devices, vcpus })
    }

    /// What the machine of `plan` is that these are of, none of which is at work, with that disk. They stay as they are.
    pub(crate) fn of(
        plan: &Plan,
        chipset: &Chipset,
        devices: &Devices,
        disk: Option<Frames>,
        uart: SerialPort,
        vcpus: Vec<Arc<Stopped>>,
        virtual_count: u64,
    ) -> Result<Self, NotResumed> {
        let pause = &mut threads::preemption_point;
        let gic = chipset.controller.try_copy((|_| ()) as fn(usize), pause)?;
        let psci = Psci::new(copied(&chipset.psci)?);
        let mut raw = Raw::new(plan, disk);
        threads::preemption_point();
        devices.with(|parts| go_on_as(raw.parts(), parts.look()))?;
        Ok(Self { gic, psci, virtual_count, uart, clock: devices.clock(), devices: raw, vcpus })
    }

    /// Bytes of heap that it has.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.gic.heap_bytes()
            + self.psci.cores().capacity() * size_of::<Core>()
            + self.vcpus.capacity() * size_of::<(Arc<Stopped>, [usize; 2], Stopped)>()
            + self.devices.heap_bytes()
    }

    /// A machine of `plan` that goes on as this one. If it keeps its devices, their thread waits, and no vCPU has them.
    pub(crate) fn resume(
        &self,
        plan: &Plan,
        places: &Arc<Places>,
        origin: Origin<'_>,
    ) -> Result<Resumed, NotResumed> {
        let gic = self.gic.try_copy(Kicked(Arc::clone(places)), &mut threads::preemption_point)?;
        let (cores, mut vcpus) = (copied(&self.psci)?, Vec::new());
        vcpus.try_reserve_exact(self.vcpus.len()).map_err(|_| OutOfMemory)?;
        vcpus.extend(self.vcpus.iter().map(|vcpu| Some(Arc::clone(vcpu))));
        let timer_offset = offset(timer::ticks(), self.virtual_count);
        let chipset = Chipset::resumed(gic, Psci::new(cores), timer_offset);
        let (uart, clock) = (self.uart.clone(), self.clock.clone());
        let devices = match origin {
            Origin::Made(world, disk, seat) => {
                let mut raw = Raw::new(plan, disk);
                threads::preemption_point();
                go_on_as(raw.parts(), self.devices.look())?;
                Arc::new(Devices::resumed(world, &chipset.controller, plan, raw, clock, seat))
            }
            Origin::Kept(devices) => {
                devices.with(|parts| go_on_as(parts, self.devices.look()))?;
                devices.go_back(&chipset.controller, clock);
                Arc::clone(devices)
            }
        };
        Ok(Resumed { chipset, devices, uart, vcpus })
    }
}

/// The cores as they are.
fn copied(psci: &Psci<Vec<Core>>) -> Result<Vec<Core>, OutOfMemory> {
    let mut cores = Vec::new();
    cores.try_reserve_exact(psci.cores().len()).map_err(|_| OutOfMemory)?;
    cores.extend(psci.cores().iter().cloned());
    Ok(cores)
}

/// Has devices be what those are.
fn go_on_as(to: Parts<'_>, from: Look<'_>) -> Result<(), NotDrained> {
    to.entropy.go_on_as(from.entropy)?;
    if let (Some(to), Some(disk)) = (to.disk, from.disk) {
        to.go_on_as(disk)?;
    }
    if let (Some(to), Some(card)) = (to.card, from.card) {
        Mmio::go_on_as(to, card)?;
    }
    if let (Some(to), Some(console)) = (to.console, from.console) {
        to.go_on_as(console)?;
    }
    if let (Some(to), Some(balloon)) = (to.balloon, from.balloon) {
        to.go_on_as(balloon)?;
    }
    Ok(())
}
