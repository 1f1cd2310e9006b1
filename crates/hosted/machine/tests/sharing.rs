//! Pages that share a frame until one of them is written: forked, merged, moved, and given one of their own.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, spawn, yield_now};

use mayfly_machine::Arena;
use mayfly_machine::address_space::{
    Backing, Change, Error, Fault, HostSpace, Notifier, PageChange, Protection, Reason, Rights,
};
use mayfly_machine::merger::{Merger, Tunables};
use mayfly_platform::address::{Hva, PAGE_SIZE, Pfn};
use mayfly_stage2::Level;

const MIB2: u64 = 2 << 20;

fn space(frames: usize) -> (Arc<Arena>, Arc<HostSpace>) {
    let arena = Arc::new(Arena::new(frames).unwrap());
    (arena.clone(), Arc::new(HostSpace::new(arena)))
}

fn at(start: Hva, page: u64) -> Hva {
    Hva::new(start.get() + page * PAGE_SIZE)
}

fn pages(start: Hva, pages: Range<u64>) -> Range<Hva> {
    at(start, pages.start)..at(start, pages.end)
}

/// Pages that all hold `value`, at `start`.
fn filled(space: &HostSpace, count: u64, value: u64) -> Hva {
    let start = space.mmap(count * PAGE_SIZE, Backing::Pages, Protection::ReadWrite).unwrap();
    for page in 0..count {
        space.write_u64(at(start, page), value).unwrap();
    }
    start
}

fn frame(space: &HostSpace, page: Hva) -> Pfn {
    space.resolve(page, false).unwrap().pfn
}

/// A merger that has merged all that there is to merge in these pages.
fn merged(space: &Arc<HostSpace>, range: Range<Hva>) -> Merger {
    let merger = Merger::new(space.clone());
    merger.register(range).unwrap();
    merger.scan_all();
    merger.scan_all();
    merger
}

#[test]
fn a_fork_shares_every_frame_until_either_side_writes() {
    let (arena, space) = space(64);
    let start = filled(&space, 4, 7);
    let copy = space.fork(pages(start, 1..4)).unwrap();
    assert_eq!((arena.in_use(), frame(&space, at(copy, 0))), (4, frame(&space, at(start, 1))));
    assert!(!space.resolve(copy, false).unwrap().writable);

    space.write_u64(at(start, 1), 8).unwrap();
    space.write_u64(at(copy, 1), 9).unwrap();
    let read = |start, page| space.read_u64(at(start, page)).unwrap();
    assert_eq!([1, 2, 3].map(|page| read(start, page)), [8, 7, 7]);
    assert_eq!([0, 1, 2].map(|page| read(copy, page)), [7, 9, 7]);
    assert_eq!(arena.in_use(), 6);
    space.munmap(pages(copy, 0..3)).unwrap();
    assert_eq!(arena.in_use(), 4);
}

#[test]
fn the_last_page_that_has_a_frame_keeps_it_when_it_is_written() {
    let (arena, space) = space(64);
    let start = filled(&space, 1, 7);
    let before = frame(&space, start);
    let copy = space.fork(pages(start, 0..1)).unwrap();
    space.munmap(pages(copy, 0..1)).unwrap();
    space.write_u64(start, 8).unwrap();
    assert_eq!((frame(&space, start), arena.in_use()), (before, 1));
    assert!(space.resolve(start, false).unwrap().writable);
}

#[test]
fn a_fork_of_huge_pages_shares_their_frames_as_pages_and_what_was_in_swap() {
    let (arena, space) = space(2048);
    let start = space.mmap(MIB2, Backing::HugePages, Protection::ReadWrite).unwrap();
    space.write_u64(at(start, 100), 7).unwrap();
    space.write_u64(at(start, 101), 8).unwrap();
    assert!(space.reclaim(at(start, 101)));
    let copy = space.fork(pages(start, 0..512)).unwrap();
    assert_eq!((arena.in_use(), space.swapped()), (512, 0));
    assert_eq!(space.resolve(at(start, 5), true).unwrap().level, Level::PAGE);
    space.write_u64(at(start, 101), 9).unwrap();
    assert_eq!(space.read_u64(at(copy, 100)), Ok(7));
    assert_eq!(space.read_u64(at(copy, 101)), Ok(8));
}

