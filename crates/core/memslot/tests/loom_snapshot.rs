//! Memslots under loom: a vCPU that finds a slot and writes through it while the slot is changed.
//!
//! Host memory is a loom cell, which vCPUs write, and which whoever deleted the slot has to himself: loom fails the model
//! if the two are not ordered.

#![cfg(mayfly_loom)]

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread::{self, JoinHandle};

use mayfly_memslot::{
    AddressSpace, Flags, Gfn, Gpa, Hva, MemSlots, PAGE_SIZE, Region, SlotId, Snapshot,
};
use mayfly_platform::{Model, Platform};
use mayfly_srcu::{Config, Reader, Srcu};

/// A page of host memory: who has it, for loom to look at, and what was written to it last.
struct Page {
    owner: UnsafeCell<()>,
    bytes: AtomicU64,
}

// SAFETY: loom checks every access to the cell.
unsafe impl Sync for Page {}
// SAFETY: as above.
unsafe impl Send for Page {}

impl Page {
    fn new() -> Self {
        Self { owner: UnsafeCell::new(()), bytes: AtomicU64::new(0) }
    }

    fn write(&self, value: u64) {
        self.owner.with(|_| self.bytes.store(value, Ordering::Relaxed));
    }

    fn read(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Gives the page to somebody else, who expects nobody to write to it any more.
    fn give_away(&self) -> u64 {
        self.owner.with_mut(|_| self.read())
    }
}

/// Memslots, and the page behind slot 0.
struct Memory {
    slots: MemSlots<Hva>,
    page: Page,
}

const GFN: Gfn = Gfn::new(16);

fn slot(flags: Flags, gfn: Gfn) -> Region<Hva> {
    let gpa = Gpa::new(gfn.get() * PAGE_SIZE);
    Region { slot: SlotId::main(0), flags, gpa, size: PAGE_SIZE, backing: Hva::new(0) }
}

fn logged() -> Region<Hva> {
    slot(Flags::LOG_DIRTY_PAGES, GFN)
}

fn plain() -> Region<Hva> {
    slot(Flags::empty(), GFN)
}

fn deleted() -> Region<Hva> {
    Region { size: 0, ..plain() }
}

impl Memory {
    /// With slot 0 as `region` says.
    fn new(region: &Region<Hva>) -> (Srcu, Arc<Self>) {
        let platform: std::sync::Arc<dyn Platform> = std::sync::Arc::new(Model::new());
        let domain = Srcu::try_new(std::sync::Arc::clone(&platform), Config::default()).unwrap();
        let slots = MemSlots::try_new(platform, &domain).unwrap();
        slots.set(region).unwrap();
        (domain, Arc::new(Self { slots, page: Page::new() }))
    }

    /// Has a vCPU write `value` to frame `gfn`, if it finds a slot there.
    fn write(&self, snapshot: &Snapshot<Hva>, gfn: Gfn, value: u64) -> bool {
        let Some(slot) = snapshot.find(gfn) else { return false };
        self.page.write(value);
        slot.mark_dirty(gfn);
        true
    }
}

/// A vCPU that writes `value`. Returns whether it found a slot.
fn vcpu(memory: &Arc<Memory>, reader: Reader, value: u64) -> JoinHandle<bool> {
    let memory = Arc::clone(memory);
    thread::spawn(move || {
        let section = reader.lock();
        let snapshot = memory.slots.load(AddressSpace::Main, &section);
        memory.write(snapshot, GFN, value)
    })
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound.get_or_insert(3);
    builder.check(model);
}

#[test]
fn a_deleted_slots_memory_is_nobodys_and_its_last_log_has_every_write() {
    check(|| {
        let (domain, memory) = Memory::new(&logged());
        let vcpu = vcpu(&memory, domain.reader().unwrap(), 7);
        let edit = memory.slots.set(&deleted()).unwrap().unwrap();
        let bytes = memory.page.give_away();
        let mut word = [0];
        let marked = edit.before().unwrap().dirty().unwrap().harvest(0, &mut word);
        let wrote = vcpu.join().unwrap();
        assert_eq!((bytes, marked), if wrote { (7, 1) } else { (0, 0) });
    });
}

#[test]
fn a_write_that_is_not_in_a_log_that_was_switched_on_came_before_that_returned() {
    check(|| {
        let (domain, memory) = Memory::new(&plain());
        let vcpu = vcpu(&memory, domain.reader().unwrap(), 7);
        let edit = memory.slots.set(&logged()).unwrap().unwrap();
        let mut copy = memory.page.read();
        assert!(vcpu.join().unwrap());
        let mut word = [0];
        if edit.after().unwrap().dirty().unwrap().harvest(0, &mut word) == 1 {
            copy = memory.page.read();
        }
        assert_eq!(copy, 7);
    });
}

#[test]
fn a_log_that_was_switched_off_is_final() {
    check(|| {
        let (domain, memory) = Memory::new(&logged());
        let vcpu = vcpu(&memory, domain.reader().unwrap(), 7);
        let edit = memory.slots.set(&plain()).unwrap().unwrap();
        let log = edit.before().unwrap().dirty().unwrap();
        log.harvest(0, &mut [0]);
        assert!(vcpu.join().unwrap());
        assert_eq!(log.harvest(0, &mut [0]), 0, "it was marked after that");
    });
}

#[test]
fn a_slot_that_moves_is_in_exactly_one_place_and_keeps_its_marks() {
    const AWAY: Gfn = Gfn::new(64);
    check(|| {
        let (domain, memory) = Memory::new(&logged());
        let reader = domain.reader().unwrap();
        let vcpu = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let section = reader.lock();
                let snapshot = memory.slots.load(AddressSpace::Main, &section);
                let wrote = [GFN, AWAY].map(|gfn| memory.write(snapshot, gfn, 7));
                assert!(wrote[0] != wrote[1]);
            })
        };
        let edit = memory.slots.set(&slot(Flags::LOG_DIRTY_PAGES, AWAY)).unwrap().unwrap();
        vcpu.join().unwrap();
        assert_eq!(edit.after().unwrap().dirty().unwrap().harvest(0, &mut [0]), 1);
        assert_eq!(memory.page.read(), 7);
    });
}

#[test]
fn a_deferred_snapshot_is_freed_when_no_vcpu_reads_it() {
    check(|| {
        let (domain, memory) = Memory::new(&logged());
        let vcpu = vcpu(&memory, domain.reader().unwrap(), 7);
        memory.slots.apply(&deleted()).unwrap().unwrap().retired.defer_expedited();
        vcpu.join().unwrap();
        domain.barrier();
        assert_eq!(domain.stats().deferred_bytes, 0);
    });
}
