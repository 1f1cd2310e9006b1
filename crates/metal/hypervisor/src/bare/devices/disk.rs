//! The disk of a VM, for one run of it: in frames, or a partition of the machine's disk.

use alloc::boxed::Box;
use alloc::sync::Arc;

use mayfly_devices::virtio::{Block, Mmio};
use mayfly_vm::{Device, HostFault};

use super::arch::DISK_INTERRUPT;
use super::frames::Frames;
use super::lines::Lines;
use super::partition::Partition;
use super::virtio::{Ram, Virtio};
use crate::bare::own::tenant::{Done, Tenant};
use crate::bare::threads::Bell;
use crate::bare::world::World;
use crate::bare::world::memory::GuestMemory;

/// What a disk keeps its bytes in.
pub(crate) enum Medium {
    /// Frames of the VM's.
    Frames(Frames),
    /// A partition, which is the VM's, and the memory that lies over it, if it is not written itself.
    Partition(Arc<Tenant>, Option<Arc<GuestMemory>>),
}

impl Medium {
    /// The frames, if it is that.
    pub(crate) fn frames(self) -> Option<Frames> {
        match self {
            Self::Frames(frames) => Some(frames),
            Self::Partition(..) => None,
        }
    }
}

/// The disk of a VM.
pub(crate) enum Disk {
    Frames(Arc<Virtio<Block<Frames>, Frames>>),
    Partition(Box<Partition>),
}

/// The device of a disk in frames.
pub(super) fn make(frames: Frames) -> Mmio<Block<Frames>> {
    Mmio::new(Block::new(frames, "mayfly"))
}

impl Disk {
    /// The disk as after a reset.
    pub(crate) fn new(
        world: &Arc<World>,
        medium: Medium,
        lines: &Arc<Lines>,
        bell: &Arc<Bell>,
    ) -> Self {
        match medium {
            Medium::Frames(frames) => {
                let virtio = Virtio::new(world, frames, make, lines, DISK_INTERRUPT, bell);
                Self::Frames(Arc::new(virtio))
            }
            Medium::Partition(tenant, over) => {
                let partition = Partition::new(world, tenant, over, lines, DISK_INTERRUPT, bell);
                Self::Partition(Box::new(partition))
            }
        }
    }

    /// A disk in frames that goes on as another one was.
    pub(super) fn made(
        world: &Arc<World>,
        device: Box<Mmio<Block<Frames>>>,
        lines: &Arc<Lines>,
        bell: &Arc<Bell>,
    ) -> Self {
        Self::Frames(Arc::new(Virtio::made(world, device, make, lines, DISK_INTERRUPT, bell)))
    }

    /// The device, if it is in frames.
    pub(super) fn frames(&self) -> Option<&Virtio<Block<Frames>, Frames>> {
        match self {
            Self::Frames(virtio) => Some(virtio),
            Self::Partition(_) => None,
        }
    }

    /// Has its guest find its registers in memory.
    pub(super) fn show(&self, memory: &Arc<GuestMemory>, at: u64) -> Result<(), HostFault> {
        match self {
            Self::Frames(virtio) => virtio.show(memory, at),
            Self::Partition(partition) => partition.virtio().show(memory, at),
        }
    }

    /// Its guest reads its registers no more.
    pub(super) fn hide(&self) {
        match self {
            Self::Frames(virtio) => virtio.hide(),
            Self::Partition(partition) => partition.virtio().hide(),
        }
    }

    /// Its registers.
    pub(crate) fn registers(&self) -> Arc<dyn Device> {
        match self {
            Self::Frames(virtio) => virtio.clone(),
            Self::Partition(partition) => partition.registers(),
        }
    }

    /// Serves what its driver asks for, as far as that can be done now, or until `is_over`.
    #[inline(never)]
    pub(crate) fn serve(&self, ram: &Ram<'_>, is_over: impl Fn() -> bool) {
        match self {
            Self::Frames(virtio) => virtio.serve(ram, is_over),
            Self::Partition(partition) => partition.serve(ram, is_over),
        }
    }

    /// What became of its requests to the machine's disk.
    pub(crate) fn done(&self) -> Option<&Done> {
        match self {
            Self::Frames(_) => None,
            Self::Partition(partition) => Some(partition.done()),
        }
    }

    /// The run is over. Returns whether nothing of it is under way any more.
    pub(crate) fn end(&self) -> bool {
        match self {
            Self::Frames(_) => true,
            Self::Partition(partition) => partition.end(),
        }
    }
}
