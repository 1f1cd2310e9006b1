//! One run of a VM: from its first vCPU to its end. A restart is another run.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_hypervisor::ending::{End, Ending};
use mayfly_hypervisor::identity::Identity;
use mayfly_hypervisor::plan::Plan;
use mayfly_vm::platform::Platform;
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::platform::sync::AtomicU32;

use super::arch::{Chipset, Resumed, Start, Stopped, Vcpus};
use super::counts::Counts;
use super::kept::NotResumed;
use super::origin::Origin;
use super::relay::Relay;
use super::template::Template;
use crate::bare::devices::Devices;
use crate::bare::devices::arch::SerialPort;
use crate::bare::devices::disk::Medium;
use crate::bare::devices::uart::Uart;
use crate::bare::processor::spin::SpinLock;
use crate::bare::threads;
use crate::bare::threads::kick::Places;
use crate::bare::world::memory::GuestMemory;
use crate::bare::world::share::Ends;
use crate::bare::world::{World, Worlds};

/// A vCPU that is off, or is to begin.
pub(crate) struct Power {
    /// [`OFF`], [`STARTS`], or [`ENDS`].
    pub(crate) word: AtomicU32,
    pub(crate) entry: AtomicU64,
    pub(crate) context: AtomicU64,
}

pub(crate) const OFF: u32 = 0;
pub(super) const STARTS: u32 = 1;
/// It is off, and the run ends.
pub(crate) const ENDS: u32 = 2;

/// How many runs have begun as a frozen VM was.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// What the vCPUs of a VM share while it runs.
pub(crate) struct Run {
    pub(crate) world: Arc<World>,
    /// What the guest's memory takes its frames from.
    memory_world: SpinLock<Arc<World>>,
    pub(crate) chipset: Chipset,
    pub(crate) places: Arc<Places>,
    pub(crate) power: Vec<Power>,
    pub(crate) uart: Arc<Uart>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) memory: u64,
    /// What its guest is told of it.
    pub(crate) identity: Identity,
    /// What its vCPUs go on as, by number, if others were frozen before.
    pub(super) resumed: SpinLock<Vcpus>,
    /// What its vCPUs leave of themselves when it is frozen, by number.
    pub(super) stopped: SpinLock<Vec<Option<Arc<Stopped>>>>,
    ending: Ending,
    /// What its threads do when a fork goes back.
    relay: Relay,
    /// How many threads it has beside the one of the VM, which is that of its devices: those of its vCPUs, and one that tells
    /// the others that it is to be frozen.
    pub(crate) alive: AtomicU32,
}

impl Ends for Run {
    fn end(&self) {
        Self::end(self, End::OutOfMemory);
    }

    fn is_ending(&self) -> bool {
        self.ends_for_good()
    }
}

impl Run {
    /// One that begins with its kernel, in that memory.
    pub(crate) fn try_new(
        worlds: &Worlds,
        plan: &Plan,
        memory: &Arc<GuestMemory>,
        uart: &Arc<Uart>,
        counts: &Arc<Counts>,
        disk: Option<Medium>,
    ) -> Result<Self, OutOfMemory> {
        let places = Arc::new(Places::try_new(plan.vcpus)?);
        let chipset = Chipset::try_new(plan, memory, &places)?;
        threads::preemption_point();
        let devices = Devices::new(&worlds.run, &chipset.controller, plan, disk);
        threads::preemption_point();
        Self::of(worlds, plan, uart, counts, places, chipset, Arc::new(devices))
    }

    /// One that goes on as `template` was, with devices of that origin, and what its serial port goes on as.
    pub(crate) fn try_resume(
        worlds: &Worlds,
        plan: &Plan,
        uart: &Arc<Uart>,
        counts: &Arc<Counts>,
        origin: Origin<'_>,
        template: &Template,
    ) -> Result<(Self, SerialPort), NotResumed> {
        let places = Arc::new(Places::try_new(plan.vcpus)?);
        let resumed = template.model.resume(plan, &places, origin)?;
        let Resumed { chipset, devices, uart: port, vcpus } = resumed;
        let mut run = Self::of(worlds, plan, uart, counts, places, chipset, devices)?;
        run.resumed = SpinLock::new(vcpus);
        run.identity = Identity {
            number: FORKS.fetch_add(1, Ordering::Relaxed) + 1,
            frozen: template.frozen(),
        };
        Ok((run, port))
    }

    fn of(
        worlds: &Worlds,
        plan: &Plan,
        uart: &Arc<Uart>,
        counts: &Arc<Counts>,
        places: Arc<Places>,
        chipset: Chipset,
        devices: Arc<Devices>,
    ) -> Result<Self, OutOfMemory> {
        let mut stopped = Vec::new();
        stopped.try_reserve_exact(plan.vcpus as usize).map_err(|_| OutOfMemory)?;
        stopped.resize_with(plan.vcpus as usize, || None);
        let power = || Power {
            word: AtomicU32::new(OFF),
            entry: AtomicU64::new(0),
            context: AtomicU64::new(0),
        };
        Ok(Self {
            world: Arc::clone(&worlds.run),
            memory_world: SpinLock::new(Arc::clone(&worlds.memory)),
            chipset,
            places,
            power: (0..plan.vcpus).map(|_| power()).collect(),
            uart: Arc::clone(uart),
            counts: Arc::clone(counts),
            devices,
            memory: plan.memory,
            identity: Identity::default(),
            resumed: SpinLock::new(Vec::new()),
            stopped: SpinLock::new(stopped),
            ending: Ending::default(),
            relay: Relay::new(),
            alive: AtomicU32::new(0),
        })
    }

