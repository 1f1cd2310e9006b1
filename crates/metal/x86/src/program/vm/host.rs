//! What all VMs share.

use alloc::sync::Arc;

use mayfly_vm::memslot::Hva;
use mayfly_vm::stage2::{Npt, Reclaimed, Reclaimer, Slice, Vmids, VmidsError};
use mayfly_vm::{Caches, Config, Device, SlotZap, srcu, stage2};
use mayfly_x86::svm::features::Features;

use crate::program::world::World;
use crate::program::world::memory::GuestMemory;

/// What VMs are made of.
pub(super) struct Kinds;

impl mayfly_vm::World for Kinds {
    type Device = Arc<dyn Device>;
    type Backing = Hva;
    type Format = Npt;
    type Memory = GuestMemory;
}

/// What all VMs share.
pub(super) struct Host {
    world: Arc<World>,
    vmids: Vmids,
    reclaimer: Arc<Reclaimer<Npt>>,
}

impl Host {
    /// Makes it. Once: it has all VMIDs of the machine.
    pub(super) fn try_new(features: Features) -> Result<Self, VmidsError> {
        let world = World::new();
        // As many whole bits as there are ASIDs, which are VMIDs here; 16 at most.
        let bits = features.asids().ilog2().min(16);
        // SAFETY: made once, and nothing else gives out ASIDs.
        let vmids = unsafe { Vmids::try_new(world.clone(), bits) }?;
        let reclaimer = Arc::new(Reclaimer::new(world.clone(), Reclaimer::<Npt>::BOUND));
        Ok(Self { world, vmids, reclaimer })
    }

    /// How a VM with that memory is built.
    pub(super) fn config(&self, memory: &Arc<GuestMemory>) -> Config<Kinds> {
        Config {
            srcu: srcu::Config::default(),
            stage2: stage2::Config {
                mmu: self.world.clone(),
                vmids: self.vmids.clone(),
                reclaimer: self.reclaimer.clone(),
                max_frames: usize::MAX,
            },
            memory: Arc::clone(memory),
            cache: self.world.clone(),
            caches: Caches::Coherent,
            slot_zap: SlotZap::Range,
            slice: Slice::default(),
        }
    }

    /// Frees the tables of VMs that were destroyed.
    ///
    /// # Panics
    ///
    /// If one is waited for: there is no vCPU any more that could have it.
    pub(super) fn reclaim(&self) {
        loop {
            match self.reclaimer.run_slice(Slice::default()) {
                Reclaimed::All => return,
                Reclaimed::More => {}
                Reclaimed::Waits => panic!("tables of a VM that has ended are still in use"),
            }
        }
    }
}
