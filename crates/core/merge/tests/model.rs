//! The merger against a host that is a map, whose guests write at any moment: between a look and a merge, too.

#![cfg(not(mayfly_loom))]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mayfly_merge::{Group, Host, Limits, Looked, Merged, Merger, Steps, share};
use mayfly_platform::address::Pfn;
use proptest::prelude::*;

const PAGES: u64 = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    frame: u64,
    shared: bool,
    /// What the guest wrote last.
    value: u64,
}

/// What guests do, whenever the host is asked for something.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Nothing,
    Write(u64, u64),
    /// The page is gone.
    Drop(u64),
}

#[derive(Debug, Default)]
struct State {
    pages: BTreeMap<u64, Page>,
    contents: BTreeMap<u64, u64>,
    references: BTreeMap<u64, u64>,
    next: u64,
    deeds: VecDeque<Deed>,
    /// Pages to which nobody writes until a change is over; what comes meanwhile comes after it.
    protected: BTreeSet<u64>,
    waiting: Vec<Deed>,
    stable: BTreeSet<u64>,
}

impl State {
    fn put(&mut self, frame: u64) {
        let references = self.references.get_mut(&frame).unwrap();
        *references -= 1;
        if *references == 0 {
            self.references.remove(&frame);
            self.contents.remove(&frame);
        }
    }

    fn write(&mut self, page: u64, value: u64) {
        if let Some(Page { frame, shared: false, .. }) = self.pages.get(&page).copied() {
            self.contents.insert(frame, value);
            self.pages.get_mut(&page).unwrap().value = value;
            return;
        }
        self.drop(page);
        let frame = self.next;
        self.next += 1;
        self.contents.insert(frame, value);
        self.references.insert(frame, 1);
        self.pages.insert(page, Page { frame, shared: false, value });
    }

    fn drop(&mut self, page: u64) {
        if let Some(Page { frame, .. }) = self.pages.remove(&page) {
            self.put(frame);
        }
    }

    fn act(&mut self) {
        if let Some(deed) = self.deeds.pop_front() {
            match deed {
                Deed::Write(page, _) | Deed::Drop(page) if self.protected.contains(&page) => {
                    self.waiting.push(deed);
                }
                Deed::Write(page, value) => self.write(page, value),
                Deed::Drop(page) => self.drop(page),
                Deed::Nothing => {}
            }
        }
    }
}

#[derive(Debug, Default)]
struct Naive(RefCell<State>, bool);

/// Contents of a few sums: many that differ have one in common.
fn sum(value: u64) -> u64 {
    (value % 3) << 40
}

impl Naive {
    fn act(&self) {
        self.0.borrow_mut().act();
    }

    fn content(&self, page: u64) -> Option<u64> {
        let state = self.0.borrow();
        state.pages.get(&page).map(|page| state.contents[&page.frame])
    }
}

struct Change<'a> {
    host: &'a Naive,
    first: u64,
    with: &'a [Pfn],
    /// For each page, whether it holds what its frame does.
    equal: Vec<bool>,
    became: Vec<Merged>,
}

impl Steps for Change<'_> {
    fn protect(&mut self) {
        let pages = self.first..self.first + self.with.len() as u64;
        self.host.0.borrow_mut().protected.extend(pages);
        self.host.act();
    }

    fn close(&mut self) {
        self.host.act();
    }

    fn compare(&mut self) {
        for (page, with) in (self.first..).zip(self.with) {
            self.host.act();
            let stable = self.host.0.borrow().contents[&with.get()];
            self.equal.push(self.host.content(page) == Some(stable));
        }
    }

    fn replace(&mut self) {
        self.host.act();
        let state = &mut *self.host.0.borrow_mut();
        for ((page, with), equal) in (self.first..).zip(self.with).zip(&self.equal) {
            let with = with.get();
            let frame = state.pages.get(&page).map(|page| page.frame);
            self.became.push(match frame {
                Some(frame) if frame == with => Merged::Before,
                Some(frame) if *equal => {
                    *state.references.get_mut(&with).unwrap() += 1;
                    let page = state.pages.get_mut(&page).unwrap();
                    (page.frame, page.shared) = (with, true);
                    state.put(frame);
                    Merged::Now
                }
                _ => Merged::No,
            });
        }
    }

    fn end(&mut self) {
        let state = &mut *self.host.0.borrow_mut();
        state.protected.clear();
        let waiting = std::mem::take(&mut state.waiting);
        waiting.into_iter().rev().for_each(|deed| state.deeds.push_front(deed));
    }
}

