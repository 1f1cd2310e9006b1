//! What all VMs share.

use alloc::sync::Arc;
use core::time::Duration;

use mayfly_hypervisor::needs::Needs;
use mayfly_hypervisor::plan::Plan;
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::srcu::Worker;
use mayfly_vm::stage2::{Reclaimer, Slice, Vmids};
use mayfly_vm::{Config, SlotZap, stage2};

use super::arch::{CACHES, vmid_bits};
use super::format::{Kinds, TableFormat};
use crate::bare::threads::{self, Name};
use crate::bare::world::memory::GuestMemory;
use crate::bare::world::{World, merger};

/// How much the core does before it looks for interrupts: at most 20,000 instructions.
const SLICE: Slice = Slice { entries: 32, time: Duration::from_micros(50) };
/// The same for entries of tables that are freed: each may be a table, whose frame is freed, too.
const FREED: Slice = Slice { entries: 16, ..SLICE };

/// What all VMs share, for one format of their tables.
pub(crate) struct Host<F: TableFormat> {
    pub(crate) world: Arc<World>,
    vmids: Vmids,
    reclaimer: Arc<Reclaimer<F>>,
    worker: Arc<Worker>,
}

impl<F: TableFormat> Host<F> {
    /// Makes it, and starts the threads that work for all VMs.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    pub(crate) fn start() -> Result<Arc<Self>, OutOfMemory> {
        let world = World::new();
        // SAFETY: made once, and nothing else gives out VMIDs.
        let vmids = unsafe { Vmids::try_new(world.clone(), vmid_bits()) };
        let vmids = vmids.map_err(|_| OutOfMemory)?;
        let bound = Reclaimer::<F>::BOUND;
        let reclaimer = Arc::new(Reclaimer::new(world.clone(), bound).with_slice(FREED));
        let worker = Arc::new(Worker::new(world.clone()));
        let (works, reclaims) = (Arc::clone(&worker), Arc::clone(&reclaimer));
        threads::spawn(Name::new("the SRCU worker"), move || works.run())?;
        threads::spawn(Name::new("the reclaimer"), move || {
            threads::work_in_background();
            reclaims.serve(FREED);
        })?;
        merger::start()?;
        Ok(Arc::new(Self { world, vmids, reclaimer, worker }))
    }

    /// What a VM needs at most, whose disk has so many bytes of memory.
    pub(crate) fn needs(plan: &Plan, disk: u64) -> Needs {
        Needs::of(plan, disk, F::ROOT_ORDER)
    }

    /// The configuration of a VM with that memory, and so many frames of tables at most. It takes them from `world`.
    pub(crate) fn config(
        &self,
        world: &Arc<World>,
        memory: &Arc<GuestMemory>,
        table_frames: usize,
    ) -> Config<Kinds<F>> {
        Config {
            srcu: mayfly_vm::srcu::Config {
                worker: Some(Arc::clone(&self.worker)),
                ..Default::default()
            },
            stage2: stage2::Config {
                mmu: world.clone(),
                vmids: self.vmids.clone(),
                reclaimer: self.reclaimer.clone(),
                max_frames: table_frames,
            },
            memory: Arc::clone(memory),
            cache: self.world.clone(),
            caches: CACHES,
            slot_zap: SlotZap::Range,
            slice: SLICE,
        }
    }
}
