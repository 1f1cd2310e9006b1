//! The devices of a VM beside its serial port, for one run of it: disk, network card, virtio console, balloon, entropy and
//! clock; and what the VM's thread does for them.

use alloc::boxed::Box;
use alloc::sync::Arc;

use mayfly_devices::entropy::Generator;
use mayfly_devices::virtio::net::{Net, Packet};
use mayfly_devices::virtio::{Balloon, Block, Console, Entropy, Mmio};
use mayfly_hypervisor::plan::Plan;
use mayfly_switch::Counts;
use mayfly_vm::iobus::IoRange;
use mayfly_vm::{Bus, Device, HostFault};

use crate::bare::threads::Bell;
use crate::bare::threads::console::say;
use crate::bare::world::World;
use crate::bare::world::entropy;
use crate::bare::world::memory::GuestMemory;
use arch::{
    BALLOON, BUS, CARD, CLOCK, CLOCK_BYTES, CONSOLE, Controller, DISK, ENTROPY, ENTROPY_INTERRUPT,
    Its, RealTimeClock, VIRTIO, VIRTIO_BYTES,
};
use balloon::GivenBack;
use clock::Clock;
use disk::{Disk, Medium};
use frames::Frames;
use hvc::Hvc;
use lines::Lines;
use network::{Card, Seat, UPLINK};
use uart::{Plug, Uart};
use virtio::{Ram, Virtio};

#[cfg(target_arch = "aarch64")]
pub(crate) mod arm64;
pub(crate) mod balloon;
mod shown;
mod turn;
mod virtio;

pub(crate) mod clock;
pub(crate) mod disk;
pub(crate) mod frames;
mod hvc;
mod lines;
pub(crate) mod network;
mod overlay;
pub(crate) mod partition;
pub(crate) mod uart;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

#[cfg(target_arch = "aarch64")]
pub(crate) use arm64 as arch;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86 as arch;

/// Fills a buffer with random bytes, by a generator that is seeded when the guest first asks for some. (`Sync`, since forks are
/// made by several threads at a time of one frozen VM, whose devices are asked for nothing.)
type Fill = Box<dyn FnMut(&mut [u8]) + Send + Sync>;

/// The devices of a run.
pub(crate) struct Devices {
    bell: Arc<Bell>,
    disk: Option<Disk>,
    entropy: Arc<Virtio<Entropy<Fill>, Fill>>,
    card: Option<Card>,
    hvc: Option<Arc<Hvc>>,
    given_back: Option<Arc<GivenBack>>,
    clock: Arc<Clock>,
    its: Option<Its>,
    lines: Arc<Lines>,
}

/// Devices that no vCPU and no thread has yet. Each has some KiB, and stays where it is.
pub(crate) struct Raw {
    pub(crate) entropy: Box<Mmio<Entropy<Fill>>>,
    pub(crate) disk: Option<Box<Mmio<Block<Frames>>>>,
    pub(crate) card: Option<Box<Mmio<Net>>>,
    pub(crate) console: Option<Box<Mmio<Console>>>,
    pub(crate) balloon: Option<Box<Mmio<Balloon>>>,
}

impl Raw {
    /// Those of a VM of `plan`, with that disk.
    pub(crate) fn new(plan: &Plan, disk: Option<Frames>) -> Self {
        let disk = disk.map(|frames| boxed(|| disk::make(frames)));
        let card = plan.card.network.is_some();
        let card = card.then(|| boxed(|| network::make(plan.card.mac(&plan.name))));
        let console = plan.hvc.then(|| boxed(|| hvc::make(())));
        let balloon = plan.balloon.then(|| boxed(|| balloon::make(())));
        Self { entropy: boxed(|| make_entropy(fill())), disk, card, console, balloon }
    }

    /// Bytes of heap that they have.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.entropy)
            + self.disk.as_deref().map_or(0, size_of_val)
            + self.card.as_deref().map_or(0, size_of_val)
            + self.console.as_deref().map_or(0, size_of_val)
            + self.balloon.as_deref().map_or(0, size_of_val)
    }

    /// Each of them, to be looked at.
    pub(crate) fn look(&self) -> Look<'_> {
        let Self { entropy, disk, card, console, balloon } = self;
        let (disk, card) = (disk.as_deref(), card.as_deref());
        Look { entropy, disk, card, console: console.as_deref(), balloon: balloon.as_deref() }
    }

    /// Each of them.
    pub(crate) fn parts(&mut self) -> Parts<'_> {
        let Self { entropy, disk, card, console, balloon } = self;
        let (disk, card, console, balloon) = (
            disk.as_deref_mut(),
            card.as_deref_mut(),
            console.as_deref_mut(),
            balloon.as_deref_mut(),
        );
        Parts { entropy, disk, card, console, balloon }
    }
}

