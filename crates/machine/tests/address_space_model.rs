//! The host's address space, and its page merger, beside a model that is a map from pages to what they hold.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use mayfly_machine::Arena;
use mayfly_machine::address_space::{Backing, Error, Fault, HostSpace, Protection};
use mayfly_machine::merger::{Merger, Tunables};
use mayfly_platform::address::{Hva, PAGE_SHIFT};
use mayfly_stage2::Level;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Map { pages: u64, backing: Backing, protection: Protection },
    Unmap(Target),
    Protect(Target, Protection),
    Write(Target, u64),
    Read(Target),
    Reclaim(Target),
    Migrate(Target),
    Fork(Target),
    Remap(Target),
    Merge,
}

/// Pages by where they are among those that were ever mapped.
#[derive(Clone, Copy, Debug)]
struct Target {
    at: prop::sample::Index,
    pages: u64,
}

/// Which memory a page is: of which mapping, and where in it.
type Cell = (usize, u64);

#[derive(Default)]
struct Model {
    pages: BTreeMap<u64, (Protection, Cell)>,
    values: HashMap<Cell, u64>,
    /// The pages of every mapping there was.
    mapped: Vec<Range<u64>>,
    /// Mappings whose frames are there for good.
    fixed: Vec<bool>,
}

impl Model {
    /// What comes of moving or copying these pages.
    fn expected(&self, pages: &Range<u64>) -> Result<(), Error> {
        let mut found = pages.clone().map(|page| self.pages.get(&page));
        if found.clone().any(|page| page.is_none()) {
            return Err(Error::NotMapped);
        }
        let is_fixed =
            |page: Option<&(Protection, Cell)>| page.is_some_and(|page| self.fixed[page.1.0]);
        if found.any(is_fixed) { Err(Error::Invalid) } else { Ok(()) }
    }

    fn target(&self, target: Target) -> Range<u64> {
        let total: u64 = self.mapped.iter().map(|range| range.end - range.start).sum();
        let mut at = target.at.index(total.max(1) as usize) as u64;
        for range in &self.mapped {
            if at < range.end - range.start {
                return range.start + at..range.start + at + target.pages;
            }
            at -= range.end - range.start;
        }
        1..2
    }
}

fn hva(page: u64) -> Hva {
    Hva::new(page << PAGE_SHIFT)
}

fn range(pages: &Range<u64>) -> Range<Hva> {
    hva(pages.start)..hva(pages.end)
}

/// Whether the block of `level` around `page` really is one: resolved page by page.
fn is_block(space: &HostSpace, page: u64, level: Level) -> bool {
    let first = page - page % level.pages();
    let Ok(at_first) = space.resolve(hva(first), false) else { return false };
    level.is_aligned(at_first.pfn.get())
        && (0..level.pages()).all(|at| {
            space.resolve(hva(first + at), false).is_ok_and(|resolved| {
                resolved.pfn.get() == at_first.pfn.get() + at
                    && resolved.writable == at_first.writable
            })
        })
}

fn apply(space: &HostSpace, merger: &Merger, model: &mut Model, step: &Step) {
    match *step {
        Step::Map { pages, backing, protection } => {
            let hva = space.mmap(pages << PAGE_SHIFT, backing, protection).unwrap();
            let first = hva.get() >> PAGE_SHIFT;
            let (unit, repeat) = match backing {
                Backing::HugePages => (512, u64::MAX),
                Backing::Shared(level) => (level.pages(), level.pages()),
                _ => (1, u64::MAX),
            };
            let mapping = model.mapped.len();
            let range = first..first + pages.next_multiple_of(unit);
            for page in range.clone() {
                let cell = (mapping, (page - first) % repeat);
                assert!(
                    model.pages.insert(page, (protection, cell)).is_none(),
                    "page {page:#x} was mapped"
                );
            }
            model.mapped.push(range.clone());
            model.fixed.push(matches!(backing, Backing::Contiguous | Backing::Shared(_)));
            let expected = if model.fixed[mapping] { Err(Error::Invalid) } else { Ok(()) };
            assert_eq!(merger.register(self::range(&range)), expected);
        }
        Step::Unmap(target) => {
            let pages = model.target(target);
            space.munmap(range(&pages)).unwrap();
            for page in pages {
                model.pages.remove(&page);
            }
        }
        Step::Protect(target, protection) => {
            let pages = model.target(target);
            let covered = pages.clone().all(|page| model.pages.contains_key(&page));
            let expected = if covered { Ok(()) } else { Err(Error::NotMapped) };
            assert_eq!(space.mprotect(range(&pages), protection), expected);
            if covered {
                for (_, (was, _)) in model.pages.range_mut(pages) {
                    *was = protection;
                }
            }
        }
        Step::Write(target, value) => {
            let page = model.target(target).start;
            let expected = match model.pages.get(&page) {
                None => Err(Fault::NotMapped),
                Some((Protection::ReadOnly, _)) => Err(Fault::ReadOnly),
                Some((Protection::ReadWrite, cell)) => {
                    model.values.insert(*cell, value);
                    Ok(())
                }
            };
            assert_eq!(space.write_u64(hva(page), value), expected);
        }
        Step::Read(target) => {
            let page = model.target(target).start;
            let value = |(_, cell)| model.values.get(cell).copied().unwrap_or(0);
            let expected =
                model.pages.get(&page).map(|(protection, cell)| value((protection, cell)));
            assert_eq!(space.read_u64(hva(page)), expected.ok_or(Fault::NotMapped));
            if let Ok(resolved) = space.resolve(hva(page), false)
                && resolved.level == Level::MIB2
            {
                assert!(is_block(space, page, Level::MIB2), "page {page:#x} is in no block");
            }
        }
        Step::Reclaim(target) => {
            space.reclaim(hva(model.target(target).start));
        }
        Step::Migrate(target) => {
            space.migrate(hva(model.target(target).start)).unwrap();
        }
        Step::Fork(target) => {
            let pages = model.target(target);
            fork(space, model, &pages);
        }
        Step::Remap(target) => {
            let pages = model.target(target);
            remap(space, merger, model, &pages);
        }
        Step::Merge => {
            merger.scan_all();
            recount(space, merger, model);
        }
    }
}