impl Host for Naive {
    fn is_merged(&self, page: u64) -> bool {
        let state = self.0.borrow();
        self.1 && state.pages.get(&page).is_some_and(|page| state.stable.contains(&page.frame))
    }

    fn look(&self, page: u64) -> Option<Looked> {
        self.act();
        let state = self.0.borrow();
        let Page { frame, shared, .. } = *state.pages.get(&page)?;
        Some(Looked { frame: Pfn::new(frame), shared, sum: sum(state.contents[&frame]) })
    }

    fn frame(&self, page: u64) -> Option<Pfn> {
        self.act();
        self.0.borrow().pages.get(&page).map(|page| Pfn::new(page.frame))
    }

    fn holds(&self, page: u64, frame: Pfn) -> bool {
        self.act();
        self.content(page).is_some_and(|content| self.0.borrow().contents[&frame.get()] == content)
    }

    fn equal(&self, page: u64, other: u64) -> bool {
        self.act();
        self.content(page).is_some() && self.content(page) == self.content(other)
    }

    fn references(&self, frame: Pfn) -> u64 {
        self.0.borrow().references[&frame.get()]
    }

    fn close(&self, _group: Group, page: u64, frame: Pfn, wanted: u64) -> Option<Pfn> {
        self.act();
        let state = &mut *self.0.borrow_mut();
        let found = state.pages.get_mut(&page).filter(|found| found.frame == frame.get())?;
        if sum(state.contents[&found.frame]) != wanted {
            return None;
        }
        found.shared = true;
        *state.references.get_mut(&found.frame).unwrap() += 1;
        assert!(state.stable.insert(found.frame), "a frame is stable once");
        Some(frame)
    }

    fn merge(&self, first: u64, with: &[Pfn], became: &mut dyn FnMut(Merged)) {
        let (equal, changed) = (Vec::new(), Vec::new());
        let mut change = Change { host: self, first, with, equal, became: changed };
        share(&mut change);
        change.became.into_iter().for_each(became);
    }

    fn put(&self, frame: Pfn) {
        let state = &mut *self.0.borrow_mut();
        assert!(state.stable.remove(&frame.get()), "what is given back is stable");
        state.put(frame.get());
    }

    fn while_settled(&self, then: &mut dyn FnMut()) {
        then();
    }
}

/// Which group each page is registered in.
type Groups = BTreeMap<u64, Group>;

fn check(host: &Naive, merger: &Merger, groups: &Groups) -> Result<(), TestCaseError> {
    let state = host.0.borrow();
    let mut having = BTreeMap::<u64, Vec<u64>>::new();
    for (page, Page { frame, value, .. }) in &state.pages {
        prop_assert_eq!(state.contents[frame], *value, "page {} holds what was written", page);
        having.entry(*frame).or_default().push(*page);
    }
    for (frame, references) in &state.references {
        let pages = having.get(frame).map_or(0, Vec::len) as u64;
        let stable = u64::from(state.stable.contains(frame));
        prop_assert_eq!(*references, pages + stable, "references of frame {}", frame);
        prop_assert!(pages < 2 || stable == 1, "only a stable frame is shared");
    }
    for pages in having.values() {
        let all: BTreeSet<_> =
            pages.iter().filter_map(|page| groups.get(page)).map(|it| it.0).collect();
        prop_assert!(all.len() < 2, "{:?} are of several groups", pages);
    }
    let shared = state.stable.iter().filter_map(|frame| having.get(frame)).map(Vec::len);
    let counts = shared.fold((0, 0), |(frames, more), pages| (frames + 1, more + pages as u64 - 1));
    drop(state);
    let statistics = merger.statistics(host);
    prop_assert_eq!((statistics.pages_shared, statistics.pages_sharing), counts);
    Ok(())
}