/// What `make` makes, which has some KiB. Not inlined: they are on the stack while it is made, and one after the other.
#[inline(never)]
fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    Box::write(Box::new_uninit(), make())
}

/// The devices of a stopped VM that are virtio.
pub(crate) struct Parts<'a> {
    pub(crate) entropy: &'a mut Mmio<Entropy<Fill>>,
    pub(crate) disk: Option<&'a mut Mmio<Block<Frames>>>,
    pub(crate) card: Option<&'a mut Mmio<Net>>,
    pub(crate) console: Option<&'a mut Mmio<Console>>,
    pub(crate) balloon: Option<&'a mut Mmio<Balloon>>,
}

/// The same, to be looked at.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
    pub(crate) entropy: &'a Mmio<Entropy<Fill>>,
    pub(crate) disk: Option<&'a Mmio<Block<Frames>>>,
    pub(crate) card: Option<&'a Mmio<Net>>,
    pub(crate) console: Option<&'a Mmio<Console>>,
    pub(crate) balloon: Option<&'a Mmio<Balloon>>,
}

impl Parts<'_> {
    /// The same, to be looked at.
    pub(crate) fn look(&self) -> Look<'_> {
        let Self { entropy, disk, card, console, balloon } = self;
        let (disk, card) = (disk.as_deref(), card.as_deref());
        Look { entropy, disk, card, console: console.as_deref(), balloon: balloon.as_deref() }
    }
}

fn make_entropy(fill: Fill) -> Mmio<Entropy<Fill>> {
    Mmio::new(Entropy::new(fill))
}

fn fill() -> Fill {
    let mut generator = None;
    Box::new(move |bytes| {
        let generator = generator.get_or_insert_with(|| Generator::new(&entropy::seed::<32>()));
        generator.fill(bytes);
    })
}

impl Devices {
    /// Devices with their lines to `controller`, as after a reset.
    pub(crate) fn new(
        world: &Arc<World>,
        controller: &Arc<Controller>,
        plan: &Plan,
        disk: Option<Medium>,
    ) -> Self {
        let (bell, lines) = (Arc::<Bell>::default(), Arc::new(Lines::new(controller)));
        let disk = disk.map(|medium| Disk::new(world, medium, &lines, &bell));
        let entropy = Virtio::new(world, fill(), make_entropy, &lines, ENTROPY_INTERRUPT, &bell);
        let card = Card::try_new(&plan.card, &plan.name, world, &lines, &bell);
        let hvc = plan.hvc.then(|| Arc::new(Hvc::new(world, &lines, &bell)));
        let given_back =
            plan.balloon.then(|| Arc::new(GivenBack::new(world, plan.memory, &lines, &bell)));
        let clock = Arc::new(Clock::new(&lines, &bell));
        let its = Its::of(&lines);
        Self { bell, disk, entropy: Arc::new(entropy), card, hvc, given_back, clock, its, lines }
    }

