//! The TDP MMU's VM (`arch/x86/kvm/mmu/tdp_mmu.c`): vCPUs share `mmu_lock`, also with whoever goes through all of it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mayfly_machine::Machine;
use mayfly_platform::Platform;
use mayfly_platform::address::{Gfn, Pfn};
use mayfly_stage2::Level;

use super::lock::{MmuLock, Written};
use super::log::{Bitmap, Ring};
use super::sections::Sections;
use super::tables::Tables;
use crate::before::tdp_mmu::Waiting;
use crate::dirty_log::design::{Design, Dirty, Slot};
use crate::dirty_log::guest::{Came, Guest};
use crate::start::Mapped;

/// Words that a VMM has cleared at a time: those of 64 MiB.
const CLEARED: usize = 256;

/// How writes are logged, and when pages are write-protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logging {
    /// In a bitmap, all pages at the start.
    WriteProtect,
    /// In a bitmap whose bits are all set at the start, pages when they are cleared.
    InitiallySet,
    /// In a ring of each vCPU, all pages at the start.
    Ring,
}

/// A VM; `CLEARS` where taking marks is a call of its own, `FULL` where the first harvest has all pages.
pub(crate) struct TdpLog<const CLEARS: bool, const FULL: bool> {
    logging: Logging,
    slot: Arc<Slot>,
    tables: Tables,
    mmu_lock: MmuLock,
    is_on: AtomicBool,
    bitmap: Bitmap,
    rings: Box<[Ring]>,
    exits: Sections,
    vcpus: AtomicUsize,
    /// What vCPUs have collected from rings that were full; held while rings are reset.
    collected: Mutex<Vec<u32>>,
}

impl<const CLEARS: bool, const FULL: bool> TdpLog<CLEARS, FULL> {
    pub(crate) fn new(
        machine: &Machine,
        slot: Arc<Slot>,
        logging: Logging,
        vcpus: u32,
        waiting: Waiting,
    ) -> anyhow::Result<Self> {
        let platform: Arc<dyn Platform> = machine.hardware().clone();
        let tables = Tables::new(machine.hardware())?;
        for block in slot.blocks() {
            let (gfn, pfn) = block?;
            tables.map(gfn, Level::MIB2, pfn)?;
        }
        Ok(Self {
            logging,
            tables,
            mmu_lock: MmuLock::new(platform, waiting),
            is_on: AtomicBool::new(false),
            bitmap: Bitmap::new(slot.pages()),
            slot,
            rings: (0..vcpus).map(|_| Ring::default()).collect(),
            exits: Sections::of(vcpus),
            vcpus: AtomicUsize::new(0),
            collected: Mutex::default(),
        })
    }

    /// A write has faulted on `gfn` (`kvm_tdp_page_fault`).
    fn handle_fault(&self, gfn: Gfn, ring: &Ring) -> anyhow::Result<()> {
        let is_on = self.is_on.load(Ordering::Acquire);
        if !self.tables.allow(gfn) {
            let (pfn, level) = self.slot.resolve(gfn)?;
            let _held = self.mmu_lock.read();
            let at = self.tables.find(gfn, Level::PAGE);
            if is_on && at.is_block() {
                self.tables.split(at)?;
                self.tables.allow(gfn);
            } else if !is_on {
                let first = Pfn::new(pfn.get() - pfn.get() % level.pages());
                self.tables.map(level.first(gfn), level, first)?;
            }
        }
        if is_on {
            self.mark(gfn, ring);
        }
        Ok(())
    }

    /// `mark_page_dirty_in_slot`.
    fn mark(&self, gfn: Gfn, ring: &Ring) {
        if self.logging != Logging::Ring {
            self.bitmap.mark(gfn.get());
        } else if !ring.push(gfn.get()) {
            // `KVM_EXIT_DIRTY_RING_FULL`
            let mut collected = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
            self.rings.iter().for_each(|ring| ring.collect(|page| collected.push(page)));
            self.reset_rings();
        }
    }

    /// `KVM_RESET_DIRTY_RINGS`. One at a time.
    fn reset_rings(&self) {
        let mut flush = false;
        for ring in &self.rings {
            // What follows each other within 64 pages is protected together (`kvm_dirty_ring_reset`).
            let mut run: Option<(u64, u64)> = None;
            for page in ring.reset().into_iter().map(u64::from) {
                run = match run {
                    Some((first, bits)) if page >= first && page - first < 64 => {
                        Some((first, bits | 1 << (page - first)))
                    }
                    Some((first, bits))
                        if page < first
                            && first - page < 64
                            && bits >> (64 - (first - page)) == 0 =>
                    {
                        Some((page, bits << (first - page) | 1))
                    }
                    other => {
                        flush |= self.protect_run(other);
                        Some((page, 1))
                    }
                };
            }
            flush |= self.protect_run(run);
        }
        if flush {
            self.tables.flush();
        }
    }

