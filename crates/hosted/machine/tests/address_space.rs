//! The host's address space.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use mayfly_machine::address_space::{
    Backing, Change, Error, Fault, HostSpace, Notifier, Protection, Reason,
};
use mayfly_machine::{Arena, arena::MAX_ORDER};
use mayfly_platform::address::{Hva, PAGE_SIZE, Pfn};
use mayfly_stage2::Level;

use mayfly_platform::testing::threads::Over;

const MIB2: u64 = 2 << 20;

fn space(frames: usize) -> (Arc<Arena>, HostSpace) {
    let arena = Arc::new(Arena::new(frames).unwrap());
    (arena.clone(), HostSpace::new(arena))
}

fn at(start: Hva, page: u64) -> Hva {
    Hva::new(start.get() + page * PAGE_SIZE)
}

fn pages(start: Hva, pages: Range<u64>) -> Range<Hva> {
    at(start, pages.start)..at(start, pages.end)
}

#[test]
fn a_page_gets_its_frame_when_it_is_first_resolved_and_keeps_it() {
    let (arena, space) = space(16);
    let start = space.mmap(3 * PAGE_SIZE, Backing::Pages, Protection::ReadWrite).unwrap();
    assert_eq!(arena.in_use(), 0);
    let resolved = space.resolve(at(start, 1), false).unwrap();
    assert_eq!((resolved.level, resolved.writable, arena.in_use()), (Level::PAGE, true, 1));
    assert_eq!(space.resolve(at(start, 1), true), Ok(resolved));
    assert_eq!(space.resolve(at(start, 3), false), Err(Fault::NotMapped));
    drop(space);
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn a_huge_page_is_one_block_until_a_part_of_it_goes() {
    let (arena, space) = space(2048);
    let start = space.mmap(2 * MIB2, Backing::HugePages, Protection::ReadWrite).unwrap();
    let first = space.resolve(start, true).unwrap();
    assert_eq!((first.level, arena.in_use()), (Level::MIB2, 512));
    let later = space.resolve(at(start, 300), true).unwrap();
    assert_eq!(later.pfn, Pfn::new(first.pfn.get() + 300));
    space.write_u64(at(start, 300), 7).unwrap();

    space.munmap(pages(start, 10..20)).unwrap();
    assert_eq!(arena.in_use(), 502);
    assert_eq!(space.resolve(at(start, 15), true), Err(Fault::NotMapped));
    let after = space.resolve(at(start, 300), true).unwrap();
    assert_eq!((after.pfn, after.level), (later.pfn, Level::PAGE));
    assert_eq!(space.read_u64(at(start, 300)), Ok(7));
    assert_eq!(space.resolve(at(start, 512), true).unwrap().level, Level::MIB2);
}

#[test]
fn a_huge_page_with_two_protections_is_two_sets_of_pages_and_one_again_when_they_are_alike() {
    let (_, space) = space(1024);
    let start = space.mmap(MIB2, Backing::HugePages, Protection::ReadWrite).unwrap();
    let before = space.resolve(start, true).unwrap();
    space.mprotect(pages(start, 100..101), Protection::ReadOnly).unwrap();
    assert_eq!(space.resolve(at(start, 100), true), Err(Fault::ReadOnly));
    let part = space.resolve(at(start, 100), false).unwrap();
    assert_eq!(
        (part.pfn.get(), part.level, part.writable),
        (before.pfn.get() + 100, Level::PAGE, false)
    );
    assert_eq!(space.resolve(start, true).unwrap().level, Level::PAGE);
    space.mprotect(pages(start, 100..101), Protection::ReadWrite).unwrap();
    assert_eq!(space.resolve(start, true), Ok(before));
}

#[test]
fn contiguous_memory_far_larger_than_the_host_is_blocks_of_a_gib() {
    let (arena, space) = space(64 << MAX_ORDER);
    let start = space.mmap(64 << 30, Backing::Contiguous, Protection::ReadWrite).unwrap();
    for gib in [0, 1, 63] {
        let resolved = space.resolve(at(start, (gib << 18) + 12345), true).unwrap();
        assert_eq!((resolved.level, resolved.pfn.get() % (1 << 18)), (Level::GIB1, 12345));
    }
    space.mprotect(pages(start, 5..6), Protection::ReadOnly).unwrap();
    assert_eq!(space.resolve(start, true).unwrap().level, Level::PAGE);
    assert_eq!(space.resolve(at(start, 512), true).unwrap().level, Level::MIB2);
    assert_eq!(space.resolve(at(start, 1 << 18), true).unwrap().level, Level::GIB1);
    space.mprotect(pages(start, 5..6), Protection::ReadWrite).unwrap();
    assert_eq!(space.resolve(start, true).unwrap().level, Level::GIB1);
    assert_eq!(arena.resident().unwrap(), 0);
    space.munmap(pages(start, 0..64 << 18)).unwrap();
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn contiguous_memory_takes_no_more_frames_than_it_has_pages_and_gives_parts_back() {
    let (arena, space) = space(2 << MAX_ORDER);
    let count = (1 << 18) + 700;
    let start = space.mmap(count * PAGE_SIZE, Backing::Contiguous, Protection::ReadWrite).unwrap();
    assert_eq!(arena.in_use(), count);
    space.munmap(pages(start, (1 << 18) - 5..(1 << 18) + 5)).unwrap();
    assert_eq!(arena.in_use(), count - 10);
    let too_much = space.mmap(1 << 30, Backing::Contiguous, Protection::ReadWrite);
    assert!(matches!(too_much, Err(Error::OutOfMemory(_))));
    assert_eq!(arena.in_use(), count - 10);
    drop(space);
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn shared_memory_has_one_block_however_large_it_is() {
    let (arena, space) = space(512 + 1);
    let huge = space.mmap(64 << 30, Backing::Shared(Level::MIB2), Protection::ReadWrite).unwrap();
    let page = space.mmap(64 << 30, Backing::Shared(Level::PAGE), Protection::ReadWrite).unwrap();
    assert_eq!(arena.in_use(), 513);
    space.write_u64(at(page, 7), 1).unwrap();
    space.write_u64(at(huge, 7), 2).unwrap();
    assert_eq!(space.read_u64(at(page, 9_999_999)), Ok(1));
    assert_eq!(space.read_u64(at(huge, 512 * 1000 + 7)), Ok(2));
    assert_eq!(space.resolve(at(page, 512), true).unwrap().level, Level::PAGE);
    assert_eq!(space.resolve(at(huge, 512), true).unwrap().level, Level::MIB2);
    space.munmap(pages(page, 0..8)).unwrap();
    assert_eq!((space.read_u64(at(page, 8)), arena.in_use()), (Ok(1), 513));
    space.munmap(pages(page, 8..16 << 20)).unwrap();
    assert_eq!(arena.in_use(), 512);
}

#[test]
fn what_is_reclaimed_or_migrated_is_the_same_in_another_frame() {
    let (arena, space) = space(2048);
    for backing in [Backing::Pages, Backing::HugePages] {
        let start = space.mmap(MIB2, backing, Protection::ReadWrite).unwrap();
        assert!(!space.reclaim(at(start, 3)), "nothing is there yet");
        space.write_u64(at(start, 3), 42).unwrap();
        let (before, in_use) = (space.resolve(at(start, 3), true).unwrap(), arena.in_use());
        assert!(space.reclaim(at(start, 3)) && !space.reclaim(at(start, 3)));
        assert_eq!((space.swapped(), arena.in_use()), (1, in_use - 1));
        assert_eq!(
            (space.read_u64(at(start, 3)), space.swapped(), arena.in_use()),
            (Ok(42), 0, in_use)
        );

        let frame = space.resolve(at(start, 3), true).unwrap().pfn;
        assert_eq!(space.migrate(at(start, 3)), Ok(true));
        assert_ne!(space.resolve(at(start, 3), true).unwrap().pfn, frame);
        assert_eq!((space.read_u64(at(start, 3)), arena.in_use()), (Ok(42), in_use));
        assert_eq!(
            space.resolve(start, true).unwrap().level,
            Level::PAGE,
            "{backing:?}: {before:?}"
        );
    }
    drop(space);
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn memory_for_good_is_neither_reclaimed_nor_migrated() {
    let (_, space) = space(1024);
    for backing in [Backing::Contiguous, Backing::Shared(Level::PAGE)] {
        let start = space.mmap(4 * PAGE_SIZE, backing, Protection::ReadWrite).unwrap();
        space.write_u64(start, 1).unwrap();
        assert_eq!((space.reclaim(start), space.migrate(start)), (false, Ok(false)));
    }
}

#[test]
fn an_address_without_a_frame_to_be_had_faults_and_is_good_later() {
    let (arena, space) = space(600);
    let huge = space.mmap(MIB2, Backing::HugePages, Protection::ReadWrite).unwrap();
    let small = space.mmap(MIB2, Backing::Pages, Protection::ReadWrite).unwrap();
    for number in 0..3 {
        arena.fail_allocations(number..u64::MAX);
        let got = (0..512).take_while(|page| space.resolve(at(small, *page), true).is_ok()).count();
        assert_eq!(got as u64, arena.in_use());
        assert!(matches!(space.resolve(huge, true), Err(Fault::OutOfMemory(_))));
        arena.fail_allocations(0..0);
        space.munmap(pages(small, 0..512)).unwrap();
        assert_eq!(
            space.mmap(MIB2, Backing::Pages, Protection::ReadWrite),
            Ok(small),
            "the lowest free addresses"
        );
    }
    space.resolve(huge, true).unwrap();
}

#[test]
fn ranges_that_are_not_whole_mapped_pages_are_refused() {
    let (_, space) = space(16);
    assert_eq!(space.mmap(0, Backing::Pages, Protection::ReadOnly), Err(Error::Invalid));
    assert!(matches!(
        space.mmap(u64::MAX, Backing::Pages, Protection::ReadOnly),
        Err(Error::OutOfMemory(_))
    ));
    assert!(matches!(
        space.mmap(1 << 62, Backing::Pages, Protection::ReadOnly),
        Err(Error::OutOfMemory(_))
    ));
    let start = space.mmap(8 * PAGE_SIZE, Backing::Pages, Protection::ReadWrite).unwrap();
    assert_eq!(space.munmap(start..start), Err(Error::Invalid));
    assert_eq!(space.munmap(start..Hva::new(start.get() + 1)), Err(Error::Invalid));
    space.munmap(pages(start, 3..4)).unwrap();
    assert_eq!(space.mprotect(pages(start, 0..8), Protection::ReadOnly), Err(Error::NotMapped));
    assert!(space.resolve(start, true).is_ok(), "nothing has changed");
}

/// What a notifier heard, and saw when it heard it.
#[derive(Debug, PartialEq, Eq)]
struct Heard {
    start: bool,
    change: Change,
    /// The frame at the range's beginning.
    frame: Option<Pfn>,
    in_use: u64,
}

struct Recorder {
    space: Weak<HostSpace>,
    arena: Arc<Arena>,
    heard: Mutex<Vec<Heard>>,
}

impl Recorder {
    fn hear(&self, start: bool, change: &Change) {
        let frame =
            self.space.upgrade().and_then(|space| space.resolve(change.range.start, false).ok());
        let heard = Heard {
            start,
            change: change.clone(),
            frame: frame.map(|at| at.pfn),
            in_use: self.arena.in_use(),
        };
        self.heard.lock().unwrap().push(heard);
    }

    fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

impl Notifier for Recorder {
    fn invalidate_start(&self, change: &Change) {
        self.hear(true, change);
    }

    fn invalidate_end(&self, change: &Change) {
        self.hear(false, change);
    }
}

#[test]
fn a_notifier_hears_of_a_change_before_and_after_and_the_frames_are_kept_until_then() {
    let (arena, space) = space(64);
    let space = Arc::new(space);
    let start = space.mmap(8 * PAGE_SIZE, Backing::Pages, Protection::ReadWrite).unwrap();
    let recorder = Arc::new(Recorder {
        space: Arc::downgrade(&space),
        arena: arena.clone(),
        heard: Mutex::default(),
    });
    let id = space.register(recorder.clone());
    let frames: Vec<_> =
        (0..8).map(|page| space.resolve(at(start, page), true).unwrap().pfn).collect();
    assert_eq!(recorder.take(), []);

    let change = Change::taking(pages(start, 2..4), Reason::Unmap);
    space.munmap(change.range.clone()).unwrap();
    let before = Heard { start: true, change: change.clone(), frame: Some(frames[2]), in_use: 8 };
    let after = Heard { start: false, change, frame: None, in_use: 8 };
    assert_eq!((recorder.take(), arena.in_use()), (vec![before, after], 6));

    let change = Change::taking(pages(start, 5..6), Reason::Reclaim);
    assert!(space.reclaim(at(start, 5)));
    let heard = recorder.take();
    assert_eq!(
        heard.iter().map(|heard| (heard.start, &heard.change)).collect::<Vec<_>>(),
        [(true, &change), (false, &change)]
    );
    assert_ne!(heard[1].frame, Some(frames[5]), "the old frame is not free yet");
    assert_eq!((heard[0].frame, heard[1].in_use, arena.in_use()), (Some(frames[5]), 7, 6));

    space.mprotect(pages(start, 6..8), Protection::ReadOnly).unwrap();
    assert!(recorder.take().iter().all(|heard| heard.change.reason == Reason::Protect));
    space.mprotect(pages(start, 6..8), Protection::ReadOnly).unwrap();
    space.mprotect(pages(start, 6..8), Protection::ReadWrite).unwrap();
    assert_eq!(recorder.take(), [], "nothing was taken away");

    assert_eq!(space.migrate(start), Ok(true));
    assert!(recorder.take().iter().all(|heard| heard.change.reason == Reason::Migrate));

    space.unregister(id);
    space.munmap(pages(start, 6..8)).unwrap();
    assert_eq!(recorder.take(), []);
    space.register(recorder.clone());
    drop(Arc::into_inner(space));
    let heard: Vec<_> = recorder
        .take()
        .iter()
        .map(|heard| (heard.start, heard.change.reason, heard.in_use))
        .collect();
    assert_eq!(heard, [(true, Reason::Exit, 4), (false, Reason::Exit, 4)]);
    assert_eq!(arena.in_use(), 0);
}

/// Counts resolves that are done while a change is under way.
struct Slow {
    space: Weak<HostSpace>,
    elsewhere: Hva,
}

impl Notifier for Slow {
    fn invalidate_start(&self, _: &Change) {
        let space = self.space.upgrade().unwrap();
        let elsewhere = self.elsewhere;
        // Another thread, as a vCPU is; it would wait for us for ever if resolving waited for notifiers.
        std::thread::scope(|scope| {
            scope.spawn(|| space.resolve(elsewhere, true).unwrap());
        });
    }

    fn invalidate_end(&self, change: &Change) {
        self.invalidate_start(change);
    }
}

#[test]
fn resolving_does_not_wait_for_notifiers() {
    let (_, space) = space(64);
    let space = Arc::new(space);
    let start = space.mmap(2 * PAGE_SIZE, Backing::Pages, Protection::ReadWrite).unwrap();
    let id =
        space.register(Arc::new(Slow { space: Arc::downgrade(&space), elsewhere: at(start, 1) }));
    space.munmap(pages(start, 0..1)).unwrap();
    space.unregister(id);
}

#[test]
fn threads_that_touch_and_reclaim_the_same_pages_find_what_they_wrote() {
    let (arena, space) = space(4096);
    let start = space.mmap(MIB2, Backing::Pages, Protection::ReadWrite).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3_u64)
            .map(|thread| {
                let space = &space;
                scope.spawn(move || {
                    for round in 1..=400 {
                        for page in 0..32 {
                            // The same pages, a word of each thread's own.
                            let word = Hva::new(at(start, page).get() + 8 * thread);
                            assert_eq!(space.read_u64(word), Ok(round - 1));
                            space.write_u64(word, round).unwrap();
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            for page in (0..32).cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                space.reclaim(at(start, page));
                space.migrate(at(start, (page + 7) % 32)).unwrap();
            }
        });
        let _over = Over(&stop);
        for writer in writers {
            writer.join().unwrap();
        }
    });
    let frames: HashSet<_> =
        (0..32).map(|page| space.resolve(at(start, page), true).unwrap().pfn).collect();
    assert_eq!((frames.len(), arena.in_use(), space.swapped()), (32, 32, 0));
}
