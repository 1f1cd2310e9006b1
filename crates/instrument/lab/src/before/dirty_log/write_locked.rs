//! KVM before the TDP MMU (`arch/x86/kvm/mmu/mmu.c` of v5.9): one `mmu_lock`, and a reverse map from the slot's pages to
//! the entries that map them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use mayfly_machine::Machine;
use mayfly_platform::Platform;
use mayfly_platform::address::{Gfn, Pfn};
use mayfly_stage2::Level;

use super::lock::MmuLock;
use super::log::Bitmap;
use super::sections::Sections;
use super::tables::Tables;
use crate::before::tdp_mmu::Waiting;
use crate::dirty_log::design::{Design, Dirty, Slot};
use crate::dirty_log::guest::{Came, Guest};
use crate::start::Mapped;

/// Pages whose reverse map is gone through between two looks for others that wait for the lock.
const BETWEEN: u64 = 512;

/// A VM.
pub(crate) struct WriteLocked {
    slot: Arc<Slot>,
    tables: Tables,
    mmu_lock: MmuLock,
    is_on: AtomicBool,
    bitmap: Bitmap,
    /// Of each page, and of each block: whether an entry maps it. Changed under the lock.
    pages: ReverseMap,
    blocks: ReverseMap,
    exits: Sections,
    vcpus: AtomicUsize,
}

/// The heads of a level (`kvm_rmap_head`), 8 bytes each.
struct ReverseMap(Box<[Head]>);

#[repr(align(8))]
struct Head(AtomicU8);

impl ReverseMap {
    fn of(count: u64) -> Self {
        Self((0..count).map(|_| Head(AtomicU8::new(0))).collect())
    }

    fn set(&self, index: u64, is_mapped: bool) {
        self.0[index as usize].0.store(is_mapped.into(), Ordering::Relaxed);
    }

    fn has(&self, index: u64) -> bool {
        self.0[index as usize].0.load(Ordering::Relaxed) != 0
    }
}

impl WriteLocked {
    pub(crate) fn new(
        machine: &Machine,
        slot: Arc<Slot>,
        vcpus: u32,
        waiting: Waiting,
    ) -> anyhow::Result<Self> {
        let platform: Arc<dyn Platform> = machine.hardware().clone();
        let tables = Tables::new(machine.hardware())?;
        let blocks = ReverseMap::of(slot.pages() / Level::MIB2.pages());
        for block in slot.blocks() {
            let (gfn, pfn) = block?;
            tables.map(gfn, Level::MIB2, pfn)?;
            blocks.set(gfn.get() / Level::MIB2.pages(), true);
        }
        Ok(Self {
            tables,
            mmu_lock: MmuLock::new(platform, waiting),
            is_on: AtomicBool::new(false),
            bitmap: Bitmap::new(slot.pages()),
            pages: ReverseMap::of(slot.pages()),
            blocks,
            slot,
            exits: Sections::of(vcpus),
            vcpus: AtomicUsize::new(0),
        })
    }

    /// A write has faulted on `gfn` (`direct_page_fault`).
    fn handle_fault(&self, gfn: Gfn) -> anyhow::Result<()> {
        let is_on = self.is_on.load(Ordering::Acquire);
        if !self.tables.allow(gfn) {
            let (pfn, level) = self.slot.resolve(gfn)?;
            let level = if is_on { Level::PAGE } else { level };
            let _held = self.mmu_lock.write();
            // `__direct_map`
            let at = self.tables.find(gfn, Level::PAGE);
            let block = gfn.get() / Level::MIB2.pages();
            if at.is_block() && is_on {
                self.tables.drop_block(at)?;
                self.blocks.set(block, false);
                self.tables.flush();
            }
            let first = Pfn::new(pfn.get() - pfn.get() % level.pages());
            self.tables.map(level.first(gfn), level, first)?;
            if level == Level::PAGE {
                self.pages.set(gfn.get(), true);
            } else {
                self.blocks.set(block, true);
            }
        }
        if is_on {
            self.bitmap.mark(gfn.get());
        }
        Ok(())
    }

    /// Goes through the reverse map of all pages (`slot_handle_level`). `each` says whether TLBs are to be flushed.
    fn each_page(&self, mut each: impl FnMut(Gfn) -> bool) {
        let mut held = self.mmu_lock.write();
        let mut flush = false;
        for page in 0..self.slot.pages() {
            if self.pages.has(page) {
                flush |= each(Gfn::new(page));
            }
            if page % BETWEEN == BETWEEN - 1 {
                held.yield_to_waiters(|| {
                    if std::mem::take(&mut flush) {
                        self.tables.flush();
                    }
                });
            }
        }
        drop(held);
        if flush {
            self.tables.flush();
        }
    }
}

impl Design for WriteLocked {
    /// Its number.
    type Vcpu = usize;

    const CLEARS: bool = false;

    fn create_vcpu(&self) -> anyhow::Result<usize> {
        Ok(self.vcpus.fetch_add(1, Ordering::Relaxed))
    }

    fn run(&self, vcpu: &mut usize, guest: &mut Guest) -> anyhow::Result<()> {
        loop {
            match guest.enter(self.tables.base()) {
                Came::Out if !guest.rest() => return Ok(()),
                Came::Out => {}
                Came::Fault(gfn) => self.exits.inside(*vcpu, || self.handle_fault(gfn))?,
            }
        }
    }

    /// `kvm_mmu_slot_remove_write_access`.
    fn start(&self) -> anyhow::Result<()> {
        self.is_on.store(true, Ordering::Release);
        self.exits.synchronize();
        self.each_page(|gfn| self.tables.protect(gfn));
        let held = self.mmu_lock.write();
        for block in 0..self.slot.pages() / Level::MIB2.pages() {
            if self.blocks.has(block) {
                self.tables.protect(Gfn::new(block * Level::MIB2.pages()));
            }
        }
        drop(held);
        self.tables.flush();
        Ok(())
    }

    /// `kvm_get_dirty_log_protect`.
    fn harvest(&self, dirty: &mut Dirty) -> anyhow::Result<()> {
        let held = self.mmu_lock.write();
        let mut flush = false;
        for (word, index) in dirty.words.iter_mut().zip(0..) {
            *word = self.bitmap.take(index);
            if *word != 0 {
                flush |= self.tables.protect_those(Gfn::new(64 * index as u64), *word);
            }
        }
        drop(held);
        if flush {
            self.tables.flush();
        }
        Ok(())
    }

    /// `kvm_mmu_zap_collapsible_sptes`.
    fn stop(&self) -> anyhow::Result<()> {
        self.is_on.store(false, Ordering::Release);
        self.exits.synchronize();
        self.each_page(|gfn| {
            self.tables.zap_page(gfn);
            self.pages.set(gfn.get(), false);
            true
        });
        Ok(())
    }

    fn mapped(&self) -> Mapped {
        self.tables.mapped()
    }

    fn destroy(self) -> anyhow::Result<()> {
        Ok(())
    }
}
