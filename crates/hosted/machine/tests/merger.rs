//! The page merger: what it merges, what it leaves alone, and what it says of it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, scope, spawn, yield_now};

use mayfly_machine::Arena;
use mayfly_machine::address_space::{
    Backing, Change, Fault, HostSpace, Notifier, PageChange, Protection, Reason,
};
use mayfly_machine::merger::{Merger, MergerThread, Run, Statistics, Tunables};
use mayfly_platform::address::{Hva, PAGE_SIZE, Pfn};

use mayfly_platform::testing::threads::{Over, until};

fn space(frames: usize) -> (Arc<Arena>, Arc<HostSpace>) {
    let arena = Arc::new(Arena::new(frames).unwrap());
    (arena.clone(), Arc::new(HostSpace::new(arena)))
}

fn at(start: Hva, page: u64) -> Hva {
    Hva::new(start.get() + page * PAGE_SIZE)
}

fn pages(start: Hva, count: u64) -> Range<Hva> {
    start..at(start, count)
}

fn filled(space: &HostSpace, values: &[u64]) -> Hva {
    let bytes = values.len() as u64 * PAGE_SIZE;
    let start = space.mmap(bytes, Backing::Pages, Protection::ReadWrite).unwrap();
    for (page, value) in (0..).zip(values) {
        space.write_u64(at(start, page), *value).unwrap();
    }
    start
}

fn merger(space: &Arc<HostSpace>, range: Range<Hva>, tunables: Tunables) -> Merger {
    let merger = Merger::new(space.clone());
    merger.set(tunables).unwrap();
    merger.register(range).unwrap();
    merger
}

/// What is shared, counted page by page.
fn recount(space: &HostSpace, start: Hva, count: u64) -> (u64, u64) {
    let mut pages = HashMap::<Pfn, u64>::new();
    for page in 0..count {
        let frame = space.resolve(at(start, page), false).unwrap().pfn;
        *pages.entry(frame).or_default() += 1;
    }
    pages.retain(|frame, pages| space.arena().references(*frame) == *pages + 1);
    (pages.len() as u64, pages.values().map(|pages| pages - 1).sum())
}

#[test]
fn pages_that_stay_equal_are_merged_in_the_second_pass_and_others_are_not() {
    let (arena, space) = space(64);
    let start = filled(&space, &[1, 2, 1, 3, 2, 1]);
    let merger = merger(&space, pages(start, 6), Tunables::default());
    merger.scan_all();
    let first = merger.statistics();
    assert_eq!((first.pages_volatile, first.pages_shared, first.full_scans), (6, 0, 1));
    merger.scan_all();
    let second = merger.statistics();
    assert_eq!((second.pages_shared, second.pages_sharing), (2, 3));
    assert_eq!((second.pages_unshared, second.pages_volatile), (1, 0));
    assert_eq!((arena.in_use(), second.pages_scanned), (3, 12));
    let values: Vec<_> = (0..6).map(|page| space.read_u64(at(start, page)).unwrap()).collect();
    assert_eq!(values, [1, 2, 1, 3, 2, 1]);
    assert_eq!(recount(&space, start, 6), (2, 3));
}

#[test]
fn a_page_that_becomes_equal_to_what_is_shared_is_merged_at_the_next_look() {
    let (_, space) = space(64);
    let start = filled(&space, &[1, 1, 2]);
    let merger = merger(&space, pages(start, 3), Tunables::default());
    merger.scan_all();
    merger.scan_all();
    space.write_u64(at(start, 2), 1).unwrap();
    merger.scan_all();
    assert_eq!(merger.statistics().pages_sharing, 2);
}

#[test]
fn a_page_that_changes_between_looks_is_left_alone() {
    let (_, space) = space(64);
    let start = filled(&space, &[0, 0]);
    let merger = merger(&space, pages(start, 2), Tunables::default());
    for pass in 1..6 {
        for page in 0..2 {
            space.write_u64(at(start, page), pass).unwrap();
        }
        merger.scan_all();
        let statistics = merger.statistics();
        assert_eq!((statistics.pages_volatile, statistics.pages_shared), (2, 0));
    }
}

