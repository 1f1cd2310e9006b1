//! The VM: slots, roots, vCPUs.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use mayfly_machine::{HostSpace, Machine};
use mayfly_memslot::Hva;
use mayfly_platform::address::{Gfn, PAGE_SIZE, Pfn};
use mayfly_platform::frames::WORDS;
use mayfly_platform::sync::{AtomicU64, Ordering};
use mayfly_platform::tlb::{Scope, Tlb};
use mayfly_platform::{Op, Platform};
use mayfly_stage2::{Ept, Level};
use mayfly_vm::{Base, SlotZap};

use super::kick::{Kick, RELOAD, STOP};
use super::lock::{FairLock, Waiting};
use super::roots::{Root, Roots};
use super::tables::Tables;
use super::zap::Pieces;
use crate::slot_delete::design::{Design, Left, Slot};
use crate::slot_delete::guest::{Came, Guest};
use crate::slot_delete::watch::{Log, Watch};
use crate::start::{Mapped, Start};
use crate::work::Threads;

/// How vCPUs let go of roots and find others, and how invalid roots are zapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    /// Under the lock for write, and by 1 GiB: v6.8.
    Write,
    /// Under the lock for read, and by 4 KiB: v6.9.
    Read,
}

impl Locking {
    /// The granularities by which an invalid root is zapped, one after the other.
    fn passes(self) -> &'static [Level] {
        match self {
            Self::Write => &[Level::GIB1, Level::GIB512],
            Self::Read => &[Level::PAGE, Level::MIB2, Level::GIB1, Level::GIB512],
        }
    }
}

/// A VM as KVM has it.
pub(crate) struct TdpMmu {
    watch: Arc<Watch>,
    locking: Locking,
    slot_zap: SlotZap,
    space: Arc<HostSpace>,
    tables: Tables,
    roots: Roots,
    mmu_lock: FairLock,
    /// Held by who makes a root under `mmu_lock` for read.
    pages_lock: FairLock,
    /// Raised under `mmu_lock` for write when slots have changed (`mmu_invalidate_seq`).
    sequence: AtomicU64,
    slots: RwLock<Arc<[Memslot]>>,
    vcpus: Mutex<Arc<[Arc<Kick>]>>,
    /// Held by who changes slots.
    slots_lock: Mutex<()>,
}

#[derive(Clone)]
struct Memslot {
    id: u16,
    base: Gfn,
    pages: u64,
    hva: Hva,
}

/// A vCPU.
pub(crate) struct TdpVcpu {
    kick: Arc<Kick>,
}

/// What became of a fault.
enum Handled {
    /// The access can be made again.
    Retry,
    /// There is no memory.
    NotMemory,
}

impl TdpMmu {
    /// A VM whose roots are invalidated `deletions` times at most, before it ends.
    pub(crate) fn new(
        machine: &Machine,
        watch: &Arc<Watch>,
        (locking, waiting): (Locking, Waiting),
        slot_zap: SlotZap,
        deletions: u32,
    ) -> Self {
        let lock = || FairLock::new(Arc::clone(watch) as Arc<dyn Platform>, waiting);
        Self {
            watch: Arc::clone(watch),
            locking,
            slot_zap,
            space: Arc::clone(machine.space()),
            tables: Tables::new(Arc::clone(watch)),
            roots: Roots::with_room_for(deletions as usize + 1),
            mmu_lock: lock(),
            pages_lock: lock(),
            sequence: AtomicU64::new(0),
            slots: RwLock::new(Arc::new([])),
            vcpus: Mutex::new(Arc::new([])),
            slots_lock: Mutex::new(()),
        }
    }

    /// `kvm_mmu_load`: finds the root, or makes it.
    fn load_root(&self) -> anyhow::Result<&Root> {
        match self.locking {
            Locking::Write => {
                let _held = self.mmu_lock.write();
                self.find_or_make_root()
            }
            Locking::Read => {
                let _held = self.mmu_lock.read();
                if let Some(root) = self.roots.find() {
                    return Ok(root);
                }
                let _pages = self.pages_lock.write();
                self.find_or_make_root()
            }
        }
    }

