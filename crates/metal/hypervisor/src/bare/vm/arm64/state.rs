//! The machine of a frozen VM as bytes ([`state`]), and machines that go on as it was.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_arm64::saved::offset;
use mayfly_arm64::vcpu::AtRest;
use mayfly_arm64::{resumed, timer};
use mayfly_devices::psci::Core;
use mayfly_hypervisor::arm64::state::{self, Fresh, Shape, Start, Vcpu};
use mayfly_hypervisor::plan::Plan;
use mayfly_state::{Error, SectionWriter, State, Writer};
use mayfly_vgic::{CpuInterface, affinity};
use mayfly_vm::GuestCaches;
use mayfly_vm::platform::memory::OutOfMemory;

use super::chipset::Chipset;
use super::format::PA_RANGE;
use crate::bare::devices::arch::{Kicked, RealTimeClock, SerialPort};
use crate::bare::devices::frames::Frames;
use crate::bare::devices::network::Seat;
use crate::bare::devices::{Devices, Parts, Raw};
use crate::bare::threads;
use crate::bare::threads::kick::Places;
use crate::bare::world::World;

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

/// What the vCPUs of a run go on as, by their numbers: each is there until its thread has taken it.
pub(crate) type Vcpus = Vec<Option<Box<Stopped>>>;

/// Why a run is not kept.
#[derive(Debug)]
pub(crate) enum NotKept {
    /// There is no memory for what it was.
    OutOfMemory,
    /// A vCPU has no thread, or a part of it is not at rest.
    NotStopped,
}