    fn protect_run(&self, run: Option<(u64, u64)>) -> bool {
        run.is_some_and(|(first, bits)| {
            let _held = self.mmu_lock.write();
            self.tables.protect_those(Gfn::new(first), bits)
        })
    }

    /// Splits the blocks of these pages (`kvm_mmu_try_split_huge_pages`).
    fn split(
        &self,
        gfns: impl Iterator<Item = u64>,
        mut between: impl FnMut(),
    ) -> anyhow::Result<()> {
        for gfn in gfns {
            let at = self.tables.find(Gfn::new(gfn), Level::PAGE);
            if at.is_block() {
                self.tables.split(at)?;
            }
            between();
        }
        Ok(())
    }

    fn blocks(&self) -> std::iter::StepBy<std::ops::Range<u64>> {
        (0..self.slot.pages()).step_by(Level::MIB2.pages() as usize)
    }

    /// Splits and protects everything.
    fn protect_all(&self) -> anyhow::Result<()> {
        let mut held = self.mmu_lock.read();
        self.split(self.blocks(), || {
            held.yield_to_waiters();
        })?;
        drop(held);
        let mut held = self.mmu_lock.read();
        for gfn in self.blocks() {
            self.tables.protect_table(Gfn::new(gfn));
            held.yield_to_waiters();
        }
        drop(held);
        self.tables.flush();
        Ok(())
    }

    /// `KVM_CLEAR_DIRTY_LOG` of one part, whose first word is `first`.
    fn clear_part(&self, first: usize, words: &mut [u64]) -> anyhow::Result<()> {
        let mut flush = false;
        let held: Written<'_> = self.mmu_lock.write();
        for (word, index) in words.iter_mut().zip(first..) {
            if *word == 0 {
                continue;
            }
            *word = self.bitmap.take_of(index, *word);
            let gfn = Gfn::new(64 * index as u64);
            let at = self.tables.find(gfn, Level::PAGE);
            if at.is_block() {
                self.tables.split(at)?;
            }
            flush |= self.tables.protect_those(gfn, *word);
        }
        drop(held);
        if flush {
            self.tables.flush();
        }
        Ok(())
    }
}

impl<const CLEARS: bool, const FULL: bool> Design for TdpLog<CLEARS, FULL> {
    /// The number of its ring.
    type Vcpu = usize;

    const CLEARS: bool = CLEARS;
    const BEGINS_FULL: bool = FULL;

    fn create_vcpu(&self) -> anyhow::Result<usize> {
        Ok(self.vcpus.fetch_add(1, Ordering::Relaxed))
    }

    fn run(&self, vcpu: &mut usize, guest: &mut Guest) -> anyhow::Result<()> {
        loop {
            match guest.enter(self.tables.base()) {
                Came::Out if !guest.rest() => return Ok(()),
                Came::Out => {}
                Came::Fault(gfn) => {
                    let ring = &self.rings[*vcpu];
                    self.exits.inside(*vcpu, || self.handle_fault(gfn, ring))?;
                }
            }
        }
    }

    fn start(&self) -> anyhow::Result<()> {
        if self.logging == Logging::InitiallySet {
            self.bitmap.fill();
        }
        self.is_on.store(true, Ordering::Release);
        self.exits.synchronize();
        if self.logging == Logging::InitiallySet { Ok(()) } else { self.protect_all() }
    }

    fn harvest(&self, dirty: &mut Dirty) -> anyhow::Result<()> {
        match self.logging {
            Logging::InitiallySet => self.bitmap.read(&mut dirty.words),
            Logging::WriteProtect => {
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
            }
            Logging::Ring => {
                let mut collected = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
                self.rings.iter().for_each(|ring| ring.collect(|page| collected.push(page)));
                for page in collected.drain(..) {
                    dirty.list(page / 64, 1 << (page % 64));
                }
            }
        }
        Ok(())
    }

    fn clear(&self, dirty: &mut Dirty) -> anyhow::Result<()> {
        match self.logging {
            Logging::WriteProtect => {}
            Logging::InitiallySet => {
                for (words, part) in dirty.words.chunks_mut(CLEARED).zip(0..) {
                    if words.iter().any(|&word| word != 0) {
                        self.clear_part(part * CLEARED, words)?;
                    }
                }
            }
            Logging::Ring => {
                let _one = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
                self.reset_rings();
            }
        }
        Ok(())
    }

    fn stop(&self) -> anyhow::Result<()> {
        self.is_on.store(false, Ordering::Release);
        self.exits.synchronize();
        let mut held = self.mmu_lock.read();
        for gfn in self.blocks().map(Gfn::new) {
            if self.tables.find(gfn, Level::PAGE).level == Level::PAGE {
                let (pfn, _) = self.slot.resolve(gfn)?;
                self.tables.recover(gfn, pfn);
            }
            held.yield_to_waiters();
        }
        drop(held);
        self.tables.flush();
        Ok(())
    }

    fn mapped(&self) -> Mapped {
        self.tables.mapped()
    }

    fn destroy(self) -> anyhow::Result<()> {
        Ok(())
    }
}