    fn find_or_make_root(&self) -> anyhow::Result<&Root> {
        match self.roots.find() {
            Some(root) => Ok(root),
            None => self.roots.add(self.tables.allocate()?),
        }
    }

    /// `kvm_mmu_free_roots`.
    fn unload_root(&self, root: &Root) {
        let _held = match self.locking {
            Locking::Write => self.mmu_lock.write(),
            Locking::Read => self.mmu_lock.read(),
        };
        self.put_root(root);
    }

    /// Gives a reference up, under the lock, and frees the root with the last. Its tables are gone by then.
    fn put_root(&self, root: &Root) {
        if root.put() {
            self.tables.free(root.top);
        }
    }

    /// `direct_page_fault`: maps the page that is missing.
    fn handle_fault(&self, root: &Root, gfn: Gfn) -> anyhow::Result<Handled> {
        let seen = self.sequence.load(Ordering::Acquire);
        let Some(hva) = self.hva(gfn) else { return Ok(Handled::NotMemory) };
        let host = self.space.resolve(hva, true)?;
        let _held = self.mmu_lock.read();
        // `is_page_fault_stale`
        if !root.is_invalid() && self.sequence.load(Ordering::Acquire) == seen {
            self.tables.map(root.top, gfn, host.pfn)?;
        }
        Ok(Handled::Retry)
    }

    /// Where the host has the memory of `gfn`.
    fn hva(&self, gfn: Gfn) -> Option<Hva> {
        let slots = Arc::clone(&self.slots.read().unwrap_or_else(PoisonError::into_inner));
        slots.iter().find_map(|slot| slot.hva(gfn))
    }

    fn vcpus(&self) -> Arc<[Arc<Kick>]> {
        Arc::clone(&self.vcpus.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn publish(&self, change: impl FnOnce(&mut Vec<Memslot>)) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = slots.to_vec();
        change(&mut changed);
        *slots = changed.into();
    }

    /// `kvm_mmu_zap_all_fast`.
    fn zap_all_roots(&self) -> anyhow::Result<()> {
        let invalid = {
            let _held = self.mmu_lock.write();
            self.sequence.fetch_add(1, Ordering::Release);
            let invalid: Vec<&Root> = self.roots.valid().collect();
            for root in &invalid {
                root.invalidate();
            }
            self.vcpus().iter().for_each(|kick| kick.ask(RELOAD));
            invalid
        };
        self.vcpus().iter().for_each(|kick| kick.wait_outside(RELOAD, &*self.watch));
        // `kvm_tdp_mmu_zap_invalidated_roots`
        let mut held = self.mmu_lock.read();
        for root in invalid {
            let mut pieces = Pieces::begin(&mut held, &*self.watch);
            for &level in self.locking.passes() {
                self.tables.zap_root(root.top, level, &mut pieces)?;
            }
            drop(pieces);
            self.put_root(root);
        }
        Ok(())
    }

    /// `kvm_mmu_zap_memslot_leafs`.
    fn zap_range(&self, slot: &Slot) -> anyhow::Result<()> {
        let mut held = self.mmu_lock.write();
        self.sequence.fetch_add(1, Ordering::Release);
        for root in self.roots.valid() {
            let flush = || {
                self.watch.charge(Op::TlbInvalidation);
                self.watch.complete(self.watch.issue(root.vmid, Scope::All));
            };
            let mut pieces = Pieces::begin(&mut held, &*self.watch);
            self.tables.zap_leaves(root.top, &slot.gfns(), &mut pieces, &flush)?;
            flush();
        }
        Ok(())
    }
}

impl Memslot {
    fn hva(&self, gfn: Gfn) -> Option<Hva> {
        let page = gfn.get().checked_sub(self.base.get()).filter(|&page| page < self.pages)?;
        Some(Hva::new(self.hva.get() + page * PAGE_SIZE))
    }
}

impl Design for TdpMmu {
    type Vcpu = TdpVcpu;

