//! The log of the pages that a guest writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{scope, spawn, yield_now};
use std::time::Duration;

use mayfly_memslot::{DirtyWord, Flags, Gfn, Gpa, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_stage2::{Level, Permissions};
use mayfly_vm::{Access, Error, Event, Exit, Guest, Requests, SlotZap, Translation};

use crate::common::{
    Outcome, Over, Setup, TestFormat, TestVcpu, TestVm, hva, perform, read, region, translation,
    vm, write,
};

fn logged(gfn: u64, pages: u64) -> Region<Hva> {
    Region { flags: Flags::LOG_DIRTY_PAGES, ..region(0, gfn, pages) }
}

/// Takes the first word of slot 0's log.
fn harvest(vm: &TestVm) -> u64 {
    let mut word = [0];
    let count = vm.harvest_dirty(SlotId::main(0), 0, &mut word).unwrap();
    assert_eq!(count, u64::from(word[0].count_ones()));
    word[0]
}

fn is_writable(vcpu: &mut TestVcpu, gfn: u64) -> bool {
    let (_, leaf) = translation(vcpu, gfn).unwrap();
    leaf.permissions.contains(Permissions::WRITE)
}

#[test]
fn a_page_that_is_harvested_is_logged_again_by_the_next_write() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&logged(0x10, 64)).unwrap();
    write(&mut vcpu, 0x1_0000, &[1]);
    write(&mut vcpu, 0x4_f000, &[1]);
    assert!(is_writable(&mut vcpu, 0x10));
    assert_eq!(harvest(&vm), 1 | 1 << 63);
    assert!(!is_writable(&mut vcpu, 0x10));
    assert!(!setup.hardware.take_invalidations().is_empty(), "no TLB knows it as writable");
    write(&mut vcpu, 0x1_0000, &[1]);
    assert_eq!(harvest(&vm), 1);
    assert_eq!(harvest(&vm), 0);
    assert_eq!(setup.hardware.take_invalidations().len(), 1);
}

#[test]
fn a_page_that_is_only_read_is_neither_logged_nor_writable() {
    let vm = vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&logged(0x10, 8)).unwrap();
    read(&mut vcpu, 0x1_1000, 1);
    assert!(!is_writable(&mut vcpu, 0x11));
    assert_eq!(harvest(&vm), 0);
    write(&mut vcpu, 0x1_1000, &[1]);
    assert_eq!(harvest(&vm), 2);
}

#[test]
fn switching_the_log_on_protects_what_is_writable_and_splits_its_blocks() {
    let (_setup, vm, mut vcpu) = Setup::in_blocks(0x400);
    write(&mut vcpu, 0x20_0000, &[1]);
    assert_eq!(translation(&mut vcpu, 0x200).unwrap().0, Level::MIB2);
    vm.set_memory_region(&logged(0x200, 0x400)).unwrap();
    assert!(!is_writable(&mut vcpu, 0x200));
    assert_eq!(harvest(&vm), 0);

    assert_eq!(write(&mut vcpu, 0x20_1000, &[1]), Outcome::Memory(hva(0, 0x1000)));
    assert_eq!(harvest(&vm), 2, "the page, and not the block");
    assert_eq!(translation(&mut vcpu, 0x201).unwrap().0, Level::PAGE);
    assert!(!is_writable(&mut vcpu, 0x200), "its neighbours are still protected");
    assert_eq!(read(&mut vcpu, 0x20_5000, 1), Outcome::Memory(hva(0, 0x5000)));

    vm.set_memory_region(&region(0, 0x200, 0x400)).unwrap();
    write(&mut vcpu, 0x20_2000, &[1]);
    let (level, leaf) = translation(&mut vcpu, 0x202).unwrap();
    assert_eq!(level, Level::MIB2, "without a log it is a block again");
    assert!(leaf.permissions.contains(Permissions::WRITE));
}

#[test]
fn a_slot_without_a_log_cannot_be_harvested() {
    let vm = vm();
    vm.set_memory_region(&region(0, 0x10, 8)).unwrap();
    let harvest = |id| vm.harvest_dirty(id, 0, &mut [0]).unwrap_err();
    let (no_log, no_slot) = (harvest(SlotId::main(0)), harvest(SlotId::main(1)));
    assert_eq!(no_log, Error::NoLog(SlotId::main(0)));
    assert_eq!(no_slot, Error::NoSlot(SlotId::main(1)));
    assert_eq!([no_log, no_slot].map(|error| error.errno()), [2, 2]);
    let said = [no_log, no_slot].map(|error| error.to_string());
    assert_eq!(
        said,
        ["slot 0 has no dirty log: set `LOG_DIRTY_PAGES` for it first", "the VM has no slot 1"]
    );
}

