//! A world for stage-2 tables: frames that are counted, TLBs that a test looks into, and a book of what was charged.

#[path = "../granted/mod.rs"]
pub(crate) mod granted;
mod tlb;

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::frames::Frames;
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::observe::Observer;
use mayfly_platform::sync::AtomicU64;
use mayfly_platform::testing::Arena;
use mayfly_platform::tlb::{Scope, Tlb, TlbToken, Vmid};
use mayfly_platform::{Host, Layer, Op};
use mayfly_srcu::{Config as SrcuConfig, Srcu};
use mayfly_stage2::{
    Config, Format, Reclaimer, Role, RootRef, Slice, Stage2, Tables, VcpuMark, Vmids,
};

use tlb::Tlbs;

thread_local! {
    static OWN_FROZEN_WAITS: Cell<usize> = const { Cell::new(0) };
}

/// How often this thread found an entry frozen.
pub(crate) fn own_frozen_waits() -> usize {
    OWN_FROZEN_WAITS.get()
}

/// The platform: a Linux process with frames and TLBs.
pub(crate) struct Platformed {
    host: Host,
    pub(crate) arena: Arena,
    pub(crate) tlbs: Tlbs,
    frozen_waits: AtomicUsize,
    slices: AtomicUsize,
    entries: AtomicUsize,
    tables_freed: AtomicUsize,
    tables_kept: AtomicUsize,
    max_by_address: AtomicU64,
    pub(crate) observer: OnceLock<Box<dyn Observer>>,
    /// What is added to the numbers of frames that are given out.
    lifted: AtomicU64,
}

impl Platformed {
    pub(crate) fn new(frames: usize) -> Arc<Self> {
        Arc::new(Self {
            host: Host::new(),
            arena: Arena::new(frames),
            tlbs: Tlbs::default(),
            frozen_waits: AtomicUsize::new(0),
            slices: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
            tables_freed: AtomicUsize::new(0),
            tables_kept: AtomicUsize::new(0),
            max_by_address: AtomicU64::new(512),
            observer: OnceLock::new(),
            lifted: AtomicU64::new(0),
        })
    }

    /// Says how many invalidations by address are worth while.
    pub(crate) fn set_max_by_address(&self, max: u64) {
        self.max_by_address.store(max, Ordering::Relaxed);
    }

    /// Gives out frames under numbers that are so much greater than where they are. Whoever gets one must not touch it.
    pub(crate) fn lift(&self, by: u64) {
        self.lifted.store(by, Ordering::SeqCst);
    }

    /// How often a thread found an entry frozen.
    pub(crate) fn frozen_waits(&self) -> usize {
        self.frozen_waits.load(Ordering::SeqCst)
    }

    /// How much was charged of `op`, whatever amount it names here.
    pub(crate) fn charged(&self, op: Op) -> usize {
        match op {
            Op::EntriesWritten(_) => &self.entries,
            Op::TablesFreed(_) => &self.tables_freed,
            Op::TablesKept(_) => &self.tables_kept,
            _ => panic!("{op:?} is not counted"),
        }
        .load(Ordering::Relaxed)
    }

    /// Slices of work on ranges.
    pub(crate) fn slices(&self) -> usize {
        self.slices.load(Ordering::Relaxed)
    }
}

// SAFETY: passes the calls that promise something on to the host.
unsafe impl Layer for Platformed {
    type Below = Host;

    fn below(&self) -> &Host {
        &self.host
    }

    fn cpus(&self) -> u32 {
        CPUS
    }

    fn observer(&self) -> Option<&dyn Observer> {
        self.observer.get().map(|observer| &**observer)
    }

    fn charge(&self, op: Op) {
        match op {
            Op::FrozenWait => {
                OWN_FROZEN_WAITS.set(own_frozen_waits() + 1);
                self.frozen_waits.fetch_add(1, Ordering::SeqCst)
            }
            Op::SliceBegin => self.slices.fetch_add(1, Ordering::Relaxed),
            Op::EntriesWritten(count) => self.entries.fetch_add(count as usize, Ordering::Relaxed),
            Op::TablesFreed(count) => {
                self.tables_freed.fetch_add(count as usize, Ordering::Relaxed)
            }
            Op::TablesKept(count) => self.tables_kept.fetch_add(count as usize, Ordering::Relaxed),
            _ => 0,
        };
    }
}

// SAFETY: a frame of the arena is one's at a time, of words that stay. One that is lifted is nowhere, and no entry can
// name it.
unsafe impl Frames for Platformed {
    fn allocate(&self, order: u32) -> Result<Pfn, OutOfMemory> {
        let first = self.arena.allocate(order)?;
        Ok(Pfn::new(first.get() + self.lifted.load(Ordering::SeqCst)))
    }

    unsafe fn free(&self, first: Pfn, order: u32) {
        let first = Pfn::new(first.get() - self.lifted.load(Ordering::SeqCst));
        // SAFETY: as the caller promises.
        unsafe { self.arena.free(first, order) };
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.arena.linear_map()
    }
}

// SAFETY: nobody walks the tables but tests, inside sections.
unsafe impl Tlb for Platformed {
    fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken {
        self.tlbs.issue(vmid, scope)
    }

    fn max_by_address(&self) -> u64 {
        self.max_by_address.load(Ordering::Relaxed)
    }