fn fork(space: &HostSpace, model: &mut Model, pages: &Range<u64>) {
    let forked = space.fork(range(pages));
    assert_eq!(forked.map(|_| ()), model.expected(pages));
    let Ok(forked) = forked else { return };
    let first = forked.get() >> PAGE_SHIFT;
    let mapping = model.mapped.len();
    for page in pages.clone() {
        let (protection, cell) = model.pages[&page];
        let copy = (mapping, page - pages.start);
        if let Some(value) = model.values.get(&cell).copied() {
            model.values.insert(copy, value);
        }
        model.pages.insert(page - pages.start + first, (protection, copy));
    }
    model.mapped.push(first..first + (pages.end - pages.start));
    model.fixed.push(false);
}

fn remap(space: &HostSpace, merger: &Merger, model: &mut Model, pages: &Range<u64>) {
    let moved = space.mremap(range(pages), None);
    assert_eq!(moved.map(|_| ()), model.expected(pages));
    let Ok(moved) = moved else { return };
    let first = moved.get() >> PAGE_SHIFT;
    for page in pages.clone() {
        let moved = model.pages.remove(&page).unwrap();
        model.pages.insert(page - pages.start + first, moved);
    }
    let to = first..first + (pages.end - pages.start);
    merger.register(range(&to)).unwrap();
    model.mapped.push(to);
    model.fixed.push(false);
}

/// Counts by hand what is shared: the merger has a reference of its own to each frame that it has made to be.
fn recount(space: &HostSpace, merger: &Merger, model: &Model) {
    let mut pages = HashMap::<_, u64>::new();
    for (page, (_, (mapping, _))) in &model.pages {
        if !model.fixed[*mapping] {
            *pages.entry(space.resolve(hva(*page), false).unwrap().pfn).or_default() += 1;
        }
    }
    pages.retain(|frame, pages| space.arena().references(*frame) == *pages + 1);
    let statistics = merger.statistics();
    let (shared, sharing) = (pages.len() as u64, pages.values().sum::<u64>());
    assert_eq!((statistics.pages_shared, statistics.pages_sharing), (shared, sharing - shared));
}

fn target(pages: impl Strategy<Value = u64>) -> impl Strategy<Value = Target> {
    (any::<prop::sample::Index>(), pages).prop_map(|(at, pages)| Target { at, pages })
}

fn protection() -> impl Strategy<Value = Protection> {
    prop_oneof![1 => Just(Protection::ReadOnly), 3 => Just(Protection::ReadWrite)]
}

fn backing() -> impl Strategy<Value = Backing> {
    prop_oneof![
        2 => Just(Backing::Pages),
        2 => Just(Backing::HugePages),
        1 => Just(Backing::Contiguous),
        1 => Just(Backing::Shared(Level::PAGE)),
        1 => Just(Backing::Shared(Level::MIB2)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1..1200_u64, backing(), protection())
            .prop_map(|(pages, backing, protection)| Step::Map { pages, backing, protection }),
        2 => target(1..700_u64).prop_map(Step::Unmap),
        2 => (target(1..700_u64), protection()).prop_map(|(target, protection)| Step::Protect(target, protection)),
        6 => (target(Just(1_u64)), 0..4_u64).prop_map(|(target, value)| Step::Write(target, value)),
        6 => target(Just(1_u64)).prop_map(Step::Read),
        2 => target(Just(1_u64)).prop_map(Step::Reclaim),
        2 => target(Just(1_u64)).prop_map(Step::Migrate),
        2 => target(1..700_u64).prop_map(Step::Fork),
        2 => target(1..700_u64).prop_map(Step::Remap),
        2 => Just(Step::Merge),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_address_space_does_what_a_map_of_pages_does(steps in prop::collection::vec(step(), 1..80)) {
        let arena = Arc::new(Arena::new(1 << 18).unwrap());
        let space = Arc::new(HostSpace::new(arena.clone()));
        let merger = Merger::new(space.clone());
        merger.set(Tunables { pages_to_scan: 1000, max_page_sharing: 100, ..Tunables::default() }).unwrap();
        let mut model = Model::default();
        for step in steps {
            apply(&space, &merger, &mut model, &step);
        }
        recount(&space, &merger, &model);
        for (page, (protection, cell)) in &model.pages {
            let value = model.values.get(cell).copied().unwrap_or(0);
            assert_eq!(space.read_u64(hva(*page)), Ok(value), "page {page:#x}");
            assert_eq!(space.resolve(hva(*page), true).is_ok(), *protection == Protection::ReadWrite);
        }
        for mapped in &model.mapped {
            space.munmap(range(mapped)).unwrap();
        }
        drop(merger);
        assert_eq!((arena.in_use(), space.swapped()), (0, 0));
    }
}