#[test]
fn a_harvest_of_some_words_protects_those_pages_alone() {
    let vm = vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&logged(0x10, 192)).unwrap();
    for page in [0, 64, 127, 128] {
        write(&mut vcpu, (0x10 + page) * PAGE_SIZE, &[1]);
    }
    let mut word = [0];
    assert_eq!(vm.harvest_dirty(SlotId::main(0), 1, &mut word).unwrap(), 2);
    assert_eq!(word, [1 | 1 << 63]);
    let writable = [0, 64, 127, 128].map(|page| is_writable(&mut vcpu, 0x10 + page));
    assert_eq!(writable, [true, false, false, true]);
}

#[test]
fn a_harvest_past_the_end_of_the_log_takes_nothing() {
    let vm = vm();
    vm.set_memory_region(&logged(0x10, 8)).unwrap();
    for first in [1, usize::MAX / 64, usize::MAX] {
        let mut words = [!0; 2];
        assert_eq!(vm.harvest_dirty(SlotId::main(0), first, &mut words), Ok(0));
        assert_eq!(words, [0; 2]);
    }
}

/// Whenever the guest can write a page, the log has a mark of it that is still to be harvested.
#[test]
fn a_harvest_in_the_middle_of_a_fault_leaves_no_page_writable_and_unmarked() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&logged(0, 64)).unwrap();
    let harvested = Arc::new(Mutex::new(Vec::new()));
    let (inside, taken) = (vm.clone(), harvested.clone());
    // The fault has the host's answer, and needs tables now.
    setup.hardware.at_next_allocation(move || taken.lock().unwrap().push(harvest(&inside)));
    assert_eq!(write(&mut vcpu, 0x5000, &[1]), Outcome::Memory(hva(0, 0x5000)));
    assert_eq!(harvested.lock().unwrap().len(), 1, "the harvest came in between");
    assert!(is_writable(&mut vcpu, 5));
    assert_eq!(harvest(&vm), 1 << 5);
    assert!(!is_writable(&mut vcpu, 5));
}

/// A guest that counts up a word in each of its pages, until it is kicked. What is between a walk and the write that it
/// allows is one step to TLB invalidations, as on hardware: those wait for it.
struct Counting<'a> {
    pages: &'a [AtomicU64],
    next: usize,
    step: &'a Mutex<()>,
}

impl Guest<TestFormat> for Counting<'_> {
    fn enter(&mut self, translation: Translation<TestFormat>, requests: &Requests) -> Event {
        while !requests.any() {
            let gpa = Gpa::new(self.next as u64 * PAGE_SIZE);
            let access = Access::data(gpa, 8, true);
            let _step = self.step.lock().unwrap();
            let Some(to) = perform::<TestFormat>(translation, access) else {
                return Event::Access(access);
            };
            assert_eq!(to, hva(0, gpa.get()));
            self.pages[self.next].fetch_add(1, Ordering::Relaxed);
            self.next = (self.next + 1) % self.pages.len();
        }
        Event::Request
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        unreachable!("there is no device")
    }

    fn answered(&mut self) {}
}

/// Has vCPUs 0 and 1 of a VM end when dropped. What is asked of one that is on its way into its guest keeps it out, so that
/// each is asked once.
struct Out<'a> {
    vm: &'a TestVm,
    done: &'a AtomicBool,
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        self.done.store(true, Ordering::SeqCst);
        for id in 0..2 {
            self.vm.kick(id);
        }
    }
}

#[test]
fn no_write_is_lost_by_harvests_that_race_with_faults() {
    const PAGES: usize = 128;
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    vm.set_memory_region(&logged(0, PAGES as u64)).unwrap();
    let pages: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
    let steps: [Mutex<()>; 2] = Default::default();
    let mut copy = [0; PAGES];
    let mut harvests = 0;
    let mut copy_dirty = || {
        let mut words = [0; PAGES / 64];
        harvests += 1;
        // Both ways, in turn.
        let count = if harvests % 2 == 0 {
            vm.harvest_dirty(SlotId::main(0), 0, &mut words).unwrap()
        } else {
            let (mut from, mut list) = (0, [DirtyWord::default(); PAGES / 64 + 1]);
            let count = vm.harvest_marked(SlotId::main(0), &mut from, &mut list).unwrap();
            for DirtyWord { word, marks } in &list[..count] {
                words[*word] = *marks;
            }
            words.iter().map(|word| u64::from(word.count_ones())).sum()
        };
        // What a TLB invalidation waits for.
        for step in &steps {
            drop(step.lock().unwrap());
        }
        for page in (0..PAGES).filter(|page| words[page / 64] >> (page % 64) & 1 != 0) {
            copy[page] = pages[page].load(Ordering::Relaxed);
        }
        count
    };
    let done = AtomicBool::new(false);
    let mut harvested = 0;
    scope(|scope| {
        // Also where a harvest panics, which would wait for the vCPUs otherwise.
        let _out = Out { vm: &vm, done: &done };
        for id in [0, 1] {
            let mut vcpu = vm.create_vcpu(id).unwrap();
            let (pages, step, done) = (&pages, &steps[id as usize], &done);
            scope.spawn(move || {
                let _over = Over(done);
                let mut guest = Counting { pages, next: 64 * id as usize, step };
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(vcpu.run(&mut guest), Exit::Kicked);
                }
            });
        }
        while harvested < 4_000 {
            assert!(!done.load(Ordering::Relaxed), "a vCPU has ended");
            harvested += copy_dirty();
            yield_now();
        }
    });
    copy_dirty();
    let written: Vec<u64> = pages.iter().map(|page| page.load(Ordering::Relaxed)).collect();
    assert_eq!(copy.as_slice(), written, "after {harvested} pages");
}

