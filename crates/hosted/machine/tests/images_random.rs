//! Images and the memory that begins as them, beside a model that is a list of what each page holds; and beside somebody who
//! remembers every frame that it was told, and forgets only what a notifier has to.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use mayfly_machine::address_space::{
    Backing, Change, HostSpace, Image, Notifier, PageChange, Protection, Rights,
};
use mayfly_machine::merger::{Merger, Tunables};
use mayfly_machine::{Arena, HostMemory};
use mayfly_platform::address::{Hva, PAGE_SIZE, Pfn};
use proptest::prelude::*;
use proptest::sample::Index;

/// Pages of every memory: more than two chunks of the page table, and no multiple of them.
const PAGES: u64 = 1100;

#[derive(Clone, Debug)]
enum Step {
    Map,
    MapImage(Index),
    Freeze(Index),
    Write(Index, u64, u64),
    Read(Index, u64),
    Discard(Index, Range<u64>),
    Reclaim(Index, u64),
    Migrate(Index, Range<u64>),
    Merge,
    DropMemory(Index),
    DropImage(Index),
}

/// What the pages hold; those that are not there hold nothing.
type Held = BTreeMap<u64, u64>;

struct Memory {
    host: HostMemory,
    held: Held,
    /// What it goes back to.
    before: Held,
}

/// Remembers in which frame each page is, and whether it may be written, as a VM's tables do.
#[derive(Default)]
struct Tables(Mutex<BTreeMap<u64, (Pfn, bool)>>);

impl Tables {
    fn take_away(
        &self,
        range: &Range<Hva>,
        leave: impl Fn(u64, (Pfn, bool)) -> Option<(Pfn, bool)>,
    ) {
        let mut entries = self.0.lock().unwrap();
        let within: Vec<_> = entries
            .range(range.start.get()..range.end.get())
            .map(|(&at, &entry)| (at, entry))
            .collect();
        for (at, entry) in within {
            match leave(at, entry) {
                Some(left) => entries.insert(at, left),
                None => entries.remove(&at),
            };
        }
    }
}

impl Notifier for Tables {
    fn invalidate_start(&self, change: &Change) {
        let keeps = change.new != Rights::None;
        self.take_away(&change.range, |_, (frame, _)| keeps.then_some((frame, false)));
    }

    fn discard_start(&self, change: &Change, next: &dyn Fn(u64) -> Range<u64>) {
        let first = change.range.start.get();
        self.take_away(&change.range, |at, entry| {
            let page = (at - first) / PAGE_SIZE;
            (!next(page).contains(&page)).then_some(entry)
        });
    }

    fn change_pte(&self, page: Hva, change: &PageChange) {
        if let Some(entry) = self.0.lock().unwrap().get_mut(&page.get()) {
            assert_eq!(*entry, (change.old, false));
            entry.0 = change.new;
        }
    }

    fn allow_writes(&self, page: Hva, frame: Pfn) {
        if let Some(entry) = self.0.lock().unwrap().get_mut(&page.get()) {
            assert_eq!(entry.0, frame);
            entry.1 = true;
        }
    }

    fn invalidate_end(&self, _: &Change) {}
}

struct Beside {
    space: Arc<HostSpace>,
    merger: Merger,
    tables: Arc<Tables>,
    memories: Vec<Memory>,
    images: Vec<(Arc<Image>, Held)>,
}

impl Beside {
    fn new(arena: &Arc<Arena>) -> Self {
        let space = Arc::new(HostSpace::new(arena.clone()));
        let merger = Merger::new(space.clone());
        merger
            .set(Tunables { pages_to_scan: 10_000, pages_to_merge: 8, ..Tunables::default() })
            .unwrap();
        let tables = Arc::<Tables>::default();
        space.register(tables.clone());
        Self { space, merger, tables, memories: Vec::new(), images: Vec::new() }
    }