    /// Its guest's memory takes its frames from `world` from now on.
    pub(super) fn set_memory_world(&self, world: &Arc<World>) {
        let before = core::mem::replace(&mut *self.memory_world.lock(), Arc::clone(world));
        drop(before);
    }

    /// As [`World::wait_for_frame`], for a frame of its guest's memory.
    pub(super) fn wait_for_frame(&self) -> bool {
        let world = self.memory_world.lock().clone();
        world.wait_for_frame()
    }

    /// Starts vCPU `vcpu`.
    pub(crate) fn turn_on(&self, vcpu: usize, entry: u64, context: u64) {
        let power = &self.power[vcpu];
        power.entry.store(entry, Ordering::Relaxed);
        power.context.store(context, Ordering::Relaxed);
        power.word.store(STARTS, Ordering::Release);
        self.world.wake(&power.word);
    }

    /// Ends it, unless it is ending: all vCPUs leave their guest for good.
    pub(crate) fn end(&self, end: End) {
        if self.mark(end) {
            self.tell();
        }
    }

    /// From now on it ends, unless it did before in a way that [does not give way](Ending::mark). Returns whether it is to
    /// be [told](Run::tell).
    pub(crate) fn mark(&self, end: End) -> bool {
        self.ending.mark(end)
    }

    /// From now on it ends so that it is frozen, unless it ends already. Returns whether it is to be [told](Run::tell), by a
    /// caller that is among its threads meanwhile, and [is gone](Run::gone) then: its threads do not begin anew before.
    pub(super) fn mark_frozen(&self) -> bool {
        self.alive.fetch_add(1, Ordering::Relaxed);
        let is_marked = self.mark(End::Frozen);
        if !is_marked {
            self.gone();
        }
        is_marked
    }

    /// It was to be frozen, and could not be. Its threads have ended. Returns whether it goes on, with others: not if it ends
    /// for another reason.
    pub(super) fn goes_on(&self) -> bool {
        for power in &self.power {
            let _ = power.word.compare_exchange(ENDS, OFF, Ordering::AcqRel, Ordering::Relaxed);
        }
        self.ending.take_back()
    }

    /// Has all vCPUs, and the thread of the devices, see that it ends.
    pub(crate) fn tell(&self) {
        for (vcpu, power) in self.power.iter().enumerate() {
            self.places.end(vcpu);
            // The vCPU that sleeps for it sees that the run ends. One that is about to start is kept as that.
            let _ = power.word.compare_exchange(OFF, ENDS, Ordering::AcqRel, Ordering::Relaxed);
            self.world.wake(&power.word);
            threads::interrupts::look();
        }
        self.devices.ring();
    }

    /// Where vCPU `vcpu`, which is off, begins, if it was turned on.
    pub(super) fn start_of(&self, vcpu: usize) -> Option<Start> {
        let power = &self.power[vcpu];
        (power.word.load(Ordering::Acquire) == STARTS).then(|| Start {
            entry: power.entry.load(Ordering::Relaxed),
            context: power.context.load(Ordering::Relaxed),
        })
    }

    /// It is over: frees what its vCPUs went on as, and what they have left.
    pub(super) fn forget_vcpus(&self) {
        let resumed = core::mem::take(&mut *self.resumed.lock());
        let stopped = core::mem::take(&mut *self.stopped.lock());
        drop((resumed, stopped));
    }

    /// How it ends, once it does.
    pub(crate) fn ending(&self) -> Option<End> {
        self.ending.now()
    }

    /// Whether it [ends for good](Ending::is_final).
    pub(crate) fn ends_for_good(&self) -> bool {
        self.ending.is_final()
    }

    /// What vCPU `vcpu` goes on as, if it is not off: taken once.
    pub(crate) fn take_resumed(&self, vcpu: usize) -> Option<Arc<Stopped>> {
        self.resumed.lock().get_mut(vcpu).and_then(Option::take).filter(|vcpu| vcpu.is_on)
    }

    /// The vCPUs that go on as others that were turned on and had not begun, and where each begins.
    pub(super) fn starts(&self) -> Vec<(usize, Start)> {
        let resumed = self.resumed.lock();
        let starts = resumed.iter().enumerate();
        starts.filter_map(|(vcpu, it)| Some((vcpu, it.as_ref()?.start?))).collect()
    }

    /// What is next for a thread of it that has seen its end: another run of the VM, of which the thread is one, or none.
    pub(super) fn next(&self) -> Option<Arc<Self>> {
        if self.ending() != Some(End::Back) {
            return None;
        }
        self.relay.waits();
        self.gone();
        self.relay.take(&self.world)
    }

    /// Passes its threads on to `next`, which then has them. None of them is alive.
    pub(super) fn pass_on(&self, next: &Arc<Self>) {
        // Added: another caller may be among them for a moment, to have it frozen.
        next.alive.fetch_add(self.relay.waiting(), Ordering::Relaxed);
        self.relay.pass(&self.world, Some(Arc::clone(next)));
    }

    /// Has its threads that wait for another run end, of which none is alive.
    pub(super) fn dismiss(&self) {
        self.alive.fetch_add(self.relay.waiting(), Ordering::Relaxed);
        self.relay.pass(&self.world, None);
        self.wait_for_threads();
    }

    /// Waits until no thread of it is alive.
    pub(super) fn wait_for_threads(&self) {
        loop {
            let alive = self.alive.load(Ordering::Acquire);
            if alive == 0 {
                break;
            }
            self.world.wait(&self.alive, alive);
        }
    }

    /// A thread of it has ended.
    pub(crate) fn gone(&self) {
        self.alive.fetch_sub(1, Ordering::AcqRel);
        self.world.wake(&self.alive);
    }
}