#[test]
fn what_is_broken_is_no_longer_counted_and_its_frame_is_given_up_after_the_pass() {
    let (arena, space) = space(64);
    let start = filled(&space, &[1, 1]);
    let merger = merger(&space, pages(start, 2), Tunables::default());
    merger.scan_all();
    merger.scan_all();
    space.write_u64(start, 2).unwrap();
    let statistics = merger.statistics();
    assert_eq!((statistics.pages_shared, statistics.pages_sharing), (1, 0));
    space.write_u64(at(start, 1), 3).unwrap();
    assert_eq!((merger.statistics().pages_shared, arena.in_use()), (0, 3));
    merger.scan_all();
    assert_eq!(arena.in_use(), 2);
}

#[test]
fn no_frame_has_more_pages_than_it_may() {
    let (_, space) = space(64);
    let start = filled(&space, &[1; 10]);
    let tunables = Tunables { max_page_sharing: 4, ..Tunables::default() };
    let merger = merger(&space, pages(start, 10), tunables);
    (0..6).for_each(|_| merger.scan_all());
    let mut pages = HashMap::<Pfn, u64>::new();
    for page in 0..10 {
        *pages.entry(space.resolve(at(start, page), false).unwrap().pfn).or_default() += 1;
    }
    assert!(pages.values().all(|pages| *pages <= 4), "{pages:?}");
    let statistics = merger.statistics();
    assert_eq!((statistics.pages_shared, statistics.pages_sharing), (3, 7));
    assert_eq!((statistics.stable_node_chains, statistics.stable_node_dups), (1, 3));
}

#[test]
fn pages_that_share_already_take_no_room_from_those_that_are_merged_around_them() {
    let (_, space) = space(64);
    let start = filled(&space, &[1, 2, 1, 3]);
    let tunables = Tunables { max_page_sharing: 4, ..Tunables::default() };
    let merger = merger(&space, pages(start, 4), tunables);
    merger.scan_all();
    merger.scan_all();
    for page in [1, 3] {
        space.write_u64(at(start, page), 1).unwrap();
    }
    merger.scan_all();
    let Statistics { pages_shared, pages_sharing, .. } = merger.statistics();
    assert_eq!((pages_shared, pages_sharing), (1, 3));
}

#[test]
fn a_frame_that_forks_share_takes_no_more_pages_than_it_may() {
    let (_, space) = space(64);
    let start = filled(&space, &[1, 1, 1]);
    let _copy = space.fork(pages(start, 1)).unwrap();
    let tunables = Tunables { max_page_sharing: 2, ..Tunables::default() };
    let merger = merger(&space, pages(start, 3), tunables);
    merger.scan_all();
    merger.scan_all();
    let frames = [0, 1, 2].map(|page| space.resolve(at(start, page), false).unwrap().pfn);
    assert_ne!(frames[0], frames[1]);
    assert_eq!(frames[1], frames[2]);
}