    fn apply(&mut self, step: Step) {
        let Self { space, merger, tables, memories, images } = self;
        let at = |memory: &Memory, page| Hva::new(memory.host.hva().get() + page * PAGE_SIZE);
        match step {
            Step::Map => {
                let host = HostMemory::map(space, PAGES * PAGE_SIZE, Backing::Pages).unwrap();
                merger.register(host.hvas()).unwrap();
                memories.push(Memory { host, held: Held::new(), before: Held::new() });
            }
            Step::MapImage(index) => {
                let Some((image, held)) = pick(images, index) else { return };
                let host = HostMemory::map_image(space, image).unwrap();
                let (held, before) = (held.clone(), held.clone());
                memories.push(Memory { host, held, before });
            }
            Step::Freeze(index) => {
                let Some(memory) = pick(memories, index) else { return };
                images.push((memory.host.freeze().unwrap(), memory.held.clone()));
                memory.before = memory.held.clone();
            }
            Step::Write(index, page, value) => {
                let Some(memory) = pick(memories, index) else { return };
                memory.host.write_u64(page * PAGE_SIZE, value);
                memory.held.insert(page, value);
                let resolved = space.resolve(at(memory, page), true).unwrap();
                tables.0.lock().unwrap().insert(at(memory, page).get(), (resolved.pfn, true));
            }
            Step::Read(index, page) => {
                let Some(memory) = pick(memories, index) else { return };
                let resolved = space.resolve(at(memory, page), false).unwrap();
                tables
                    .0
                    .lock()
                    .unwrap()
                    .insert(at(memory, page).get(), (resolved.pfn, resolved.writable));
            }
            Step::Discard(index, pages) => {
                let Some(memory) = pick(memories, index) else { return };
                space.discard(at(memory, pages.start)..at(memory, pages.end)).unwrap();
                for page in pages {
                    match memory.before.get(&page) {
                        Some(&value) => memory.held.insert(page, value),
                        None => memory.held.remove(&page),
                    };
                }
            }
            Step::Reclaim(index, page) => {
                let Some(memory) = pick(memories, index) else { return };
                space.reclaim(at(memory, page));
            }
            Step::Migrate(index, pages) => {
                let Some(memory) = pick(memories, index) else { return };
                space.migrate_range(at(memory, pages.start)..at(memory, pages.end)).unwrap();
            }
            Step::Merge => merger.scan_all(),
            Step::DropMemory(index) => {
                if !memories.is_empty() {
                    memories.remove(index.index(memories.len()));
                }
            }
            Step::DropImage(index) => {
                if !images.is_empty() {
                    images.remove(index.index(images.len()));
                }
            }
        }
        self.check();
    }

    /// Every page holds what it should, and what was told is still right.
    fn check(&self) {
        for (&at, &(frame, writable)) in &*self.tables.0.lock().unwrap() {
            let now = self.space.resolve(Hva::new(at), false).unwrap();
            assert!(
                now.pfn == frame && (now.writable || !writable),
                "{at:#x} is not in {frame:?} but {now:?}"
            );
        }
        for (image, held) in &self.images {
            for page in (0..PAGES).step_by(7).chain(held.keys().copied()) {
                let expected = held.get(&page).copied().unwrap_or(0);
                assert_eq!(image.read_u64(page * PAGE_SIZE), expected, "page {page} of an image");
            }
        }
    }
}

fn pick<T>(all: &mut [T], index: Index) -> Option<&mut T> {
    if all.is_empty() { None } else { Some(index.get_mut(all)) }
}

fn step() -> impl Strategy<Value = Step> {
    let memory = any::<Index>;
    // Few pages, so that they meet again; at the seams of chunks as well.
    let page = || prop_oneof![0..8_u64, 505..520_u64, PAGES - 3..PAGES];
    let pages = || (page(), 1..600_u64).prop_map(|(page, count)| page..PAGES.min(page + count));
    prop_oneof![
        1 => Just(Step::Map),
        3 => memory().prop_map(Step::MapImage),
        2 => memory().prop_map(Step::Freeze),
        8 => (memory(), page(), 0..4_u64).prop_map(|(memory, page, value)| Step::Write(memory, page, value)),
        4 => (memory(), page()).prop_map(|(memory, page)| Step::Read(memory, page)),
        3 => (memory(), pages()).prop_map(|(memory, pages)| Step::Discard(memory, pages)),
        1 => (memory(), page()).prop_map(|(memory, page)| Step::Reclaim(memory, page)),
        1 => (memory(), pages()).prop_map(|(memory, pages)| Step::Migrate(memory, pages)),
        1 => Just(Step::Merge),
        1 => memory().prop_map(Step::DropMemory),
        1 => memory().prop_map(Step::DropImage),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_is_what_was_written_to_it_over_what_its_image_was(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let arena = Arc::new(Arena::new(1 << 18).unwrap());
        let mut beside = Beside::new(&arena);
        beside.apply(Step::Map);
        for step in steps {
            beside.apply(step);
        }
        for Memory { host, held, .. } in &beside.memories {
            for page in 0..PAGES {
                let expected = held.get(&page).copied().unwrap_or(0);
                assert_eq!(host.read_u64(page * PAGE_SIZE), expected, "page {page}");
            }
        }
        let protection = Protection::ReadOnly;
        for (image, held) in &beside.images {
            let start = beside.space.map_image(image, protection).unwrap();
            for (page, value) in held {
                let at = Hva::new(start.get() + page * PAGE_SIZE);
                assert_eq!(beside.space.read_u64(at), Ok(*value));
            }
        }
        drop(beside);
        assert_eq!(arena.in_use(), 0);
    }
}
