//! A log of which only what is marked is looked at, what it leaves when it is off, and what it costs a vCPU.

use std::time::Duration;

use mayfly_memslot::{DirtyWord, Flags, Gfn, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_platform::Op;
use mayfly_stage2::{Level, Permissions, Slice};
use mayfly_vm::{Config, Error, SlotZap, Vm};

use crate::common::{Setup, TestVcpu, TestVm, read, region, translation, vm, write};

const SLOT: SlotId = SlotId::main(0);

fn logged(gfn: u64, pages: u64) -> Region<Hva> {
    Region { flags: Flags::LOG_DIRTY_PAGES, ..region(0, gfn, pages) }
}

fn is_writable(vcpu: &mut TestVcpu, gfn: u64) -> bool {
    translation(vcpu, gfn).unwrap().1.permissions.contains(Permissions::WRITE)
}

/// The pages that are taken out of the log of slot 0.
fn harvest(vm: &TestVm) -> Vec<u64> {
    let (mut from, mut into) = (0, [DirtyWord::default(); 64]);
    let count = vm.harvest_marked(SLOT, &mut from, &mut into).unwrap();
    assert!(count < into.len());
    let pages = |one: &DirtyWord| {
        let (word, marks) = (one.word as u64, one.marks);
        (0..64).filter(move |bit| marks >> bit & 1 == 1).map(move |bit| 64 * word + bit)
    };
    into[..count].iter().flat_map(pages).collect()
}

#[test]
fn marks_are_listed_wherever_they_are_and_their_pages_are_protected_again() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&logged(0x10, 5000)).unwrap();
    let pages = [0, 63, 64, 511, 512, 4999];
    for page in pages {
        write(&mut vcpu, (0x10 + page) * PAGE_SIZE, &[1]);
    }
    setup.hardware.take_invalidations();
    assert_eq!(harvest(&vm), pages);
    assert_eq!(setup.hardware.take_invalidations().len(), 1, "for all of them");
    assert!(pages.iter().all(|page| !is_writable(&mut vcpu, 0x10 + page)));
    assert_eq!(harvest(&vm), [0; 0]);
    write(&mut vcpu, (0x10 + 512) * PAGE_SIZE, &[1]);
    assert_eq!(harvest(&vm), [512]);
}

#[test]
fn a_list_that_is_full_leaves_the_rest_marked_and_writable() {
    let vm = vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&logged(0, 1024)).unwrap();
    for page in [1, 65, 700] {
        write(&mut vcpu, page * PAGE_SIZE, &[1]);
    }
    let (mut from, mut into) = (0, [DirtyWord::default()]);
    assert_eq!(vm.harvest_marked(SLOT, &mut from, &mut into), Ok(1));
    assert_eq!(into, [DirtyWord { word: 0, marks: 2 }]);
    assert_eq!([1, 65, 700].map(|page| is_writable(&mut vcpu, page)), [false, true, true]);
    assert_eq!(vm.harvest_marked(SLOT, &mut from, &mut []), Ok(0));
    for word in [1, 10] {
        assert_eq!(vm.harvest_marked(SLOT, &mut from, &mut into), Ok(1));
        assert_eq!(into[0].word, word);
    }
    assert_eq!(vm.harvest_marked(SLOT, &mut from, &mut into), Ok(0));
}

#[test]
fn a_slot_without_a_log_has_no_marks_to_be_listed() {
    let vm = vm();
    vm.set_memory_region(&region(0, 0x10, 8)).unwrap();
    let harvest = |id| vm.harvest_marked(id, &mut 0, &mut [DirtyWord::default()]).unwrap_err();
    assert_eq!(harvest(SLOT), Error::NoLog(SLOT));
    assert_eq!(harvest(SlotId::main(1)), Error::NoSlot(SlotId::main(1)));
}

/// In slices of 16 entries each: how many there are is how much is looked at.
#[test]
fn a_harvest_looks_at_what_was_written_and_not_at_the_rest_of_the_slot() {
    const PAGES: u64 = 1 << 16;
    let setup = Setup::new(SlotZap::Range);
    let config = setup.config();
    let slice = Slice { entries: 16, time: Duration::from_secs(3600) };
    let vm = Vm::create(Config { slice, ..config }).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&logged(0, PAGES)).unwrap();
    for page in 0..PAGES {
        read(&mut vcpu, page * PAGE_SIZE, 1);
    }
    for page in (0..PAGES).step_by(8192) {
        write(&mut vcpu, page * PAGE_SIZE, &[1]);
    }
    let slices = || setup.hardware.charged(Op::SliceBegin);
    let before = slices();
    assert_eq!(harvest(&vm).len(), 8);
    let count = slices() - before;
    assert!(count <= 4, "{count}: one for each root, and not 4096 for all entries");
}