    fn create_vcpu(&self) -> anyhow::Result<TdpVcpu> {
        let kick = Arc::new(Kick::default());
        let mut vcpus = self.vcpus.lock().unwrap_or_else(PoisonError::into_inner);
        *vcpus = vcpus.iter().chain([&kick]).cloned().collect();
        Ok(TdpVcpu { kick })
    }

    fn run(&self, vcpu: &mut TdpVcpu, guest: &mut Guest) -> anyhow::Result<()> {
        let (kick, platform) = (&vcpu.kick, &*self.watch);
        let mut root = self.load_root()?;
        let mut is_loading = false;
        while !kick.take(STOP) || guest.park() {
            if kick.take(RELOAD) {
                if !is_loading {
                    platform.charge(Op::RootLoadBegin);
                    is_loading = true;
                }
                self.unload_root(root);
                root = self.load_root()?;
            }
            if !kick.enter(platform) {
                continue;
            }
            if is_loading {
                platform.charge(Op::RootLoadEnd);
                is_loading = false;
            }
            let base = Base { top: root.top, vmid: root.vmid, flush: false };
            let left = guest.enter(base, || kick.any());
            kick.leave(platform);
            match left {
                Came::Asked if kick.any() => {}
                Came::Asked => platform.relax(),
                Came::Fault(access) => {
                    if let Handled::NotMemory = self.handle_fault(root, access.gpa.gfn())? {
                        guest.skip();
                    }
                }
            }
        }
        self.unload_root(root);
        Ok(())
    }

    fn kick(&self, vcpu: u32) {
        // Where a run ends before all are created, nobody is there to be asked.
        if let Some(vcpu) = self.vcpus().get(vcpu as usize) {
            vcpu.ask(STOP);
        }
    }

    fn create_slot(&self, slot: &Slot) -> anyhow::Result<()> {
        let _changes = self.slots_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let (id, base, pages, hva) = (slot.id, slot.base, slot.pages(), slot.memory.hva());
        self.publish(|slots| slots.push(Memslot { id, base, pages, hva }));
        Ok(())
    }

    fn delete_slot(&self, slot: &Slot) -> anyhow::Result<()> {
        let _changes = self.slots_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.publish(|slots| slots.retain(|other| other.id != slot.id));
        match self.slot_zap {
            SlotZap::AllRoots => self.zap_all_roots(),
            SlotZap::Range => self.zap_range(slot),
        }
    }

    fn populate(&self, slot: &Slot) -> anyhow::Result<()> {
        for (gfns, first) in slot.runs()? {
            let mut gfn = gfns.start.get();
            while gfn < gfns.end.get() {
                let _held = self.mmu_lock.read();
                let next = (gfn / WORDS as u64 + 1) * WORDS as u64;
                let run = Gfn::new(gfn)..Gfn::new(next.min(gfns.end.get()));
                let pfn = Pfn::new(first.get() + gfn - gfns.start.get());
                for root in self.roots.valid() {
                    self.tables.map_run(root.top, run.clone(), pfn)?;
                }
                gfn = run.end.get();
            }
        }
        Ok(())
    }

    fn start(&self) -> Start {
        let arena = self.watch.hardware().arena();
        let tops = self.roots.valid().map(|root| root.top);
        let mapped = Some(Mapped::of::<Ept>(arena, tops));
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        let vcpus = self.vcpus().len() as u64;
        Start { mapped, slots, vcpus, devices: None }
    }

    /// Who calls does all.
    fn threads(&self) -> Threads {
        Threads::default()
    }

    /// Whoever zaps is done when it returns, but for the roots themselves: each goes with its last reference.
    fn left(&self) -> Left {
        Left { awaited: 0, held: self.roots.held() }
    }

    /// The roots' last references are given up, and their tables freed, by whoever zaps them: here, once more.
    fn destroy(self) -> anyhow::Result<Log> {
        self.watch.end();
        self.zap_all_roots()?;
        Ok(Log::default())
    }
}
