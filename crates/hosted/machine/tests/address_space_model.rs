//! The host's address space, and its page merger, beside a model that is a map from pages to what they hold; and
//! beside somebody who remembers every frame that it was ever told, and forgets only what a notifier has to.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use mayfly_machine::Arena;
use mayfly_machine::address_space::{
    Backing, Change, Error, Fault, HostSpace, Notifier, PageChange, Protection, Resolved, Rights,
};
use mayfly_machine::merger::{Merger, Run, Tunables};
use mayfly_platform::address::{Hva, PAGE_SHIFT, Pfn};
use mayfly_stage2::Level;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Map {
        pages: u64,
        backing: Backing,
        protection: Protection,
    },
    Unmap(Target),
    Protect(Target, Protection),
    Write(Target, u64),
    Read(Target),
    Reclaim(Target),
    Migrate(Target),
    Fork(Target),
    Remap(Target),
    /// To where the second target is, if nothing is there.
    RemapTo(Target, Target),
    Merge,
    Unregister(Target),
    Unmerge,
    /// The step after this one gets so many frames.
    Starve(u64),
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
    /// Of mappings whose frames are there for good, of how many frames each.
    fixed: Vec<Option<Fixed>>,
}

/// How many frames there are for good.
#[derive(Clone, Copy, Debug)]
enum Fixed {
    /// One for each page that is left.
    EachPage,
    /// So many, while a page is left.
    Block(u64),
}

impl Model {
    /// What comes of moving or copying these pages.
    fn expected(&self, pages: &Range<u64>) -> Result<(), Error> {
        let mut found = pages.clone().map(|page| self.pages.get(&page));
        if found.clone().any(|page| page.is_none()) {
            return Err(Error::NotMapped);
        }
        let is_fixed = |page: Option<&(Protection, Cell)>| {
            page.is_some_and(|page| self.fixed[page.1.0].is_some())
        };
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

    /// How many frames are there for good.
    fn fixed_frames(&self) -> u64 {
        let (mut frames, mut blocks) = (0, HashMap::new());
        for (_, (mapping, _)) in self.pages.values() {
            match self.fixed[*mapping] {
                Some(Fixed::EachPage) => frames += 1,
                Some(Fixed::Block(pages)) => _ = blocks.insert(*mapping, pages),
                None => {}
            }
        }
        frames + blocks.values().sum::<u64>()
    }
}

/// Remembers in which frame each page is that it was told of, and whether it may be written, as a VM's tables do.
#[derive(Default)]
struct Tables {
    entries: Mutex<BTreeMap<u64, Entry>>,
    /// What is being changed.
    changing: Mutex<Vec<Change>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    frame: Pfn,
    writable: bool,
}

impl Tables {
    /// Takes the block that `page` was resolved to be in.
    fn map(&self, page: u64, resolved: Resolved) {
        let first = page - page % resolved.level.pages();
        for at in first..first + resolved.level.pages() {
            let frame = Pfn::new(resolved.pfn.get() + at - page);
            let entry = Entry { frame, writable: resolved.writable };
            self.entries.lock().unwrap().insert(at, entry);
        }
    }

    /// Whether every page is still where it was, and may be written if it might be.
    fn check(&self, space: &HostSpace) {
        assert!(self.changing.lock().unwrap().is_empty());
        for (page, entry) in self.entries.lock().unwrap().iter() {
            let resolved = space.resolve(hva(*page), false);
            let is_right = resolved.is_ok_and(|resolved| {
                resolved.pfn == entry.frame && (resolved.writable || !entry.writable)
            });
            assert!(is_right, "page {page:#x} is not {entry:?} but {resolved:?}");
        }
    }

    fn is_changing(&self, page: Hva) -> bool {
        self.changing.lock().unwrap().iter().any(|change| change.range.contains(&page))
    }
}

impl Notifier for Tables {
    fn invalidate_start(&self, change: &Change) {
        self.changing.lock().unwrap().push(change.clone());
        let mut entries = self.entries.lock().unwrap();
        let Range { start, end } = change.range;
        let mut after = entries.split_off(&(start.get() >> PAGE_SHIFT));
        entries.append(&mut after.split_off(&(end.get() >> PAGE_SHIFT)));
        for (page, entry) in after {
            let is_known = change.old == Rights::ReadWrite || !entry.writable;
            assert!(is_known, "page {page:#x} is {entry:?}, and {change:?}");
            if change.new != Rights::None {
                entries.insert(page, Entry { writable: false, ..entry });
            }
        }
    }

