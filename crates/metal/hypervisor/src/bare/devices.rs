//! What a VM has beside its console, for one life: disk, entropy, clock, and the thread that works for them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_devices::entropy::Generator;
use mayfly_devices::virtio::{Block, Entropy};
use mayfly_hypervisor::layout::{
    CLOCK, CLOCK_BYTES, DISK, DISK_INTERRUPT, ENTROPY, ENTROPY_INTERRUPT, VIRTIO_BYTES,
};
use mayfly_vm::Device;
use mayfly_vm::iobus::IoRange;

use super::clock::Clock;
use super::disk::Frames;
use super::life::{End, Life};
use super::memory::GuestMemory;
use super::seat::Gic;
use super::virtio::{Ram, Virtio};
use super::world::World;
use super::{entropy, threads};

/// Rings when there is something for the thread of the devices to look at.
#[derive(Default)]
pub(super) struct Bell(AtomicU32);

impl Bell {
    pub(super) fn ring(&self) {
        self.0.fetch_add(1, Ordering::Release);
        threads::wake(&self.0);
    }
}

/// Fills a buffer with what nobody can guess.
type Fill = Box<dyn FnMut(&mut [u8]) + Send>;

/// The devices of a life.
pub(super) struct Devices {
    bell: Arc<Bell>,
    disk: Option<Arc<Virtio<Block<Frames>>>>,
    entropy: Arc<Virtio<Entropy<Fill>>>,
    clock: Arc<Clock>,
}

impl Devices {
    /// Devices with their lines to `gic`, as after a reset.
    pub(super) fn new(world: &Arc<World>, gic: &Arc<Gic>, disk: Option<Frames>) -> Self {
        let bell = Arc::<Bell>::default();
        let disk = disk.map(|disk| {
            let block = Block::new(disk, "mayfly");
            Arc::new(Virtio::new(world, block, gic, DISK_INTERRUPT, &bell))
        });
        let mut generator = Generator::new(&entropy::seed::<32>());
        let fill: Fill = Box::new(move |bytes| generator.fill(bytes));
        let entropy = Virtio::new(world, Entropy::new(fill), gic, ENTROPY_INTERRUPT, &bell);
        let clock = Arc::new(Clock::new(gic, &bell));
        Self { bell, disk, entropy: Arc::new(entropy), clock }
    }

    /// Each of them, and where its registers are.
    pub(super) fn all(&self) -> impl Iterator<Item = (IoRange, Arc<dyn Device>)> {
        let range = |start, len| IoRange { start, len };
        let disk = self.disk.clone().map(|disk| -> Arc<dyn Device> { disk });
        let entropy: Arc<dyn Device> = self.entropy.clone();
        let clock: Arc<dyn Device> = self.clock.clone();
        disk.map(|disk| (range(DISK, VIRTIO_BYTES), disk))
            .into_iter()
            .chain([(range(ENTROPY, VIRTIO_BYTES), entropy), (range(CLOCK, CLOCK_BYTES), clock)])
    }

    /// Has their thread look.
    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    /// What their thread does: works for them until the life ends.
    pub(super) fn serve(&self, life: &Life, memory: &GuestMemory) {
        let ram = Ram::new(memory);
        let is_over = || ram.is_short() || life.ending().is_some();
        loop {
            let seen = self.bell.0.load(Ordering::Acquire);
            if life.ending().is_some() {
                return;
            }
            if let Some(disk) = &self.disk {
                disk.serve(&ram, is_over);
            }
            self.entropy.serve(&ram, is_over);
            if ram.is_short() {
                return life.end(End::OutOfMemory);
            }
            let deadline = self.clock.advance();
            threads::wait(&self.bell.0, seen, deadline);
        }
    }
}