#[test]
fn pages_of_zeroes_share_a_frame_that_is_counted_apart() {
    let (arena, space) = space(64);
    let start = filled(&space, &[0, 0, 0, 1]);
    let tunables = Tunables { use_zero_pages: true, max_page_sharing: 2, ..Tunables::default() };
    let merger = merger(&space, pages(start, 4), tunables);
    merger.scan_all();
    merger.scan_all();
    let statistics = merger.statistics();
    assert_eq!((statistics.ksm_zero_pages, statistics.pages_shared, arena.in_use()), (3, 0, 2));
    space.write_u64(start, 5).unwrap();
    assert_eq!((merger.statistics().ksm_zero_pages, space.read_u64(at(start, 1))), (2, Ok(0)));
    drop(merger);
    drop(space);
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn what_is_not_to_be_merged_any_more_gets_frames_of_its_own() {
    let (arena, space) = space(64);
    let start = filled(&space, &[1; 6]);
    let merger = merger(&space, pages(start, 6), Tunables::default());
    merger.scan_all();
    merger.scan_all();
    merger.unregister(pages(start, 2)).unwrap();
    assert_eq!((merger.statistics().pages_sharing, recount(&space, start, 6)), (3, (1, 3)));
    merger.scan_all();
    assert_eq!(recount(&space, start, 6), (1, 3));

    merger.set(Tunables { run: Run::Unmerge, ..Tunables::default() }).unwrap();
    let Statistics { pages_shared, pages_sharing, .. } = merger.statistics();
    assert_eq!((pages_shared, pages_sharing, arena.in_use()), (0, 0, 6));
}

#[test]
fn a_batch_has_as_many_pages_as_were_asked_for_and_a_pass_ends_with_the_last() {
    let (_, space) = space(64);
    let start = filled(&space, &[1, 2, 3, 4, 5]);
    let tunables = Tunables { pages_to_scan: 2, ..Tunables::default() };
    let merger = merger(&space, pages(start, 5), tunables);
    let passes = (0..5).map(|_| {
        assert_eq!(merger.scan_batch(), 2);
        merger.statistics().full_scans
    });
    assert_eq!(passes.collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
}

#[test]
fn a_page_that_waits_for_an_equal_does_so_no_more_when_it_is_unregistered() {
    let (_, space) = space(64);
    let start = filled(&space, &[1, 1]);
    let one_by_one = Tunables { pages_to_scan: 1, ..Tunables::default() };
    let merger = merger(&space, pages(start, 2), one_by_one);
    merger.scan_all();
    merger.scan_batch();
    assert_eq!(merger.statistics().pages_unshared, 1);
    merger.unregister(pages(start, 1)).unwrap();
    merger.scan_all();
    merger.scan_all();
    let Statistics { pages_shared, pages_merged, .. } = merger.statistics();
    assert_eq!((pages_shared, pages_merged, recount(&space, start, 2)), (0, 0, (0, 0)));
    assert!(space.resolve(start, false).unwrap().writable);
}

#[test]
fn a_shared_frame_that_comes_to_where_a_page_waits_for_an_equal_is_counted_once_and_stays_full() {
    let (arena, space) = space(64);
    let start = filled(&space, &[1, 1, 2, 3]);
    let tunables = Tunables { pages_to_scan: 1, max_page_sharing: 2, ..Tunables::default() };
    let merger = merger(&space, pages(start, 4), tunables);
    merger.scan_all();
    merger.scan_all();
    for page in [2, 3] {
        space.write_u64(at(start, page), 1).unwrap();
    }
    merger.scan_all();
    (0..3).for_each(|_| assert_eq!(merger.scan_batch(), 1));
    assert_eq!((merger.statistics().pages_sharing, merger.statistics().pages_unshared), (1, 1));

    // The page that waits goes, and one of those that share is put in its place.
    space.munmap(at(start, 2)..at(start, 3)).unwrap();
    space.mremap(pages(start, 1), Some(at(start, 2))).unwrap();
    merger.scan_all();
    let Statistics { pages_shared, pages_sharing, .. } = merger.statistics();
    assert_eq!((pages_shared, pages_sharing), recount(&space, at(start, 1), 3));
    assert_eq!((pages_shared, pages_sharing), (1, 1));

    space.munmap(at(start, 1)..at(start, 4)).unwrap();
    merger.scan_all();
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn frames_that_nothing_shares_come_back_when_nothing_is_registered_any_more() {
    let (arena, space) = space(64);
    let start = filled(&space, &[1; 4]);
    let merger = merger(&space, pages(start, 4), Tunables::default());
    merger.scan_all();
    merger.scan_all();
    space.mprotect(pages(start, 2), Protection::ReadOnly).unwrap();
    merger.unregister(pages(start, 4)).unwrap();
    assert_eq!((merger.statistics().pages_sharing, arena.in_use()), (1, 3));
    space.munmap(pages(start, 4)).unwrap();
    merger.scan_batch();
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn frames_that_nothing_shares_come_back_when_pages_are_unregistered() {
    let (arena, space) = space(64);
    let start = filled(&space, &[1; 4]);
    let merger = merger(&space, pages(start, 4), Tunables::default());
    merger.scan_all();
    merger.scan_all();
    merger.unregister(pages(start, 4)).unwrap();
    assert_eq!(arena.in_use(), 4);
}

#[test]
fn a_range_of_all_addresses_takes_no_longer_than_what_is_mapped_there() {
    let (arena, space) = space(64);
    let start = filled(&space, &[1; 4]);
    let merger = merger(&space, pages(start, 4), Tunables::default());
    merger.scan_all();
    merger.scan_all();
    let all = Hva::new(0)..Hva::new(1 << 63);
    assert_eq!(space.migrate_range(all.clone()), Ok(4));
    merger.scan_all();
    merger.scan_all();
    assert_eq!(arena.in_use(), 1);
    merger.unregister(all).unwrap();
    assert_eq!((merger.scan_batch(), arena.in_use()), (0, 4));
}

/// Has pages unmerged while one of them is just getting a frame of its own.
struct Unmerging {
    merger: Arc<Merger>,
    doing: Mutex<Option<JoinHandle<()>>>,
}

impl Notifier for Unmerging {
    fn invalidate_start(&self, _: &Change) {}

    fn change_pte(&self, _: Hva, _: &PageChange) {
        let merger = self.merger.clone();
        let mut doing = self.doing.lock().unwrap();
        if doing.is_some() {
            return;
        }
        let unmerge = Tunables { run: Run::Unmerge, ..merger.tunables() };
        let thread = doing.insert(spawn({
            let merger = merger.clone();
            move || merger.set(unmerge).unwrap()
        }));
        while merger.tunables() != unmerge && !thread.is_finished() {
            yield_now();
        }
        // It takes the page as it is now, or waits.
        for _ in 0..1000 {
            if thread.is_finished() {
                break;
            }
            yield_now();
        }
    }

    fn invalidate_end(&self, _: &Change) {}
}

#[test]
fn frames_that_nothing_shares_come_back_when_pages_are_unmerged_as_one_is_written() {
    let (arena, space) = space(64);
    let start = filled(&space, &[1; 2]);
    let merger = Arc::new(merger(&space, pages(start, 2), Tunables::default()));
    merger.scan_all();
    merger.scan_all();
    space.munmap(pages(start, 1)).unwrap();
    let unmerging = Arc::new(Unmerging { merger: merger.clone(), doing: Mutex::default() });
    let id = space.register(unmerging.clone());
    space.write_u64(at(start, 1), 2).unwrap();
    unmerging.doing.lock().unwrap().take().unwrap().join().unwrap();
    assert_eq!(arena.in_use(), 1);
    space.unregister(id);
}

/// Has a page that is about to be moved away looked at by the merger, and lets it go only then.
struct LookedAt {
    arena: Arc<Arena>,
    page: Hva,
    frame: Pfn,
    is_leaving: AtomicBool,
    over: AtomicBool,
}

impl Notifier for LookedAt {
    fn invalidate_start(&self, change: &Change) {
        if change.range.start == self.page && change.reason == Reason::Unmap {
            self.is_leaving.store(true, Ordering::Release);
            // The merger has a reference to what it found, and waits for the change to be over.
            until(&self.over, || self.arena.references(self.frame) > 1);
        }
    }

    fn invalidate_end(&self, _: &Change) {}
}

#[test]
fn a_page_that_is_moved_as_it_is_found_equal_shares_its_frame_with_nobody() {
    // Each time somebody else may come first.
    for _ in 0..20 {
        let (arena, space) = space(64);
        let start = filled(&space, &[7, 7]);
        let other = filled(&space, &[7]);
        let tunables = Tunables { pages_to_scan: 1, ..Tunables::default() };
        let merger = merger(&space, pages(start, 2), tunables);
        merger.scan_all();
        merger.scan_batch();
        let frame = space.resolve(start, false).unwrap().pfn;
        let is_leaving = AtomicBool::new(false);
        let (arena, over) = (arena.clone(), AtomicBool::new(false));
        let looked_at = Arc::new(LookedAt { arena, page: start, frame, is_leaving, over });
        let id = space.register(looked_at.clone());
        let moved = scope(|scope| {
            // Either waits for the other.
            let LookedAt { is_leaving, over, .. } = &*looked_at;
            let _over = Over(over);
            scope.spawn(|| {
                let _over = Over(over);
                until(over, || is_leaving.load(Ordering::Acquire));
                merger.scan_batch();
            });
            let moved = space.mremap(pages(start, 1), None).unwrap();
            // An equal page takes its place before the merger gets there.
            space.mremap(pages(other, 1), Some(start)).unwrap();
            moved
        });
        space.unregister(id);
        space.write_u64(moved, 8).unwrap();
        assert_eq!([0, 1].map(|page| space.read_u64(at(start, page))), [Ok(7); 2]);
    }
}

#[test]
fn memory_that_goes_while_it_is_registered_is_forgotten() {
    let (arena, space) = space(64);
    let start = filled(&space, &[1; 4]);
    let merger = merger(&space, pages(start, 4), Tunables::default());
    merger.scan_all();
    merger.scan_all();
    space.munmap(pages(start, 3)).unwrap();
    merger.scan_all();
    let statistics = merger.statistics();
    assert_eq!((statistics.pages_shared, statistics.pages_sharing, arena.in_use()), (1, 0, 1));
    assert_eq!(space.read_u64(start), Err(Fault::NotMapped));
}

#[test]
fn writers_find_what_they_wrote_while_their_pages_are_merged_and_forked_and_moved_about() {
    const PAGES: u64 = 32;
    let (arena, space) = space(1 << 12);
    let starts = [(); 3].map(|()| filled(&space, &[0; PAGES as usize]));
    let merger = Arc::new(Merger::new(space.clone()));
    let run = Tunables {
        run: Run::Merge,
        pages_to_scan: 50,
        sleep_millisecs: 0,
        use_zero_pages: true,
        ..Tunables::default()
    };
    merger.set(run).unwrap();
    for start in starts {
        merger.register(pages(start, PAGES)).unwrap();
    }
    let thread = MergerThread::spawn(merger.clone()).unwrap();
    let (ends, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    scope(|scope| {
        for start in starts {
            let (space, ends, rounds) = (&space, &ends, &rounds);
            scope.spawn(move || {
                let _over = Over(ends);
                // Equal to others for most of the time, so that there is always something to merge.
                for round in 0_u64.. {
                    let value =
                        |page| if page % 8 == round % 8 { start.get() + round } else { round / 64 };
                    for page in 0..PAGES {
                        space.write_u64(at(start, page), value(page)).unwrap();
                    }
                    std::thread::yield_now();
                    for page in 0..PAGES {
                        assert_eq!(space.read_u64(at(start, page)), Ok(value(page)), "page {page}");
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let enough = || {
            let count = merger.statistics().pages_merged;
            count > 2000 && rounds.load(Ordering::Relaxed) > 500
        };
        let _over = Over(&ends);
        while !enough() && !ends.load(Ordering::Relaxed) {
            let copy = space.fork(pages(starts[0], PAGES)).unwrap();
            space.migrate(at(starts[1], 3)).unwrap();
            space.reclaim(at(starts[2], 4));
            space.munmap(pages(copy, PAGES)).unwrap();
        }
    });
    drop(thread);
    let statistics = merger.statistics();
    let counted = starts.map(|start| {
        (0..PAGES)
            .map(|page| space.resolve(at(start, page), false).unwrap().pfn)
            .collect::<Vec<_>>()
    });
    let mut frames: Vec<_> = counted.into_iter().flatten().collect();
    frames.sort_unstable();
    frames.dedup();
    let saved = 3 * PAGES - frames.len() as u64;
    let zero = statistics.ksm_zero_pages;
    assert_eq!(saved, statistics.pages_sharing + zero - u64::from(zero > 0));
    drop(merger);
    drop(space);
    assert_eq!(arena.in_use(), 0);
}