#[test]
fn a_log_that_is_off_has_its_blocks_put_together_where_it_was_written_and_nowhere_else() {
    const BLOCKS: u64 = 40;
    let (setup, vm, mut vcpu) = Setup::in_blocks(BLOCKS * 0x200);
    let gfn = |block: u64| 0x200 * (1 + block);
    for block in 0..BLOCKS {
        write(&mut vcpu, gfn(block) * PAGE_SIZE, &[1]);
    }
    vm.set_memory_region(&logged(0x200, BLOCKS * 0x200)).unwrap();
    let written: Vec<u64> = (0..BLOCKS).filter(|block| block % 8 != 5).collect();
    for block in &written {
        write(&mut vcpu, (gfn(*block) + 9) * PAGE_SIZE, &[1]);
    }
    harvest(&vm);
    let off = vm.replace_memory_region(&region(0, 0x200, BLOCKS * 0x200)).unwrap().unwrap();
    setup.hardware.take_invalidations();
    let collapsed = vm.collapse_written(SLOT, off.dirty().unwrap());
    assert_eq!(collapsed, Ok(written.len() as u64));
    let invalidations = setup.hardware.take_invalidations().len();
    assert_eq!(invalidations, 2, "one for 32 blocks, which are broken before they are made");
    for block in 0..BLOCKS {
        let (level, leaf) = translation(&mut vcpu, gfn(block) + 9).unwrap();
        assert_eq!(level, Level::MIB2);
        // What was not written is as the log has left it: the first write gets it back.
        let is_writable = leaf.permissions.contains(Permissions::WRITE);
        assert_eq!(is_writable, written.contains(&block), "block {block}");
    }
    assert_eq!(vm.collapse_written(SLOT, off.dirty().unwrap()), Ok(0), "nothing is left to do");
    let gone = SlotId::main(9);
    assert_eq!(vm.collapse_written(gone, off.dirty().unwrap()), Err(Error::NoSlot(gone)));
}

#[test]
fn blocks_are_not_put_together_while_there_is_a_log_or_the_host_takes_the_memory() {
    let (_setup, vm, mut vcpu) = Setup::in_blocks(0x400);
    vm.set_memory_region(&logged(0x200, 0x400)).unwrap();
    write(&mut vcpu, 0x20_0000, &[1]);
    let log = vm.replace_memory_region(&region(0, 0x200, 0x400)).unwrap().unwrap();
    vm.set_memory_region(&logged(0x200, 0x400)).unwrap();
    assert_eq!(vm.collapse_written(SLOT, log.dirty().unwrap()), Ok(0), "there is a log again");
    vm.set_memory_region(&region(0, 0x200, 0x400)).unwrap();
    let invalidation = vm.stage2().begin_invalidation(&(Gfn::new(0x200)..Gfn::new(0x201)));
    assert_eq!(vm.collapse_written(SLOT, log.dirty().unwrap()), Ok(0));
    assert_eq!(translation(&mut vcpu, 0x200).unwrap().0, Level::PAGE, "as it was");
    drop(invalidation);
    assert_eq!(vm.collapse_written(SLOT, log.dirty().unwrap()), Ok(1));
}

#[test]
fn a_vmm_reads_what_logs_have_cost_a_vcpu_and_only_what_logs_have() {
    let vm = vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let kicker = vcpu.kicker();
    vm.set_memory_region(&region(0, 0, 64)).unwrap();
    for page in 0..64 {
        write(&mut vcpu, page * PAGE_SIZE, &[1]);
    }
    assert_eq!(kicker.dirty_stall(), mayfly_vm::DirtyStall::default(), "there was no log");
    vm.set_memory_region(&logged(0, 64)).unwrap();
    for page in 0..64 {
        read(&mut vcpu, page * PAGE_SIZE, 1);
    }
    assert_eq!(kicker.dirty_stall().faults, 0, "nothing was written");
    for page in 0..5 {
        write(&mut vcpu, page * PAGE_SIZE, &[1]);
        write(&mut vcpu, page * PAGE_SIZE, &[2]);
    }
    let stall = kicker.dirty_stall();
    assert_eq!(stall.faults, 5, "the second write finds the page writable");
    assert!(stall.longest <= stall.time && stall.time <= stall.longest * 5, "{stall:?}");
    drop(vcpu);
    assert_eq!(kicker.dirty_stall(), stall, "and it can still be asked for");
}