#[test]
fn memory_that_is_not_all_mapped_or_there_for_good_is_neither_forked_nor_moved() {
    let (arena, space) = space(64);
    let start = filled(&space, 4, 7);
    let fixed = space.mmap(PAGE_SIZE, Backing::Contiguous, Protection::ReadWrite).unwrap();
    space.munmap(pages(start, 2..3)).unwrap();
    let before = arena.in_use();
    for (range, error) in
        [(pages(start, 0..4), Error::NotMapped), (pages(fixed, 0..1), Error::Invalid)]
    {
        assert_eq!(space.fork(range.clone()), Err(error));
        assert_eq!(space.mremap(range, None), Err(error));
    }
    assert_eq!(space.mremap(pages(start, 0..1), Some(at(start, 1))), Err(Error::Invalid));
    assert_eq!(arena.in_use(), before);
}

#[test]
fn memory_is_not_moved_to_where_no_mapping_may_be() {
    let (arena, space) = space(64);
    let start = filled(&space, 2, 7);
    for to in [0, 1 << 43, (1 << 47) - PAGE_SIZE, 1 << 47, 1 << 63, u64::MAX << 12] {
        let moved = space.mremap(pages(start, 0..2), Some(Hva::new(to)));
        assert_eq!(moved, Err(Error::Invalid), "{to:#x}");
    }
    assert_eq!(space.read_u64(at(start, 1)), Ok(7));
    let highest = Hva::new((1 << 47) - 2 * PAGE_SIZE);
    assert_eq!(space.mremap(pages(start, 0..2), Some(highest)), Ok(highest));
    drop(space);
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn memory_goes_to_other_addresses_and_back_in_the_frames_that_it_had() {
    let (arena, space) = space(2048);
    let start = space.mmap(2 * MIB2, Backing::HugePages, Protection::ReadWrite).unwrap();
    space.write_u64(at(start, 600), 7).unwrap();
    let before = space.resolve(at(start, 600), true).unwrap();
    let (range, pages_of) = (pages(start, 100..1024), |start| pages(start, 0..924));
    space.mprotect(pages(start, 1000..1001), Protection::ReadOnly).unwrap();

    let moved = space.mremap(range.clone(), None).unwrap();
    assert_eq!(space.resolve(at(start, 600), false), Err(Fault::NotMapped));
    assert_eq!(space.resolve(at(moved, 500), false).unwrap().pfn, before.pfn);
    assert_eq!(space.write_u64(at(moved, 900), 1), Err(Fault::ReadOnly));
    assert_eq!(space.mremap(pages_of(moved), Some(range.start)), Ok(range.start));
    space.mprotect(pages(start, 1000..1001), Protection::ReadWrite).unwrap();
    assert_eq!(space.resolve(at(start, 600), true), Ok(before), "one huge page again");
    space.munmap(pages(start, 0..1024)).unwrap();
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn without_a_frame_a_write_to_a_shared_page_fails_and_changes_nothing() {
    let (arena, space) = space(3);
    let start = filled(&space, 2, 7);
    let _merger = merged(&space, pages(start, 0..2));
    let shared = frame(&space, start);
    let others = filled(&space, 2, 1);
    assert_eq!(arena.in_use(), 3);
    assert!(matches!(space.write_u64(start, 8), Err(Fault::OutOfMemory(_))));
    assert_eq!(space.resolve(start, true).map(|_| ()).unwrap_err().to_string(), "out of memory");
    assert_eq!([0, 1].map(|page| frame(&space, at(start, page))), [shared; 2]);
    assert_eq!(space.read_u64(start), Ok(7));

    space.munmap(pages(others, 0..1)).unwrap();
    space.write_u64(start, 8).unwrap();
    assert_eq!([0, 1].map(|page| space.read_u64(at(start, page)).unwrap()), [8, 7]);
}

#[test]
fn without_a_frame_for_what_is_in_swap_there_is_no_fork() {
    let (arena, space) = space(2);
    let start = filled(&space, 2, 7);
    assert!(space.reclaim(start));
    let _other = filled(&space, 1, 1);
    assert!(matches!(space.fork(pages(start, 0..2)), Err(Error::OutOfMemory(_))));
    assert!(space.resolve(at(start, 1), false).unwrap().writable);
    assert_eq!((arena.in_use(), space.swapped()), (2, 1));
}

/// What a notifier hears.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Start(Reason, Range<Hva>, Rights, Rights),
    Page(Hva, PageChange),
    End(Reason),
}

#[derive(Default)]
struct Recorder(Mutex<Vec<Heard>>);

impl Recorder {
    fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Notifier for Recorder {
    fn invalidate_start(&self, change: &Change) {
        let Change { range, reason, old, new } = change.clone();
        self.0.lock().unwrap().push(Heard::Start(reason, range, old, new));
    }

    fn change_pte(&self, page: Hva, change: &PageChange) {
        self.0.lock().unwrap().push(Heard::Page(page, *change));
    }

    fn invalidate_end(&self, change: &Change) {
        self.0.lock().unwrap().push(Heard::End(change.reason));
    }
}

#[test]
fn a_merge_takes_writing_away_and_then_changes_each_page_that_gets_another_frame() {
    let (_, space) = space(64);
    let start = filled(&space, 4, 7);
    let before = [0, 1, 2, 3].map(|page| frame(&space, at(start, page)));
    let recorder = Arc::new(Recorder::default());
    space.register(recorder.clone());
    let merger = Merger::new(space.clone());
    merger.set(Tunables { pages_to_merge: 64, ..Tunables::default() }).unwrap();
    merger.register(pages(start, 0..4)).unwrap();
    merger.scan_all();
    merger.scan_all();
    let page = |page: u64| {
        let (old, new) = (before[page as usize], before[0]);
        let change = PageChange { old, new, protection: Rights::ReadOnly, same_contents: true };
        Heard::Page(at(start, page), change)
    };
    let begin = |range| Heard::Start(Reason::Merge, range, Rights::ReadWrite, Rights::ReadOnly);
    let end = Heard::End(Reason::Merge);
    // The first is what the others are merged with.
    let closed = [begin(pages(start, 0..1)), end.clone()];
    let together = [begin(pages(start, 1..4)), page(1), page(2), page(3), end.clone()];
    assert_eq!(recorder.take(), [&closed[..], &together[..]].concat());

    // As KSM does, if nothing else is set.
    merger.set(Tunables::default()).unwrap();
    space.write_u64(at(start, 2), 8).unwrap();
    space.write_u64(at(start, 2), 7).unwrap();
    recorder.take();
    let old = frame(&space, at(start, 2));
    merger.scan_all();
    let change =
        PageChange { old, new: before[0], protection: Rights::ReadOnly, same_contents: true };
    assert_eq!(
        recorder.take(),
        [begin(pages(start, 2..3)), Heard::Page(at(start, 2), change), end]
    );
}

#[test]
fn a_break_lets_all_go_on_reading_until_the_page_has_another_frame() {
    let (_, space) = space(64);
    let start = filled(&space, 2, 7);
    let _merger = merged(&space, pages(start, 0..2));
    let recorder = Arc::new(Recorder::default());
    space.register(recorder.clone());
    let old = frame(&space, start);
    let new = space.resolve(at(start, 1), true).unwrap().pfn;
    let (protection, same_contents) = (Rights::ReadWrite, true);
    let change = PageChange { old, new, protection, same_contents };
    assert_eq!(
        recorder.take(),
        [
            Heard::Start(
                Reason::CopyOnWrite,
                pages(start, 1..2),
                Rights::ReadOnly,
                Rights::ReadOnly
            ),
            Heard::Page(at(start, 1), change),
            Heard::End(Reason::CopyOnWrite),
        ]
    );
}

/// One of several who have the same page: its number, and what all of them hear of frames, and of writing.
struct Neighbour(u32, Arc<Mutex<Vec<(u32, Pfn, bool)>>>);

impl Notifier for Neighbour {
    fn invalidate_start(&self, _: &Change) {}

    fn change_pte(&self, _: Hva, change: &PageChange) {
        self.1.lock().unwrap().push((self.0, change.new, false));
    }

    fn allow_writes(&self, _: Hva, frame: Pfn) {
        self.1.lock().unwrap().push((self.0, frame, true));
    }

    fn invalidate_end(&self, _: &Change) {}
}

#[test]
fn nobody_is_let_write_to_the_new_frame_of_a_page_while_another_may_still_read_the_old_one() {
    let (_, space) = space(64);
    let start = filled(&space, 2, 7);
    let _merger = merged(&space, pages(start, 0..2));
    let heard = Arc::new(Mutex::default());
    for number in 0..3 {
        space.register(Arc::new(Neighbour(number, Arc::clone(&heard))));
    }
    let new = space.resolve(start, true).unwrap().pfn;
    let all = |writes| [0, 1, 2].map(|number| (number, new, writes));
    assert_eq!(*heard.lock().unwrap(), [all(false), all(true)].concat());
}

/// Writes to a page while it is being changed, as a vCPU may.
struct Writer {
    space: Arc<HostSpace>,
    page: Hva,
    heard: Mutex<Vec<PageChange>>,
}

impl Notifier for Writer {
    fn invalidate_start(&self, change: &Change) {
        if change.reason == Reason::Protect {
            std::thread::scope(|scope| {
                scope.spawn(|| self.space.write_u64(self.page, 8).unwrap());
            });
        }
    }

    fn change_pte(&self, _: Hva, change: &PageChange) {
        self.heard.lock().unwrap().push(*change);
    }

    fn allow_writes(&self, _: Hva, _: Pfn) {
        unreachable!("the range is being protected");
    }

    fn invalidate_end(&self, _: &Change) {}
}

#[test]
fn a_page_that_is_written_while_its_range_is_protected_does_not_wait_and_is_given_no_right_to_write()
 {
    let (_, space) = space(64);
    let start = filled(&space, 2, 7);
    let _merger = merged(&space, pages(start, 0..2));
    let (page, heard) = (at(start, 1), Mutex::default());
    let writer = Arc::new(Writer { space: space.clone(), page, heard });
    let id = space.register(writer.clone());
    space.mprotect(pages(start, 0..2), Protection::ReadOnly).unwrap();
    let rights: Vec<_> =
        writer.heard.lock().unwrap().iter().map(|change| change.protection).collect();
    assert_eq!(rights, [Rights::ReadOnly]);
    assert_eq!((space.read_u64(page), space.read_u64(start)), (Ok(8), Ok(7)));
    assert_eq!(space.write_u64(page, 9), Err(Fault::ReadOnly));
    space.unregister(id);
}

/// Has something done to a page that is just getting a frame of its own, by another thread.
struct Meanwhile {
    space: Arc<HostSpace>,
    what: fn(&HostSpace, Hva) -> bool,
    doing: Mutex<Option<JoinHandle<bool>>>,
}

impl Notifier for Meanwhile {
    fn invalidate_start(&self, _: &Change) {}

    fn change_pte(&self, page: Hva, _: &PageChange) {
        let (space, what) = (self.space.clone(), self.what);
        let doing = spawn(move || what(&space, page));
        // It takes the page as it is now, or waits.
        for _ in 0..1000 {
            if doing.is_finished() {
                break;
            }
            yield_now();
        }
        *self.doing.lock().unwrap() = Some(doing);
    }

    fn invalidate_end(&self, _: &Change) {}
}

#[test]
fn a_page_that_is_just_getting_a_frame_of_its_own_is_reclaimed_and_migrated_as_any_other() {
    let (_, space) = space(64);
    let start = filled(&space, 3, 7);
    let _merger = merged(&space, pages(start, 0..3));
    let whats: [fn(&HostSpace, Hva) -> bool; 2] =
        [|space, page| space.reclaim(page), |space, page| space.migrate(page).unwrap()];
    for (page, what) in (0..).zip(whats) {
        let meanwhile = Arc::new(Meanwhile { space: space.clone(), what, doing: Mutex::default() });
        let id = space.register(meanwhile.clone());
        space.write_u64(at(start, page), 8).unwrap();
        let doing = meanwhile.doing.lock().unwrap().take().unwrap();
        assert!(doing.join().unwrap(), "it has a frame");
        space.unregister(id);
    }
    assert_eq!([0, 1, 2].map(|page| space.read_u64(at(start, page)).unwrap()), [8, 8, 7]);
}