impl From<OutOfMemory> for NotKept {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// Bytes of a state that are made room for at first.
const BYTES: usize = 4096;

fn shape(plan: &Plan) -> Shape {
    let Plan { memory, vcpus, disk, .. } = *plan;
    Shape { memory, vcpus, has_disk: disk != 0, has_card: plan.card.network.is_some() }
}

/// The state of a run of `plan` whose threads have ended, with its `vcpus` in the order of their numbers.
pub(crate) fn save(
    plan: &Plan,
    chipset: &Chipset,
    devices: &Devices,
    console: &SerialPort,
    vcpus: &[Stopped],
    virtual_count: u64,
) -> Result<Vec<u8>, NotKept> {
    let mut bytes = Vec::new();
    let mut room = BYTES;
    loop {
        bytes.try_reserve_exact(room).map_err(|_| OutOfMemory)?;
        bytes.resize(room, 0);
        let mut writer = Writer::new(&mut bytes);
        let clock = devices.clock();
        let saved = devices.with(|Parts { entropy, disk, card }| {
            let parts = state::Parts {
                shape: shape(plan),
                pause: threads::preemption_point,
                processors: &resumed::machine(PA_RANGE),
                virtual_count,
                gic: &chipset.controller,
                psci: &chipset.psci,
                uart: console,
                clock: &clock,
                entropy,
                disk: disk.as_deref(),
                card: card.as_deref(),
            };
            // Interrupts are looked for before each vCPU, which takes some thousand instructions.
            parts.save(vcpus.iter().inspect(|_| threads::preemption_point()), &mut writer)
        });
        saved.map_err(|_| NotKept::NotStopped)?;
        threads::preemption_point();
        match writer.finish_with_pauses(&mut threads::preemption_point) {
            Ok(length) => {
                bytes.truncate(length);
                bytes.shrink_to_fit();
                return Ok(bytes);
            }
            Err(error) if error.needed > room => room = error.needed,
            Err(_) => return Err(NotKept::OutOfMemory),
        }
    }
}

/// A machine that goes on as a saved one was.
pub(crate) struct Resumed {
    pub(crate) chipset: Chipset,
    pub(crate) devices: Arc<Devices>,
    pub(crate) console: SerialPort,
    pub(crate) vcpus: Vcpus,
}

/// Where the devices come from of a machine that goes on.
#[expect(clippy::large_enum_variant, reason = "it is passed on once, and kept nowhere")]
pub(crate) enum Origin<'a> {
    /// They are made, with that disk; and with that seat, if it is a fork of a service.
    Made(&'a Arc<World>, Option<Frames>, Option<Seat>),
    /// They are those that it had.
    Kept(&'a Arc<Devices>),
}

/// Why no machine goes on as a saved one.
#[derive(Debug)]
pub(crate) enum NotResumed {
    OutOfMemory,
    /// The bytes are no state of such a machine.
    Bytes(Error),
}

impl From<OutOfMemory> for NotResumed {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// A machine of `plan` that goes on as `state` was, which was saved here, with those caches of its vCPUs. If it keeps its
/// devices, their thread waits, and no vCPU has them.
pub(crate) fn resume(
    plan: &Plan,
    state: &[u8],
    caches: &[GuestCaches],
    places: &Arc<Places>,
    origin: Origin<'_>,
) -> Result<Resumed, NotResumed> {
    let loading = Loading { plan, state, caches, places };
    match origin {
        Origin::Made(world, disk, seat) => {
            let mut raw = Raw::new(plan, disk);
            threads::preemption_point();
            let Loaded { chipset, clock, console, vcpus } = loading.load(raw.parts())?;
            let devices = Devices::resumed(world, &chipset.controller, raw, clock, seat);
            Ok(Resumed { chipset, devices: Arc::new(devices), console, vcpus })
        }
        Origin::Kept(devices) => {
            let loaded = devices.with(|parts| loading.load(parts))?;
            let Loaded { chipset, clock, console, vcpus } = loaded;
            devices.go_back(&chipset.controller, clock);
            Ok(Resumed { chipset, devices: Arc::clone(devices), console, vcpus })
        }
    }
}

/// What a machine is loaded from.
struct Loading<'a> {
    plan: &'a Plan,
    state: &'a [u8],
    caches: &'a [GuestCaches],
    places: &'a Arc<Places>,
}

/// What was loaded, beside devices that are virtio.
struct Loaded {
    chipset: Chipset,
    clock: RealTimeClock,
    console: SerialPort,
    vcpus: Vcpus,
}

impl Loading<'_> {
    fn load(self, Parts { entropy, disk, card }: Parts<'_>) -> Result<Loaded, NotResumed> {
        let Self { plan, state, caches, places } = self;
        let count = plan.vcpus as usize;
        let mut gic = Chipset::controller(plan, places)?;
        let mut console = SerialPort::new();
        let mut clock = RealTimeClock::new();
        let (mut cores, mut vcpus) = (Vec::new(), Vec::new());
        cores.try_reserve_exact(count).map_err(|_| OutOfMemory)?;
        cores.extend((0..count).map(|vcpu| Core::off(affinity(vcpu))));
        vcpus.try_reserve_exact(count).map_err(|_| OutOfMemory)?;
        let fresh = Fresh::<'_, Kicked, _, _> {
            shape: shape(plan),
            pause: threads::preemption_point,
            processors: &resumed::machine(PA_RANGE),
            gic: &mut gic,
            uart: &mut console,
            clock: &mut clock,
            entropy,
            disk,
            card,
        };
        let sections = State::reopen(state).map_err(NotResumed::Bytes)?.sections();
        let loaded = fresh.load(sections, cores, |number, vcpu| {
            let caches = caches.get(number as usize).copied().unwrap_or_default();
            let registers = resumed::fresh(affinity(number as usize));
            let (start, interface) = (vcpu.start, vcpu.interface);
            // Its registers are loaded into their place: they are most of what there is to a vCPU.
            let mut stopped =
                Box::new(Stopped { is_on: false, start, interface, registers, caches });
            resumed::load(&mut stopped.registers, vcpu.registers)?;
            vcpus.push(Some(stopped));
            threads::preemption_point();
            Ok(())
        });
        let loaded = loaded.map_err(NotResumed::Bytes)?;
        for (number, vcpu) in vcpus.iter_mut().flatten().enumerate() {
            vcpu.is_on = loaded.psci.is_on(number) && vcpu.start.is_none();
        }
        let timer_offset = offset(timer::ticks(), loaded.virtual_count);
        let chipset = Chipset::resumed(gic, loaded.psci, timer_offset);
        Ok(Loaded { chipset, clock, console, vcpus })
    }
}