    /// Each of them, and where its registers are, on which bus.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Bus, IoRange, Arc<dyn Device>)> {
        let range = |start, len| IoRange { start, len };
        let disk = self.disk.as_ref().map(Disk::registers);
        let card = self.card.as_ref().map(|card| -> Arc<dyn Device> { card.registers() });
        let hvc = self.hvc.as_ref().map(|hvc| -> Arc<dyn Device> { hvc.clone() });
        let balloon =
            self.given_back.as_ref().map(|balloon| -> Arc<dyn Device> { balloon.clone() });
        let entropy: Arc<dyn Device> = self.entropy.clone();
        let clock: Arc<dyn Device> = self.clock.clone();
        disk.map(|disk| (range(DISK, VIRTIO_BYTES), disk))
            .into_iter()
            .chain(card.map(|card| (range(CARD, VIRTIO_BYTES), card)))
            .chain(hvc.map(|hvc| (range(CONSOLE, VIRTIO_BYTES), hvc)))
            .chain(balloon.map(|balloon| (range(BALLOON, VIRTIO_BYTES), balloon)))
            .chain([(range(ENTROPY, VIRTIO_BYTES), entropy)])
            .map(|(range, device)| (Bus::Mmio, range, device))
            .chain([(BUS, range(CLOCK, CLOCK_BYTES), clock)])
    }

    /// Devices that go on as others were: these, and a clock. Their thread looks at all of them. Their card has that seat, if
    /// they are those of a fork of a service.
    pub(crate) fn resumed(
        world: &Arc<World>,
        controller: &Arc<Controller>,
        plan: &Plan,
        raw: Raw,
        clock: RealTimeClock,
        seat: Option<Seat>,
    ) -> Self {
        let (bell, lines) = (Arc::<Bell>::default(), Arc::new(Lines::new(controller)));
        let Raw { entropy, disk, card, console, balloon } = raw;
        let disk = disk.map(|disk| Disk::made(world, disk, &lines, &bell));
        let card = card.map(|card| Card::made(world, card, seat, &lines, &bell));
        let hvc = console.map(|console| Arc::new(Hvc::made(world, console, &lines, &bell)));
        let given_back = balloon
            .map(|balloon| Arc::new(GivenBack::made(world, balloon, plan.memory, &lines, &bell)));
        let entropy = Virtio::made(world, entropy, make_entropy, &lines, ENTROPY_INTERRUPT, &bell);
        let clock = Arc::new(Clock::resumed(clock, &lines, &bell));
        let its = Its::of(&lines);
        Self { bell, disk, entropy: Arc::new(entropy), card, hvc, given_back, clock, its, lines }
    }

    /// Has them go on as others were, which those that are virtio do already, and `clock` was theirs; with their lines to
    /// `controller`. Their thread waits, and looks at all of them when it goes on.
    pub(crate) fn go_back(&self, controller: &Arc<Controller>, clock: RealTimeClock) {
        self.lines.lead_to(controller);
        self.clock.go_on(clock);
        if let Some(card) = &self.card {
            card.goes_nowhere();
        }
        self.are_noticed();
    }

    /// Each of those that are virtio may have been notified.
    fn are_noticed(&self) {
        self.entropy.goes_on();
        if let Some(disk) = self.disk.as_ref().and_then(Disk::frames) {
            disk.goes_on();
        }
        if let Some(card) = &self.card {
            card.virtio().goes_on();
        }
        if let Some(hvc) = &self.hvc {
            hvc.virtio().goes_on();
        }
        if let Some(balloon) = &self.given_back {
            balloon.virtio().goes_on();
        }
    }

    /// Does something with those that are virtio. Their thread has ended, or waits.
    pub(crate) fn with<T>(&self, then: impl FnOnce(Parts<'_>) -> T) -> T {
        let disk = self.disk.as_ref().and_then(Disk::frames);
        self.entropy.with(|entropy| {
            with_one(disk, |disk| {
                let card = self.card.as_ref().map(Card::virtio);
                let hvc = self.hvc.as_deref().map(Hvc::virtio);
                let balloon = self.given_back.as_deref().map(GivenBack::virtio);
                with_one(card, |card| {
                    with_one(hvc, |console| {
                        with_one(balloon, |balloon| {
                            then(Parts { entropy, disk, card, console, balloon })
                        })
                    })
                })
            })
        })
    }

    /// The clock as it is.
    pub(crate) fn clock(&self) -> RealTimeClock {
        self.clock.state()
    }

    /// Has their thread, which is another one now, look at all of them: the last one may have left requests.
    pub(crate) fn go_on(&self) {
        self.are_noticed();
        self.ring();
    }

    /// Has the guest, which has not begun, find the registers of those that are virtio in `memory`, from `at` on, as they are
    /// from [`VIRTIO`] on.
    pub(crate) fn show(&self, memory: &Arc<GuestMemory>, at: u64) -> Result<(), HostFault> {
        let place = |device| at + (device - VIRTIO);
        self.entropy.show(memory, place(ENTROPY))?;
        if let Some(disk) = &self.disk {
            disk.show(memory, place(DISK))?;
        }
        if let Some(card) = &self.card {
            card.virtio().show(memory, place(CARD))?;
        }
        if let Some(hvc) = &self.hvc {
            hvc.virtio().show(memory, place(CONSOLE))?;
        }
        let balloon = self.given_back.as_ref();
        balloon.map_or(Ok(()), |balloon| balloon.virtio().show(memory, place(BALLOON)))
    }

    /// The guest reads them no more.
    pub(crate) fn hide(&self) {
        self.entropy.hide();
        if let Some(disk) = &self.disk {
            disk.hide();
        }
        if let Some(card) = &self.card {
            card.virtio().hide();
        }
        if let Some(hvc) = &self.hvc {
            hvc.virtio().hide();
        }
        if let Some(balloon) = &self.given_back {
            balloon.virtio().hide();
        }
    }

    /// What its guest gives memory back by, if it has that.
    pub(crate) fn given_back(&self) -> Option<&GivenBack> {
        self.given_back.as_deref()
    }

    /// What a console leads to that has them.
    pub(crate) fn plug(&self) -> Plug {
        Plug { lines: Arc::clone(&self.lines), hvc: self.hvc.clone() }
    }

    /// Makes their thread look.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// A vCPU has left work for the ITS. It waits until the thread of the devices has done some of it, a millisecond at
    /// most: then a guest that looks for the end of its commands mostly finds it.
    pub(crate) fn its_has_work(&self) {
        if let Some(its) = &self.its {
            its.wait_after(|| self.ring());
        }
    }

    /// What their thread does: works for them until the run `is_ending`, and then has them [leave](Devices::leave) or be
    /// [held](Devices::hold). What the virtio console prints comes to `terminal`.
    ///
    /// # Errors
    ///
    /// [`NoMemory`], as soon as there is none for what a device writes.
    pub(crate) fn serve(
        &self,
        memory: &Arc<GuestMemory>,
        terminal: &Uart,
        is_ending: impl Fn() -> bool,
    ) -> Result<(), NoMemory> {
        let name = terminal.name();
        if let Some(card) = &self.card {
            card.own_pages(memory);
            if let Err(why) = card.attach(memory) {
                say!("mayfly: {name} has no network: {why}");
            }
        }
        if self.card.as_ref().is_some_and(Card::leads_nowhere) {
            say!(
                "mayfly: {name}: the network {UPLINK} leads nowhere: the machine has no network card that can be used"
            );
        }
        self.serve_until(memory, terminal, is_ending)
    }

    /// Those that are somewhere else, too, leave there: the run of VM `name` is over, or frozen.
    pub(crate) fn leave(&self, name: &str) {
        if let Some(disk) = &self.disk {
            if !disk.end() {
                say!("mayfly: {name}: the machine's disk has not answered yet");
            }
            if let Some(done) = disk.done() {
                say!("{name}: partition: {done}");
            }
        }
        if let Some(counts) = self.card.as_ref().and_then(Card::detach) {
            say_counts(name, &counts);
        }
    }

    /// Nobody else writes to the memory of their guest for them, until their thread [serves](Devices::serve) them again. Those
    /// that are somewhere else, too, stay there.
    pub(crate) fn hold(&self) {
        if let Some(card) = &self.card {
            card.hold();
        }
    }

    /// Prints what has become of the frames of VM `name`.
    pub(crate) fn say_frames(&self, name: &str) {
        if let Some(counts) = self.card.as_ref().and_then(Card::counts) {
            say_counts(name, &counts);
        }
    }

    fn serve_until(
        &self,
        memory: &Arc<GuestMemory>,
        terminal: &Uart,
        is_ending: impl Fn() -> bool,
    ) -> Result<(), NoMemory> {
        let ram = Ram::new(memory);
        let is_over = || ram.is_short() || is_ending();
        // Of some KiB.
        let mut packet = Packet::new();
        loop {
            let seen = self.bell.rung();
            if is_ending() {
                return Ok(());
            }
            if let Some(disk) = &self.disk {
                disk.serve(&ram, is_over);
            }
            self.entropy.serve(&ram, is_over);
            if let Some(hvc) = &self.hvc {
                hvc.serve(&ram, terminal, is_over);
            }
            if let Some(balloon) = &self.given_back {
                balloon.serve(&ram, memory, is_over);
            }
            if self.its.as_ref().is_some_and(|its| its.serve(&ram)) {
                // Others come first, and whoever has to look.
                self.ring();
            }
            if let Some(card) = &self.card {
                card.serve(&mut packet, memory, is_over);
            }
            if ram.is_short() {
                return Err(NoMemory);
            }
            let told = self.card.as_ref().map_or(u64::MAX, Card::tell);
            let deadline = self.clock.advance().min(told);
            self.bell.wait(seen, deadline);
        }
    }
}

/// Does something with a device, if it is there.
fn with_one<D: mayfly_devices::virtio::Device, S, T>(
    device: Option<&Virtio<D, S>>,
    then: impl FnOnce(Option<&mut Mmio<D>>) -> T,
) -> T {
    match device {
        Some(device) => device.with(|device| then(Some(device))),
        None => then(None),
    }
}

fn say_counts(name: &str, counts: &Counts) {
    let Counts { sent, sent_bytes, received, received_bytes, lost, refused, limited, unknown } =
        counts;
    say!(
        "{name}: {sent} frames sent ({sent_bytes} bytes), {received} received ({received_bytes} bytes), {lost} lost for want of room; not sent: {refused} malformed or from another's address, {limited} beyond its rate, {unknown} to nobody"
    );
}

/// The guest needs more memory than there is.
pub(crate) struct NoMemory;