    fn change_pte(&self, page: Hva, change: &PageChange) {
        assert!(self.is_changing(page) && change.same_contents);
        if let Some(entry) = self.entries.lock().unwrap().get_mut(&(page.get() >> PAGE_SHIFT)) {
            assert_eq!(*entry, Entry { frame: change.old, writable: false });
            entry.frame = change.new;
        }
    }

    fn allow_writes(&self, page: Hva, frame: Pfn) {
        assert!(self.is_changing(page));
        if let Some(entry) = self.entries.lock().unwrap().get_mut(&(page.get() >> PAGE_SHIFT)) {
            assert_eq!(entry.frame, frame);
            entry.writable = true;
        }
    }

    fn invalidate_end(&self, change: &Change) {
        assert_eq!(self.changing.lock().unwrap().pop().as_ref(), Some(change));
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

/// An address space, what is beside it, and what it should be.
struct Beside {
    arena: Arc<Arena>,
    space: Arc<HostSpace>,
    merger: Merger,
    tables: Arc<Tables>,
    model: Model,
    /// Whether there may be too few frames.
    starves: bool,
}

impl Beside {
    fn new(use_zero_pages: bool) -> Self {
        let arena = Arc::new(Arena::new(1 << 18).unwrap());
        let space = Arc::new(HostSpace::new(arena.clone()));
        let merger = Merger::new(space.clone());
        let tunables = Tunables {
            pages_to_scan: 1000,
            max_page_sharing: 100,
            use_zero_pages,
            pages_to_merge: 8,
            ..Tunables::default()
        };
        merger.set(tunables).unwrap();
        let tables = Arc::<Tables>::default();
        space.register(tables.clone());
        Self { arena, space, merger, tables, model: Model::default(), starves: false }
    }

    fn apply(&mut self, step: &Step) {
        if let Step::Starve(frames) = *step {
            self.arena.fail_allocations(frames..u64::MAX);
            self.starves = true;
            return;
        }
        match *step {
            Step::Map { pages, backing, protection } => self.map(pages, backing, protection),
            Step::Unmap(target) => {
                let pages = self.model.target(target);
                self.space.munmap(range(&pages)).unwrap();
                for page in pages {
                    self.model.pages.remove(&page);
                }
            }
            Step::Protect(target, protection) => {
                let pages = self.model.target(target);
                self.protect(&pages, protection);
            }
            Step::Write(target, value) => {
                let page = self.model.target(target).start;
                self.write(page, value);
            }
            Step::Read(target) => {
                let page = self.model.target(target).start;
                self.read(page);
            }
            Step::Reclaim(target) => {
                self.space.reclaim(hva(self.model.target(target).start));
            }
            Step::Migrate(target) => {
                let pages = self.model.target(target);
                let moved = self.space.migrate_range(range(&pages)).map(|_| ());
                self.is_refused(moved);
            }
            Step::Fork(target) => {
                let pages = self.model.target(target);
                self.fork(&pages);
            }
            Step::Remap(target) => {
                let pages = self.model.target(target);
                self.remap(&pages, None);
            }
            Step::RemapTo(target, to) => {
                let (pages, to) = (self.model.target(target), self.model.target(to).start);
                self.remap(&pages, Some(to));
            }
            Step::Merge => {
                self.merger.scan_all();
                self.feed();
                self.recount();
            }
            Step::Unregister(target) => {
                let pages = self.model.target(target);
                let unregistered = self.merger.unregister(range(&pages));
                if !self.is_refused(unregistered) {
                    self.expect_own(&pages);
                }
            }
            Step::Unmerge => {
                let tunables = self.merger.tunables();
                let unmerged = self.merger.set(Tunables { run: Run::Unmerge, ..tunables });
                self.is_refused(unmerged.map_err(Error::from));
            }
            Step::Starve(_) => {}
        }
        self.feed();
        // Reading changes nothing that somebody has.
        if !matches!(step, Step::Read(_)) {
            self.tables.check(&self.space);
        }
    }

    /// Lets there be frames again.
    fn feed(&mut self) {
        self.arena.fail_allocations(0..0);
        self.starves = false;
    }

    /// Whether there were too few frames.
    fn is_refused(&self, outcome: Result<(), Error>) -> bool {
        match outcome {
            Ok(()) => false,
            Err(Error::OutOfMemory(_)) if self.starves => true,
            Err(error) => panic!("{error}"),
        }
    }

    fn map(&mut self, pages: u64, backing: Backing, protection: Protection) {
        let mapped = self.space.mmap(pages << PAGE_SHIFT, backing, protection);
        if self.is_refused(mapped.map(|_| ())) {
            return;
        }
        let first = mapped.unwrap().get() >> PAGE_SHIFT;
        let (unit, repeat, fixed) = match backing {
            Backing::Pages => (1, u64::MAX, None),
            Backing::HugePages => (512, u64::MAX, None),
            Backing::Contiguous => (1, u64::MAX, Some(Fixed::EachPage)),
            Backing::Shared(level) => {
                (level.pages(), level.pages(), Some(Fixed::Block(level.pages())))
            }
        };
        let model = &mut self.model;
        let pages = first..first + pages.next_multiple_of(unit);
        for page in pages.clone() {
            let cell = (model.mapped.len(), (page - first) % repeat);
            let was = model.pages.insert(page, (protection, cell));
            assert!(was.is_none(), "page {page:#x} was mapped");
        }
        let expected = if fixed.is_some() { Err(Error::Invalid) } else { Ok(()) };
        assert_eq!(self.merger.register(range(&pages)), expected);
        model.mapped.push(pages);
        model.fixed.push(fixed);
    }

    fn protect(&mut self, pages: &Range<u64>, protection: Protection) {
        let covered = pages.clone().all(|page| self.model.pages.contains_key(&page));
        let expected = if covered { Ok(()) } else { Err(Error::NotMapped) };
        assert_eq!(self.space.mprotect(range(pages), protection), expected);
        if covered {
            for (_, (was, _)) in self.model.pages.range_mut(pages.clone()) {
                *was = protection;
            }
        }
    }

    fn write(&mut self, page: u64, value: u64) {
        let written = self.space.write_u64(hva(page), value);
        if self.starves && matches!(written, Err(Fault::OutOfMemory(_))) {
            return;
        }
        let expected = match self.model.pages.get(&page) {
            None => Err(Fault::NotMapped),
            Some((Protection::ReadOnly, _)) => Err(Fault::ReadOnly),
            Some((Protection::ReadWrite, cell)) => {
                self.model.values.insert(*cell, value);
                Ok(())
            }
        };
        assert_eq!(written, expected);
        if written.is_ok() {
            self.tables.map(page, self.space.resolve(hva(page), true).unwrap());
        }
    }

    fn read(&self, page: u64) {
        let read = self.space.read_u64(hva(page));
        if self.starves && matches!(read, Err(Fault::OutOfMemory(_))) {
            return;
        }
        let Model { pages, values, .. } = &self.model;
        let value = |(_, cell): &(_, Cell)| values.get(cell).copied().unwrap_or(0);
        assert_eq!(read, pages.get(&page).map(value).ok_or(Fault::NotMapped));
        if read.is_ok() {
            let resolved = self.space.resolve(hva(page), false).unwrap();
            if resolved.level == Level::MIB2 {
                assert!(is_block(&self.space, page, Level::MIB2), "page {page:#x} is in no block");
            }
            self.tables.map(page, resolved);
        }
    }

    fn fork(&mut self, pages: &Range<u64>) {
        let forked = self.space.fork(range(pages));
        if self.starves && matches!(forked, Err(Error::OutOfMemory(_))) {
            return;
        }
        let model = &mut self.model;
        assert_eq!(forked.map(|_| ()), model.expected(pages));
        let Ok(forked) = forked else { return };
        let first = forked.get() >> PAGE_SHIFT;
        for page in pages.clone() {
            let (protection, cell) = model.pages[&page];
            let copy = (model.mapped.len(), page - pages.start);
            if let Some(value) = model.values.get(&cell).copied() {
                model.values.insert(copy, value);
            }
            model.pages.insert(page - pages.start + first, (protection, copy));
        }
        model.mapped.push(first..first + (pages.end - pages.start));
        model.fixed.push(None);
    }

    fn remap(&mut self, pages: &Range<u64>, to: Option<u64>) {
        let moved = self.space.mremap(range(pages), to.map(hva));
        let model = &mut self.model;
        let may_go = |first: u64| {
            let to = first..first + (pages.end - pages.start);
            first >= 1 << 32 && model.pages.range(to).next().is_none()
        };
        let expected = model.expected(pages).and_then(|()| match to {
            Some(first) if !may_go(first) => Err(Error::Invalid),
            _ => Ok(()),
        });
        assert_eq!(moved.map(|_| ()), expected);
        let Ok(moved) = moved else { return };
        let first = moved.get() >> PAGE_SHIFT;
        assert!(to.is_none_or(|to| to == first));
        for page in pages.clone() {
            let moved = model.pages.remove(&page).unwrap();
            model.pages.insert(page - pages.start + first, moved);
        }
        let to = first..first + (pages.end - pages.start);
        self.merger.register(range(&to)).unwrap();
        model.mapped.push(to);
        model.fixed.push(None);
    }

    /// None of `pages` that may be written shares its frame.
    fn expect_own(&mut self, pages: &Range<u64>) {
        self.feed();
        for (page, (protection, _)) in self.model.pages.range(pages.clone()) {
            let resolved = self.space.resolve(hva(*page), false).unwrap();
            assert_eq!(resolved.writable, *protection == Protection::ReadWrite);
        }
    }

    /// Counts by hand what is shared, the merger having a reference of its own to each frame that it has made to be;
    /// and all frames that are in use.
    fn recount(&self) {
        let Self { arena, space, merger, model, .. } = self;
        let mut pages = HashMap::<_, u64>::new();
        for (page, (_, (mapping, _))) in &model.pages {
            if model.fixed[*mapping].is_none() {
                *pages.entry(space.resolve(hva(*page), false).unwrap().pfn).or_default() += 1;
            }
        }
        let statistics = merger.statistics();
        let zero = statistics.ksm_zero_pages;
        let others = arena.in_use() - pages.len() as u64 - model.fixed_frames();
        let has_zero_frame = zero == 0 && merger.tunables().use_zero_pages;
        assert!(others <= u64::from(has_zero_frame), "{others} frames have been lost");

        pages.retain(|frame, pages| arena.references(*frame) == *pages + 1);
        let (shared, sharing) = (pages.len() as u64, pages.values().sum::<u64>());
        assert_eq!(statistics.pages_shared + u64::from(zero > 0), shared);
        assert_eq!(statistics.pages_shared + statistics.pages_sharing + zero, sharing);
    }
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
        2 => target(1..200_u64).prop_map(Step::Migrate),
        2 => target(1..700_u64).prop_map(Step::Fork),
        2 => target(1..700_u64).prop_map(Step::Remap),
        2 => (target(1..700_u64), target(Just(1_u64))).prop_map(|(target, to)| Step::RemapTo(target, to)),
        2 => Just(Step::Merge),
        1 => target(1..700_u64).prop_map(Step::Unregister),
        1 => Just(Step::Unmerge),
        2 => (0..3_u64).prop_map(Step::Starve),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_address_space_does_what_a_map_of_pages_does(
        steps in prop::collection::vec(step(), 1..80),
        use_zero_pages in any::<bool>(),
    ) {
        let mut beside = Beside::new(use_zero_pages);
        for step in steps {
            beside.apply(&step);
        }
        beside.apply(&Step::Merge);
        let Beside { arena, space, merger, model, .. } = beside;
        for (page, (protection, cell)) in &model.pages {
            let value = model.values.get(cell).copied().unwrap_or(0);
            assert_eq!(space.read_u64(hva(*page)), Ok(value), "page {page:#x}");
            assert_eq!(space.resolve(hva(*page), true).is_ok(), *protection == Protection::ReadWrite);
        }
        for mapped in &model.mapped {
            space.munmap(range(mapped)).unwrap();
        }
        assert_eq!(space.swapped(), 0);
        drop((merger, space));
        assert_eq!(arena.in_use(), 0);
    }
}
