//! One life of a VM: from its first vCPU to its end. A restart is another.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64 as Word, Ordering};

use mayfly_arm64::guest::Confinement;
use mayfly_arm64::machine::Reason;
use mayfly_devices::psci::{Core, Psci};
use mayfly_hypervisor::layout::SHARED_INTERRUPTS;
use mayfly_hypervisor::plan::Plan;
use mayfly_vgic::{Config, Vgic, affinity};
use mayfly_vm::platform::Platform;
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::platform::sync::AtomicU32;

use super::devices::Devices;
use super::disk::Frames;
use super::kick::{Places, Shared};
use super::seat::Gic;
use super::threads;
use super::uart::Uart;
use super::world::{self, World};

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum End {
    /// The guest has turned the machine off.
    Off = 1,
    /// The guest starts anew.
    Reset,
    /// It was killed.
    Killed,
    /// It needed more memory than there is.
    OutOfMemory,
    /// It could not begin.
    Failed,
}

impl End {
    fn of(number: u32) -> Option<Self> {
        [Self::Off, Self::Reset, Self::Killed, Self::OutOfMemory, Self::Failed]
            .into_iter()
            .find(|end| *end as u32 == number)
    }
}

/// A vCPU that is off, or is to begin.
pub(super) struct Power {
    /// [`OFF`], or [`STARTS`].
    pub(super) word: AtomicU32,
    pub(super) entry: Word,
    pub(super) context: Word,
}

pub(super) const OFF: u32 = 0;
pub(super) const STARTS: u32 = 1;

/// What the vCPUs of a VM share while it lives.
pub(super) struct Life {
    pub(super) world: Arc<World>,
    pub(super) vgic: Arc<Gic>,
    pub(super) psci: Psci<Vec<Core>>,
    pub(super) places: Arc<Places>,
    pub(super) power: Vec<Power>,
    pub(super) uart: Arc<Uart>,
    pub(super) books: Arc<Books>,
    pub(super) devices: Devices,
    pub(super) memory: u64,
    /// Ticks that the guest's counter is behind.
    pub(super) timer_offset: u64,
    pub(super) confinement: Confinement,
    /// How it ends, once it does: an [`End`].
    ending: AtomicU32,
    /// Threads that are there: of its vCPUs, and of its devices.
    pub(super) alive: AtomicU32,
}

impl core::fmt::Display for End {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Off => "has turned itself off",
            Self::Reset => "starts anew",
            Self::Killed => "was ended",
            Self::OutOfMemory => "was ended: it needs more memory than there is",
            Self::Failed => "was ended: it could not go on",
        })
    }
}

/// Where a guest came out, by reason, since the VM was created.
#[derive(Default)]
pub(super) struct Books {
    exits: [Word; Reason::ALL.len()],
    /// Time that its vCPUs had processors.
    ticks: Word,
}

impl Books {
    pub(super) fn count(&self, reason: Reason) {
        self.exits[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn spend(&self, ticks: u64) {
        self.ticks.fetch_add(ticks, Ordering::Relaxed);
    }

    pub(super) fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let read = |&(reason, name): &(Reason, &'static str)| {
            (name, self.exits[reason as usize].load(Ordering::Relaxed))
        };
        Reason::ALL.iter().map(read)
    }
}

impl Life {
    pub(super) fn try_new(
        world: Arc<World>,
        plan: &Plan,
        uart: &Arc<Uart>,
        books: &Arc<Books>,
        disk: Option<Frames>,
        confinement: Confinement,
    ) -> Result<Self, OutOfMemory> {
        let places = Arc::new(Places::try_new(plan.vcpus)?);
        let config = Config {
            vcpus: plan.vcpus as usize,
            spis: SHARED_INTERRUPTS as usize,
            list_registers: world::virtual_interface().list_registers,
            linked: &[(mayfly_arm64::timer::VIRTUAL_TIMER, mayfly_arm64::timer::VIRTUAL_TIMER)],
        };
        let vgic = Vgic::try_new(config, Shared(Arc::clone(&places))).map_err(|_| OutOfMemory)?;
        let vgic = Arc::new(vgic);
        threads::preemption_point();
        let devices = Devices::new(&world, &vgic, disk);
        threads::preemption_point();
        let cores = (0..plan.vcpus as usize).map(|vcpu| match vcpu {
            0 => Core::on(affinity(vcpu)),
            _ => Core::off(affinity(vcpu)),
        });
        let power =
            || Power { word: AtomicU32::new(OFF), entry: Word::new(0), context: Word::new(0) };
        Ok(Self {
            world,
            vgic,
            psci: Psci::new(cores.collect()),
            places,
            power: (0..plan.vcpus).map(|_| power()).collect(),
            uart: Arc::clone(uart),
            books: Arc::clone(books),
            devices,
            memory: plan.memory,
            timer_offset: mayfly_arm64::timer::ticks(),
            confinement,
            ending: AtomicU32::new(0),
            alive: AtomicU32::new(0),
        })
    }

    /// Has vCPU `vcpu` begin.
    pub(super) fn turn_on(&self, vcpu: usize, entry: u64, context: u64) {
        let power = &self.power[vcpu];
        power.entry.store(entry, Ordering::Relaxed);
        power.context.store(context, Ordering::Relaxed);
        power.word.store(STARTS, Ordering::Release);
        self.world.wake(&power.word);
    }

    /// Ends it, if nobody has: all vCPUs come out for good.
    pub(super) fn end(&self, end: End) {
        let set = self.ending.compare_exchange(0, end as u32, Ordering::AcqRel, Ordering::Relaxed);
        if set.is_ok() {
            self.places.kick_all();
            for power in &self.power {
                // Whoever sleeps there looks at how the life ends.
                power.word.store(STARTS, Ordering::Release);
                self.world.wake(&power.word);
            }
            self.devices.ring();
        }
    }

    /// How it ends, once it does.
    pub(super) fn ending(&self) -> Option<End> {
        End::of(self.ending.load(Ordering::Acquire))
    }

    /// A thread of it is over.
    pub(super) fn gone(&self) {
        self.alive.fetch_sub(1, Ordering::AcqRel);
        self.world.wake(&self.alive);
    }
}