#[test]
fn a_harvest_invalidates_once_a_slice_however_its_marks_lie() {
    const PAGES: u64 = 1 << 13;
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&logged(0x10, PAGES)).unwrap();
    for page in 0..PAGES {
        let gpa = (0x10 + page) * PAGE_SIZE;
        if page % 2 == 0 {
            write(&mut vcpu, gpa, &[1])
        } else {
            read(&mut vcpu, gpa, 1)
        };
    }
    setup.hardware.take_invalidations();
    let mut words = [0; PAGES as usize / 64];
    assert_eq!(vm.harvest_dirty(SlotId::main(0), 0, &mut words), Ok(PAGES / 2));
    assert!(words.iter().all(|word| *word == 0x5555_5555_5555_5555));
    assert_eq!(setup.hardware.take_invalidations().len(), 1, "it is all in one slice");
    assert!((0..PAGES).all(|page| !is_writable(&mut vcpu, 0x10 + page)));
    // What is not marked is left alone, though it lies in between.
    for page in [3, 5, PAGES - 1] {
        write(&mut vcpu, (0x10 + page) * PAGE_SIZE, &[1]);
    }
    let mut ends = [0; 1];
    assert_eq!(vm.harvest_dirty(SlotId::main(0), 0, &mut ends), Ok(2));
    assert!(is_writable(&mut vcpu, 0x10 + PAGES - 1));
    assert_eq!(vm.harvest_dirty(SlotId::main(0), 0, &mut ends), Ok(0));
    assert_eq!(setup.hardware.take_invalidations().len(), 1, "nothing was taken the second time");
}

#[test]
fn a_harvest_that_waits_for_tlbs_keeps_nobody_from_changing_memslots() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&logged(0x10, 64)).unwrap();
    write(&mut vcpu, 0x1_0000, &[1]);
    let (changed, has_changed) = channel();
    let other = vm.clone();
    setup.hardware.at_next_invalidation(move || {
        let (other, changed) = (other.clone(), changed.clone());
        let (done, is_done) = channel();
        spawn(move || {
            other.set_memory_region(&region(1, 0x1000, 8)).unwrap();
            done.send(()).unwrap();
        });
        changed.send(is_done.recv_timeout(Duration::from_secs(20))).unwrap();
    });
    assert_eq!(harvest(&vm), 1);
    assert_eq!(has_changed.try_recv(), Ok(Ok(())), "while the TLBs were waited for");
}

fn log(vm: &TestVm, first: usize, count: usize) -> Vec<u64> {
    let mut words = vec![0; count];
    vm.read_dirty(SlotId::main(0), first, &mut words).unwrap();
    words
}

#[test]
fn a_log_that_is_read_stays_and_a_part_that_is_cleared_is_logged_anew() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&logged(0x10, 128)).unwrap();
    for page in [0, 1, 64, 65] {
        write(&mut vcpu, (0x10 + page) * PAGE_SIZE, &[1]);
    }
    setup.hardware.take_invalidations();
    assert_eq!((log(&vm, 0, 2), log(&vm, 0, 2)), (vec![3, 3], vec![3, 3]));
    assert!(is_writable(&mut vcpu, 0x10) && setup.hardware.take_invalidations().is_empty());
    let mut which = [2 | 4, 0];
    assert_eq!(vm.clear_dirty(SlotId::main(0), 0, &mut which), Ok(1));
    assert_eq!((which, log(&vm, 0, 2)), ([2, 0], vec![1, 3]));
    assert_eq!(setup.hardware.take_invalidations().len(), 1);
    let writable = [0, 1, 64, 65].map(|page| is_writable(&mut vcpu, 0x10 + page));
    assert_eq!(writable, [true, false, true, true], "what was not named is as it was");
    write(&mut vcpu, 0x1_1000, &[1]);
    assert_eq!(log(&vm, 0, 2), [3, 3]);
    let none = SlotId::main(1);
    assert_eq!(vm.read_dirty(none, 0, &mut [0]), Err(Error::NoSlot(none)));
    assert_eq!(vm.clear_dirty(none, 0, &mut [0]), Err(Error::NoSlot(none)));
}

