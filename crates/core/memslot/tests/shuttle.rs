//! Memslots under shuttle: more vCPUs, writers and changes than loom can go through, in schedules drawn at random and by
//! probabilistic concurrency testing. Sequentially consistent, so this is about schedules; loom is about memory orders.
//!
//! Host memory that no slot has any more is marked so, and no vCPU writes to it. A write to memory is copied when its
//! mark is harvested, at the latest when the slot is deleted, and the last copy has all of them.

#![cfg(mayfly_shuttle)]

use std::sync::Arc as StdArc;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shuttle::thread::{self, JoinHandle};

use mayfly_memslot::{
    AddressSpace, DirtyBitmap, Flags, Gfn, Gpa, Hva, LastHit, MemSlots, PAGE_SIZE, Region, SlotId,
    Snapshot,
};
use mayfly_platform::{Model, Platform, check_schedules};
use mayfly_srcu::{Config, Srcu};

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_schedules(4_000, 2_000, model);
}

/// The page behind a slot.
#[derive(Default)]
struct Page {
    given_away: AtomicBool,
    written: AtomicU64,
    copy: AtomicU64,
}

impl Page {
    fn write(&self) {
        assert!(!self.given_away.load(Ordering::Relaxed), "written when it was somebody else's");
        self.written.fetch_add(1, Ordering::Relaxed);
    }

    /// Copies the page if it was written since the last time.
    fn copy_if_marked(&self, log: &DirtyBitmap) {
        if log.harvest(0, &mut [0]) > 0 {
            self.copy.store(self.written.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// As many as slots are created; each has a page of its own.
const PAGES: usize = 8;

#[derive(Clone)]
struct World {
    domain: Srcu,
    slots: Arc<MemSlots<Hva>>,
    pages: Arc<[Page; PAGES]>,
}

/// Slot `index` at frame `gfn`, with a log, and page `page` behind it.
fn region(index: u16, gfn: u64, page: usize) -> Region<Hva> {
    Region {
        slot: SlotId::main(index),
        flags: Flags::LOG_DIRTY_PAGES,
        gpa: Gpa::new(gfn * PAGE_SIZE),
        size: PAGE_SIZE,
        backing: Hva::new(page as u64 * PAGE_SIZE),
    }
}

impl World {
    fn new() -> Self {
        let platform: StdArc<dyn Platform> = StdArc::new(Model::new());
        let domain = Srcu::try_new(StdArc::clone(&platform), Config::default()).unwrap();
        let slots = Arc::new(MemSlots::try_new(platform, &domain).unwrap());
        Self { domain, slots, pages: Arc::new(std::array::from_fn(|_| Page::default())) }
    }

    fn page(&self, position: Hva) -> &Page {
        &self.pages[(position.get() / PAGE_SIZE) as usize]
    }

    /// Writes to every slot, as found at one moment.
    fn write_all(&self, snapshot: &Snapshot<Hva>, last: &mut LastHit) {
        for slot in snapshot.iter() {
            let found = snapshot.find_near(slot.base(), last).unwrap();
            assert_eq!(found.id(), slot.id());
            let traced = snapshot.backed_by(slot.backing(), 1).next().unwrap();
            assert_eq!((traced.0.id(), traced.1.start), (slot.id(), slot.base()));
            self.page(slot.backing()).write();
            slot.mark_dirty(slot.base());
        }
    }

    fn vcpu(&self) -> JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || {
            let reader = world.domain.reader().unwrap();
            let (mut last, mut generation) = (LastHit::default(), 0);
            for _ in 0..3 {
                let section = reader.lock();
                let snapshot = world.slots.load(AddressSpace::Main, &section);
                assert!(snapshot.generation() >= generation, "time goes forward");
                generation = snapshot.generation();
                world.write_all(snapshot, &mut last);
            }
        })
    }

    /// Deletes slot `index`, and has its last marks.
    fn delete(&self, index: u16, page: usize) {
        let edit = self.slots.set(&Region { size: 0, ..region(index, 0, 0) }).unwrap().unwrap();
        let page = &self.pages[page];
        page.given_away.store(true, Ordering::Relaxed);
        if let Some(log) = edit.before().unwrap().dirty() {
            page.copy_if_marked(log);
            let [written, copy] =
                [&page.written, &page.copy].map(|count| count.load(Ordering::Relaxed));
            assert_eq!(written, copy, "a write that is in no harvest");
        }
    }

    /// Creates, moves, and deletes slot `index` at frames of its own, with one page after the other.
    fn writer(&self, index: u16, pages: [usize; 2]) -> JoinHandle<()> {
        let world = self.clone();
        thread::spawn(move || {
            let base = 100 * u64::from(index);
            for page in pages {
                world.slots.set(&region(index, base, page)).unwrap().unwrap();
                if thread_rng().r#gen() {
                    world.slots.set(&region(index, base + 1, page)).unwrap().unwrap();
                }
                let log = {
                    let section = world.domain.read_lock();
                    let snapshot = world.slots.load(AddressSpace::Main, &section);
                    let slot = snapshot.slot(SlotId::main(index)).unwrap();
                    let page = world.page(slot.backing());
                    slot.dirty().map(|log| page.copy_if_marked(log))
                };
                assert!(log.is_some());
                world.delete(index, page);
            }
        })
    }
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn whatever_writers_change_no_vcpu_writes_to_memory_given_away_and_no_write_goes_unlogged() {
    check(|| {
        let world = World::new();
        let threads =
            [world.vcpu(), world.vcpu(), world.writer(1, [0, 1]), world.writer(2, [2, 3])];
        join(threads);
        world.domain.barrier();
        assert_eq!(world.domain.stats().deferred_bytes, 0);
    });
}

#[test]
fn a_write_is_copied_with_its_mark_or_came_before_the_log_was_switched_on() {
    check(|| {
        let world = World::new();
        let plain = Region { flags: Flags::empty(), ..region(0, 5, 0) };
        world.slots.set(&plain).unwrap();
        let vcpus = [world.vcpu(), world.vcpu()];
        let page = &world.pages[0];
        for flags in [Flags::LOG_DIRTY_PAGES, Flags::empty(), Flags::LOG_DIRTY_PAGES] {
            let edit = world.slots.set(&Region { flags, ..plain }).unwrap().unwrap();
            match edit.before().unwrap().dirty() {
                Some(log) => page.copy_if_marked(log),
                None => page.copy.store(page.written.load(Ordering::Relaxed), Ordering::Relaxed),
            }
        }
        join(vcpus);
        let section = world.domain.read_lock();
        let slot = world.slots.load(AddressSpace::Main, &section).find(Gfn::new(5)).unwrap();
        page.copy_if_marked(slot.dirty().unwrap());
        assert_eq!(page.copy.load(Ordering::Relaxed), page.written.load(Ordering::Relaxed));
    });
}