    fn complete(&self, token: TlbToken) {
        self.tlbs.complete(token);
    }

    fn invalidate_all_vmids(&self) {
        self.tlbs.forget_all();
    }
}

/// A machine for VMs of one format, and one VM on it.
pub(crate) struct World<F: Format> {
    pub(crate) platform: Arc<Platformed>,
    pub(crate) srcu: Srcu,
    pub(crate) vmids: Vmids,
    pub(crate) reclaimer: Arc<Reclaimer<F>>,
    pub(crate) stage2: Stage2<F>,
    /// How many have a vCPU.
    cpus: AtomicU32,
}

/// More than a test has vCPUs.
const CPUS: u32 = 255;

impl<F: Format> World<F> {
    /// With so many frames, and a reclaimer that nobody has to help.
    pub(crate) fn new(frames: usize) -> Self {
        Self::bounded(frames, Reclaimer::<F>::BOUND)
    }

    /// As `new`; `bound` is the reclaimer's.
    pub(crate) fn bounded(frames: usize, bound: usize) -> Self {
        Self::on(Platformed::new(frames), bound)
    }

    /// As `bounded`, on `platform`.
    pub(crate) fn on(platform: Arc<Platformed>, bound: usize) -> Self {
        let reclaimer = Reclaimer::new(platform.clone(), bound);
        Self::with(platform, reclaimer)
    }

    /// As `new`; who destroys a VM frees so many tables himself.
    pub(crate) fn freeing_at_once(frames: usize, at_once: usize) -> Self {
        let platform = Platformed::new(frames);
        let reclaimer = Reclaimer::new(platform.clone(), Reclaimer::<F>::BOUND);
        Self::with(platform, reclaimer.freeing_at_once(at_once))
    }

    fn with(platform: Arc<Platformed>, reclaimer: Reclaimer<F>) -> Self {
        // SAFETY: the machine's only ones.
        let vmids = unsafe { Vmids::try_new(platform.clone(), 8) }.unwrap();
        let reclaimer = Arc::new(reclaimer);
        let (stage2, srcu) = vm(&platform, &vmids, &reclaimer);
        Self { platform, srcu, vmids, reclaimer, stage2, cpus: AtomicU32::new(0) }
    }

    /// Another VM on the same machine.
    pub(crate) fn another_vm(&self) -> (Stage2<F>, Srcu) {
        vm(&self.platform, &self.vmids, &self.reclaimer)
    }

    /// Zaps as a host does whose change is over at once.
    pub(crate) fn zap(&self, gfns: Range<Gfn>, tables: Tables, slice: Slice) {
        let announced = self.stage2.begin_invalidation(&gfns);
        self.stage2.zap(&announced, gfns, tables, slice);
    }

    /// Frames that are in use.
    pub(crate) fn live(&self) -> usize {
        self.platform.arena.live()
    }

    /// A vCPU in the guest, on the root of role `number`.
    pub(crate) fn vcpu(&self, number: u8) -> Vcpu<F> {
        let root = self.root(number);
        let (mark, vmid) = (self.vmids.vcpu(), Vmid(0));
        let cpu = self.cpus.fetch_add(1, Ordering::Relaxed);
        let mut vcpu = Vcpu { root, cpu, mark, vmid };
        vcpu.enter();
        vcpu
    }

    pub(crate) fn root(&self, number: u8) -> RootRef<F> {
        self.stage2.root(role(number), &self.srcu.read_lock()).unwrap()
    }

    /// Destroys the VM, whose vCPUs are gone, and asserts that all its frames come back.
    pub(crate) fn destroy(self) {
        self.stage2.retire();
        while self.reclaimer.run_slice(mayfly_stage2::Slice::default())
            != mayfly_stage2::Reclaimed::All
        {}
        self.stage2.wait_reclaimed();
        assert_eq!(self.stage2.frames(), 0, "tables are left");
        assert_eq!(self.live(), 0, "frames are left");
    }
}

fn vm<F: Format>(
    platform: &Arc<Platformed>,
    vmids: &Vmids,
    reclaimer: &Arc<Reclaimer<F>>,
) -> (Stage2<F>, Srcu) {
    let srcu = Srcu::try_new(platform.clone(), SrcuConfig::default()).unwrap();
    let config = Config {
        mmu: platform.clone(),
        vmids: vmids.clone(),
        reclaimer: Arc::clone(reclaimer),
        max_frames: usize::MAX,
    };
    (Stage2::try_new(config, &srcu).unwrap(), srcu)
}

pub(crate) fn role(number: u8) -> Role {
    Role::new(number).unwrap()
}

/// A vCPU, as far as a root sees it: a reference, and a VMID that its CPU names it under.
pub(crate) struct Vcpu<F: Format> {
    pub(crate) root: RootRef<F>,
    /// Its own.
    cpu: u32,
    mark: VcpuMark,
    pub(crate) vmid: Vmid,
}

impl<F: Format> Vcpu<F> {
    /// Leaves the guest, and enters it again on `root`.
    pub(crate) fn load(&mut self, root: RootRef<F>) {
        self.root = root;
        self.enter();
    }

    fn enter(&mut self) {
        // SAFETY: each vCPU has a CPU of its own.
        self.vmid = unsafe { self.root.tag().activate(self.cpu, self.mark) }.vmid;
    }
}