/// A fault marks, and comes to map when the mark is gone: it is refused, as by a harvest.
#[test]
fn a_clear_in_the_middle_of_a_fault_leaves_no_page_writable_and_unmarked() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&logged(0, 64)).unwrap();
    let inside = vm.clone();
    setup.hardware.at_next_allocation(move || {
        assert_eq!(inside.clear_dirty(SlotId::main(0), 0, &mut [!0]), Ok(1));
    });
    write(&mut vcpu, 0x5000, &[1]);
    assert!(is_writable(&mut vcpu, 5));
    assert_eq!(log(&vm, 0, 1), [1 << 5]);
}

#[test]
fn a_slot_that_goes_leaves_the_marks_that_nobody_has_taken() {
    for slot_zap in [SlotZap::Range, SlotZap::AllRoots] {
        let setup = Setup::new(slot_zap);
        let vm = setup.vm();
        let mut vcpu = vm.create_vcpu(0).unwrap();
        let region = logged(0x10, 64);
        assert!(vm.replace_memory_region(&region).unwrap().is_none());
        write(&mut vcpu, 0x1_0000, &[1]);
        write(&mut vcpu, 0x1_2000, &[1]);
        assert_eq!(harvest(&vm), 5);
        write(&mut vcpu, 0x1_3000, &[1]);
        let gone = vm.replace_memory_region(&Region { size: 0, ..region }).unwrap().unwrap();
        let mut words = [0];
        assert_eq!(gone.dirty().unwrap().harvest(0, &mut words), 1);
        assert_eq!((words, gone.gfns()), ([8], Gfn::new(0x10)..Gfn::new(0x50)));
        assert_eq!(translation(&mut vcpu, 0x13), None);
    }
}

#[test]
fn a_log_that_is_switched_off_leaves_its_last_marks_too() {
    let vm = vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&logged(0x10, 64)).unwrap();
    write(&mut vcpu, 0x1_0000, &[1]);
    let before = vm.replace_memory_region(&region(0, 0x10, 64)).unwrap().unwrap();
    let mut words = [0];
    assert_eq!((before.dirty().unwrap().harvest(0, &mut words), words), (1, [1]));
    assert!(vm.replace_memory_region(&region(0, 0x10, 64)).unwrap().is_none(), "no change");
}

#[test]
fn blocks_are_split_before_they_are_written_and_come_back_when_asked_for() {
    let (setup, vm, mut vcpu) = Setup::in_blocks(0x400);
    for block in [0x200, 0x400] {
        write(&mut vcpu, block * PAGE_SIZE, &[1]);
        assert_eq!(translation(&mut vcpu, block).unwrap().0, Level::MIB2);
    }
    let id = SlotId::main(0);
    vm.set_memory_region(&logged(0x200, 0x400)).unwrap();
    assert_eq!(translation(&mut vcpu, 0x200).unwrap().0, Level::MIB2, "protected as they are");
    setup.hardware.take_invalidations();
    vm.split_blocks(id).unwrap();
    assert!(setup.hardware.take_invalidations().len() <= 1, "for both");
    for page in [0x200, 0x3ff, 0x400, 0x5ff] {
        let (level, leaf) = translation(&mut vcpu, page).unwrap();
        assert_eq!(level, Level::PAGE);
        assert!(!leaf.permissions.contains(Permissions::WRITE));
    }
    write(&mut vcpu, 0x20_1000, &[1]);
    assert_eq!(harvest(&vm), 2);
    assert_eq!(vm.collapse_pages(id), Ok(0), "a slot with a log is mapped by pages");

    vm.set_memory_region(&region(0, 0x200, 0x400)).unwrap();
    assert_eq!(vm.collapse_pages(id), Ok(2));
    for page in [0x200, 0x3ff, 0x400, 0x5ff] {
        let (level, leaf) = translation(&mut vcpu, page).unwrap();
        assert_eq!(level, Level::MIB2);
        assert!(leaf.permissions.contains(Permissions::WRITE), "and no write has faulted");
    }
    assert_eq!(vm.collapse_pages(id), Ok(0), "there is nothing more to do");
    assert_eq!(vm.collapse_pages(SlotId::main(9)), Err(Error::NoSlot(SlotId::main(9))));
    assert_eq!(vm.split_blocks(SlotId::main(9)), Err(Error::NoSlot(SlotId::main(9))));
}