#[derive(Clone, Debug)]
enum Step {
    Deed(Deed),
    Scan(u64, Vec<Deed>),
    Register(u32, u64, u64),
    Unregister(u64, u64),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => Just(Deed::Nothing),
        3 => (0..PAGES, 0..4_u64).prop_map(|(page, value)| Deed::Write(page, value)),
        1 => (0..PAGES).prop_map(Deed::Drop),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => deed().prop_map(Step::Deed),
        6 => (1..2 * PAGES, prop::collection::vec(deed(), 0..12))
            .prop_map(|(most, deeds)| Step::Scan(most, deeds)),
        1 => (0..2_u32, 0..PAGES, 1..8_u64)
            .prop_map(|(group, first, count)| Step::Register(group, first, count)),
        1 => (0..PAGES, 1..8_u64).prop_map(|(first, count)| Step::Unregister(first, count)),
    ]
}

/// Those pages that are merged with others stay so: so a page leaves its group only with a frame of its own.
fn unregister(host: &Naive, merger: &mut Merger, groups: &mut Groups, first: u64, count: u64) {
    merger.unregister(host, &(first..first + count)).unwrap();
    for page in first..first + count {
        groups.remove(&page);
        let value = host.content(page);
        if let Some(value) = value {
            host.0.borrow_mut().write(page, value);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_lost_or_merged_across_groups_and_counts_are_those_of_a_recount(
        most in prop_oneof![Just(2), Just(3), Just(u64::MAX)],
        together in 1..5_u64,
        knows: bool,
        passes in prop_oneof![Just(1), Just(2), Just(8)],
        light in 1..4_u64,
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let host = Naive(RefCell::default(), knows);
        let (mut merger, mut groups) = (Merger::new(), Groups::new());
        let limits = Limits { max_page_sharing: most, pages_to_merge: together, pages_a_find: 1, most_passes: passes, pages_a_look: light };
        for page in 0..PAGES {
            host.0.borrow_mut().write(page, page % 4);
        }
        for (group, first) in [(0, 0), (1, PAGES / 2)] {
            let pages = first..first + PAGES / 2;
            merger.register(&host, Group(group), pages.clone()).unwrap();
            groups.extend(pages.map(|page| (page, Group(group))));
        }
        for step in steps {
            match step {
                Step::Deed(deed) => {
                    host.0.borrow_mut().deeds.push_back(deed);
                    host.act();
                }
                Step::Scan(most, deeds) => {
                    host.0.borrow_mut().deeds.extend(deeds);
                    let through = merger.scan(&host, &limits, most);
                    let (least, all) = (most.min(merger.pages()), merger.pages());
                    prop_assert!((least..=all.min(most * light)).contains(&through));
                }
                Step::Register(group, first, count) => {
                    merger.register(&host, Group(group), first..first + count).unwrap();
                    for page in first..first + count {
                        groups.entry(page).or_insert(Group(group));
                    }
                }
                Step::Unregister(first, count) => {
                    unregister(&host, &mut merger, &mut groups, first, count);
                }
            }
            check(&host, &merger, &groups)?;
        }
        host.0.borrow_mut().deeds.clear();

        // Where nobody writes, what is equal shares a frame after two looks at each page.
        (0..3 * passes).for_each(|_| { merger.scan(&host, &limits, PAGES * 2); });
        check(&host, &merger, &groups)?;
        if most == u64::MAX {
            let state = host.0.borrow();
            let mut frames = BTreeMap::<_, BTreeSet<u64>>::new();
            for (page, group) in &groups {
                if let Some(page) = state.pages.get(page) {
                    frames.entry((group.0, page.value)).or_default().insert(page.frame);
                }
            }
            prop_assert!(frames.values().all(|frames| frames.len() == 1), "{:?}", frames);
        }

        unregister(&host, &mut merger, &mut groups, 0, 2 * PAGES);
        (0..PAGES * 2).for_each(|page| host.0.borrow_mut().drop(page));
        merger.scan(&host, &limits, 1);
        prop_assert!(host.0.borrow().references.is_empty(), "all frames are given back");
    }
}

#[test]
fn no_frame_has_more_pages_than_it_may_where_pages_are_merged_together() {
    let (host, mut merger) = (Naive::default(), Merger::new());
    (0..PAGES).for_each(|page| host.0.borrow_mut().write(page, 1));
    merger.register(&host, Group(0), 0..PAGES).unwrap();
    let limits = Limits {
        max_page_sharing: 5,
        pages_to_merge: 8,
        pages_a_find: 1,
        most_passes: 1,
        pages_a_look: 1,
    };
    (0..4).for_each(|_| assert_eq!(merger.scan(&host, &limits, PAGES), PAGES));
    let state = host.0.borrow();
    let pages = |frame: &u64| state.pages.values().filter(|page| page.frame == *frame).count();
    let most = state.stable.iter().map(pages).max();
    assert_eq!(most, Some(5));
}

#[test]
fn no_more_pages_wait_for_an_equal_than_there_is_room_for() {
    let (host, mut merger) = (Naive::default(), Merger::new());
    (0..PAGES).for_each(|page| host.0.borrow_mut().write(page, page));
    host.0.borrow_mut().write(PAGES - 1, PAGES - 2);
    merger.register(&host, Group(0), 0..PAGES).unwrap();
    let scan = |merger: &mut Merger, pages_a_find| {
        let limits = Limits {
            max_page_sharing: 256,
            pages_to_merge: 1,
            pages_a_find,
            most_passes: 1,
            pages_a_look: 1,
        };
        merger.scan(&host, &limits, PAGES);
        merger.statistics(&host).pages_sharing
    };
    // At the first look nothing waits. Then there is room for the first half, and then for the second.
    assert_eq!([(); 3].map(|()| scan(&mut merger, 2)), [0, 0, 1]);
}

/// However many pages have no equal, and wherever these two are: they find each other though few pages may wait for one.
#[test]
fn two_pages_find_each_other_though_one_in_eight_may_wait_and_most_have_no_equal() {
    for (first, second) in
        [(0, 1), (1, PAGES - 1), (PAGES / 2, PAGES / 2 + 9), (PAGES - 2, PAGES - 1)]
    {
        for (most_passes, late) in [(1, 0), (8, 0), (8, 150), (2, 40)] {
            let (host, mut merger) = (Naive::default(), Merger::new());
            (0..PAGES).for_each(|page| host.0.borrow_mut().write(page, page));
            merger.register(&host, Group(0), 0..PAGES).unwrap();
            let limits = Limits {
                max_page_sharing: 256,
                pages_to_merge: 1,
                pages_a_find: 8,
                most_passes,
                pages_a_look: 1,
            };
            (0..late).for_each(|_| _ = merger.scan(&host, &limits, PAGES));
            host.0.borrow_mut().write(second, first);
            let mut passes = (0..300).map(|_| {
                merger.scan(&host, &limits, PAGES);
                merger.statistics(&host).pages_sharing
            });
            assert!(
                passes.any(|sharing| sharing == 1),
                "{first} and {second}, {most_passes}, {late}"
            );
        }
    }
}

/// Whoever makes many pages of one sum keeps a look from being long.
#[test]
fn a_look_at_a_page_compares_few_however_many_have_its_sum() {
    #[derive(Default)]
    struct Counting(Naive, RefCell<u64>);
    impl Host for Counting {
        fn look(&self, page: u64) -> Option<Looked> {
            self.0.look(page)
        }
        fn frame(&self, page: u64) -> Option<Pfn> {
            self.0.frame(page)
        }
        fn holds(&self, page: u64, frame: Pfn) -> bool {
            *self.1.borrow_mut() += 1;
            self.0.holds(page, frame)
        }
        fn equal(&self, page: u64, other: u64) -> bool {
            *self.1.borrow_mut() += 1;
            self.0.equal(page, other)
        }
        fn references(&self, frame: Pfn) -> u64 {
            self.0.references(frame)
        }
        fn close(&self, group: Group, page: u64, frame: Pfn, sum: u64) -> Option<Pfn> {
            self.0.close(group, page, frame, sum)
        }
        fn merge(&self, first: u64, with: &[Pfn], became: &mut dyn FnMut(Merged)) {
            self.0.merge(first, with, became);
        }
        fn put(&self, frame: Pfn) {
            self.0.put(frame);
        }
        fn while_settled(&self, then: &mut dyn FnMut()) {
            then();
        }
    }
    let (host, mut merger) = (Counting::default(), Merger::new());
    for page in 0..1000 {
        host.0.0.borrow_mut().write(page, 3 * page);
    }
    merger.register(&host, Group(0), 0..1000).unwrap();
    let limits = Limits {
        max_page_sharing: 256,
        pages_to_merge: 1,
        pages_a_find: 1,
        most_passes: 1,
        pages_a_look: 1,
    };
    merger.scan(&host, &limits, 1000);
    merger.scan(&host, &limits, 1000);
    let compared = *host.1.borrow();
    assert!((7000..=16_000).contains(&compared), "{compared} comparisons of 1000 pages");
}
