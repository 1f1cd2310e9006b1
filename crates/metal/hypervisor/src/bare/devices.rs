//! The devices of a VM beside its console, for one run of it: disk, entropy, clock, and the thread that works for them.

use alloc::boxed::Box;
use alloc::sync::Arc;

use mayfly_devices::entropy::Generator;
use mayfly_devices::virtio::{Block, Entropy, Mmio};
use mayfly_vm::Device;
use mayfly_vm::iobus::IoRange;

use crate::bare::world::World;
use crate::bare::world::entropy;
use crate::bare::world::memory::GuestMemory;
use arch::{
    CLOCK, CLOCK_BYTES, Controller, DISK, DISK_INTERRUPT, ENTROPY, ENTROPY_INTERRUPT, VIRTIO_BYTES,
};
use bell::Bell;
use clock::Clock;
use disk::Frames;
use virtio::{Ram, Virtio};

pub(crate) mod arm64;
mod bell;
mod virtio;
mod words;

pub(crate) mod clock;
pub(crate) mod disk;
pub(crate) mod uart;

pub(crate) use arm64 as arch;

/// Fills a buffer with random bytes, by a generator that is seeded when the guest first asks for some.
type Fill = Box<dyn FnMut(&mut [u8]) + Send>;

/// The devices of a run.
pub(crate) struct Devices {
    bell: Arc<Bell>,
    disk: Option<Arc<Virtio<Block<Frames>, Frames>>>,
    entropy: Arc<Virtio<Entropy<Fill>, Fill>>,
    clock: Arc<Clock>,
}

impl Devices {
    /// Devices with their lines to `controller`, as after a reset.
    pub(crate) fn new(
        world: &Arc<World>,
        controller: &Arc<Controller>,
        disk: Option<Frames>,
    ) -> Self {
        let bell = Arc::<Bell>::default();
        let disk = disk.map(|disk| {
            let block = |disk| Mmio::new(Block::new(disk, "mayfly"));
            Arc::new(Virtio::new(world, disk, block, controller, DISK_INTERRUPT, &bell))
        });
        let mut generator = None;
        let fill: Fill = Box::new(move |bytes| {
            let generator = generator.get_or_insert_with(|| Generator::new(&entropy::seed::<32>()));
            generator.fill(bytes);
        });
        let random = |fill| Mmio::new(Entropy::new(fill));
        let entropy = Virtio::new(world, fill, random, controller, ENTROPY_INTERRUPT, &bell);
        let clock = Arc::new(Clock::new(controller, &bell));
        Self { bell, disk, entropy: Arc::new(entropy), clock }
    }

    /// Each of them, and where its registers are.
    pub(crate) fn all(&self) -> impl Iterator<Item = (IoRange, Arc<dyn Device>)> {
        let range = |start, len| IoRange { start, len };
        let disk = self.disk.clone().map(|disk| -> Arc<dyn Device> { disk });
        let entropy: Arc<dyn Device> = self.entropy.clone();
        let clock: Arc<dyn Device> = self.clock.clone();
        disk.map(|disk| (range(DISK, VIRTIO_BYTES), disk))
            .into_iter()
            .chain([(range(ENTROPY, VIRTIO_BYTES), entropy), (range(CLOCK, CLOCK_BYTES), clock)])
    }

    /// Makes their thread look.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// What their thread does: works for them until the run `is_ending`.
    ///
    /// # Errors
    ///
    /// [`NoMemory`], as soon as there is none for what a device writes.
    pub(crate) fn serve(
        &self,
        memory: &GuestMemory,
        is_ending: impl Fn() -> bool,
    ) -> Result<(), NoMemory> {
        let ram = Ram::new(memory);
        let is_over = || ram.is_short() || is_ending();
        loop {
            let seen = self.bell.rung();
            if is_ending() {
                return Ok(());
            }
            if let Some(disk) = &self.disk {
                disk.serve(&ram, is_over);
            }
            self.entropy.serve(&ram, is_over);
            if ram.is_short() {
                return Err(NoMemory);
            }
            let deadline = self.clock.advance();
            self.bell.wait(seen, deadline);
        }
    }
}

/// The guest needs more memory than there is.
pub(crate) struct NoMemory;
