//! What the models are made of: a machine whose frames and TLBs the checker looks into, and a VM on it.

mod arena;
#[path = "../granted/mod.rs"]
pub(crate) mod granted;
mod line;
mod no_tlb;
mod tiny;

use std::sync::Arc;
use std::time::Duration;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::frames::Frames;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::AtomicU64;
use mayfly_platform::tlb::{Scope, Tlb, TlbToken, Vmid};
use mayfly_platform::{Layer, Mmu, Model, Platform};
use mayfly_srcu::{Config as Domain, Srcu};
use mayfly_stage2::{
    Config, Format, Leaf, Permissions, Reclaimed, Reclaimer, Slice, Stage2, Vmids,
};

pub(crate) use arena::Arena;
#[allow(unused_imports, reason = "not every model has vCPUs")]
pub(crate) use line::Resides;
#[allow(unused_imports, reason = "some models have TLBs that remember")]
pub(crate) use no_tlb::NoTlb;
pub(crate) use tiny::Tiny;

/// A slice that is never over.
pub(crate) const WHOLE: Slice = Slice { entries: u32::MAX, time: Duration::from_secs(1) };

pub(crate) fn gfn(number: u64) -> Gfn {
    Gfn::new(number)
}

/// `count` guest frames from `first` on.
pub(crate) fn gfns(first: u64, count: u64) -> std::ops::Range<Gfn> {
    gfn(first)..gfn(first + count)
}

/// Memory at `pfn` to be read.
pub(crate) fn readable(pfn: u64) -> Leaf {
    Leaf::new(Pfn::new(pfn), Permissions::READ)
}

/// Memory at `pfn` to be written.
pub(crate) fn writable(pfn: u64) -> Leaf {
    Leaf::new(Pfn::new(pfn), Permissions::READ | Permissions::WRITE)
}

/// More than a model has; as many as there are VMIDs of three bits.
const CPUS: u32 = 7;

/// The checker's platform, an arena, and TLBs.
pub(crate) struct World<T> {
    platform: Model,
    pub(crate) arena: Arena,
    pub(crate) tlb: T,
}

/// One VM.
pub(crate) struct Vm<F: Format, T> {
    pub(crate) world: Arc<World<T>>,
    pub(crate) domain: Srcu,
    pub(crate) stage2: Stage2<F>,
    /// What `stage2` is built of.
    pub(crate) config: Config<F>,
}

impl<F: Format, T: Tlb + 'static> Vm<F, T> {
    /// A VM without roots, on a machine with `frames` frames.
    pub(crate) fn new(frames: usize, tlb: T) -> Self {
        let world = Arc::new(World { platform: Model::new(), arena: Arena::new(frames), tlb });
        let mmu: Arc<dyn Mmu> = Arc::clone(&world) as _;
        let domain =
            Srcu::try_new(Arc::clone(&world) as Arc<dyn Platform>, Domain::default()).unwrap();
        let reclaimer = Arc::new(Reclaimer::new(Arc::clone(&mmu), Reclaimer::<F>::BOUND));
        // SAFETY: the machine's only ones.
        let vmids = unsafe { Vmids::try_new(Arc::clone(&mmu), 3) }.unwrap();
        let config = Config { mmu, vmids, reclaimer, max_frames: usize::MAX };
        let stage2 = Stage2::try_new(config.clone(), &domain).unwrap();
        Self { world, domain, stage2, config }
    }

    /// The end of a model, when no thread is left and no root is held: everything is given back.
    pub(crate) fn end(&self) {
        self.stage2.retire();
        self.assert_reclaimed();
    }

    /// All that was retired can be reclaimed at once.
    pub(crate) fn assert_reclaimed(&self) {
        let reclaimer = &self.config.reclaimer;
        let last = loop {
            match reclaimer.run_slice(WHOLE) {
                Reclaimed::More => {}
                last => break last,
            }
        };
        assert_eq!(last, Reclaimed::All, "somebody is still waited for");
        self.stage2.wait_reclaimed();
        assert_eq!(self.world.arena.in_use(), 0, "frames are lost");
        assert_eq!(reclaimer.frames(), 0);
    }
}

// SAFETY: passes the calls that promise something on.
unsafe impl<T: Send + Sync> Layer for World<T> {
    type Below = Model;

    fn below(&self) -> &Model {
        &self.platform
    }

    fn cpus(&self) -> u32 {
        CPUS
    }
}

// SAFETY: a frame of the arena is given once, of words that stay.
unsafe impl<T: Send + Sync> Frames for World<T> {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        assert_eq!(order, 0);
        self.arena.allocate()
    }

    unsafe fn free(&self, first: Pfn, _order: u32) {
        self.arena.free(first);
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.arena.linear_map()
    }
}

// SAFETY: passes all on to the model's.
unsafe impl<T: Tlb> Tlb for World<T> {
    fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken {
        self.tlb.issue(vmid, scope)
    }

    fn complete(&self, token: TlbToken) {
        self.tlb.complete(token);
    }

    fn invalidate_all_vmids(&self) {
        self.tlb.invalidate_all_vmids();
    }
}
