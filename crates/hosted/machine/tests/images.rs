//! Images: memory that is frozen, memory that begins as it, and goes back to it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use mayfly_machine::address_space::{Backing, Error, HostSpace, Image, Protection};
use mayfly_machine::{
    Arena, Cpu, HostMemory, Instruction, Machine, MachineVcpu, MachineVm, Telling, VmOptions,
};
use mayfly_memslot::{Gpa, SlotId};
use mayfly_platform::Op;
use mayfly_platform::address::{Hva, PAGE_SIZE};
use mayfly_vm::{Exit, Vm};

const MIB2: u64 = 2 << 20;

fn space(frames: usize) -> (Arc<Arena>, Arc<HostSpace>) {
    let arena = Arc::new(Arena::new(frames).unwrap());
    (arena.clone(), Arc::new(HostSpace::new(arena)))
}

/// Pages that hold their number and `more`.
fn filled(space: &Arc<HostSpace>, pages: u64, more: u64) -> HostMemory {
    let memory = HostMemory::map(space, pages * PAGE_SIZE, Backing::Pages).unwrap();
    for page in 0..pages {
        memory.write_u64(page * PAGE_SIZE, page + more);
    }
    memory
}

fn read(memory: &HostMemory, pages: Range<u64>) -> Vec<u64> {
    pages.map(|page| memory.read_u64(page * PAGE_SIZE)).collect()
}

fn read_image(image: &Image, pages: Range<u64>) -> Vec<u64> {
    pages.map(|page| image.read_u64(page * PAGE_SIZE)).collect()
}

#[test]
fn memory_that_begins_as_an_image_takes_a_frame_for_each_page_that_is_written() {
    let (arena, space) = space(64);
    let parent = filled(&space, 8, 100);
    let image = parent.freeze().unwrap();
    let [one, other] = [(); 2].map(|()| {
        let space = Arc::new(HostSpace::new(arena.clone()));
        HostMemory::map_image(&space, &image).unwrap()
    });
    assert_eq!((arena.in_use(), image.size()), (8, 8 * PAGE_SIZE));
    assert_eq!([read(&one, 0..8), read(&other, 0..8)], [(); 2].map(|()| read(&parent, 0..8)));
    assert_eq!(arena.in_use(), 8, "reading takes nothing");

    one.write_u64(3 * PAGE_SIZE, 1);
    one.write_u64(3 * PAGE_SIZE + 8, 2);
    other.write_u64(3 * PAGE_SIZE, 3);
    parent.write_u64(4 * PAGE_SIZE, 4);
    assert_eq!(arena.in_use(), 11);
    assert_eq!(read(&one, 2..6), [102, 1, 104, 105]);
    assert_eq!(read(&other, 2..6), [102, 3, 104, 105]);
    assert_eq!(read(&parent, 2..6), [102, 103, 4, 105]);
    assert_eq!(read_image(&image, 2..6), [102, 103, 104, 105]);

    // The image is there as long as anybody has it.
    drop((parent, image));
    assert_eq!((arena.in_use(), read(&other, 4..5)), (10, vec![104]));
    drop(one);
    assert_eq!(arena.in_use(), 9);
    drop(other);
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn a_page_that_the_image_never_had_is_zeroes_and_each_memorys_own() {
    let (arena, space) = space(64);
    let parent = HostMemory::map(&space, 4 * PAGE_SIZE, Backing::Pages).unwrap();
    parent.write_u64(PAGE_SIZE, 7);
    let image = parent.freeze().unwrap();
    let fork = HostMemory::map_image(&space, &image).unwrap();
    assert_eq!((read(&fork, 0..4), read_image(&image, 0..4)), (vec![0, 7, 0, 0], vec![0, 7, 0, 0]));
    fork.write_u64(2 * PAGE_SIZE, 8);
    assert_eq!((read(&fork, 2..3), read(&parent, 2..3)), (vec![8], vec![0]));
    assert_eq!(fork.discard(), Ok(3));
    assert_eq!(read(&fork, 0..4), [0, 7, 0, 0]);
    drop((parent, image, fork));
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn what_is_discarded_is_what_it_was_when_it_was_mapped_and_its_frames_are_free() {
    let (arena, space) = space(2048);
    let parent = filled(&space, 1000, 100);
    let image = parent.freeze().unwrap();
    let fork = HostMemory::map_image(&space, &image).unwrap();
    for page in [0, 1, 2, 500, 999] {
        fork.write_u64(page * PAGE_SIZE, 1);
    }
    assert!(space.reclaim(Hva::new(fork.hva().get() + 500 * PAGE_SIZE)));
    assert_eq!((arena.in_use(), space.swapped()), (1004, 1));
    // Part of it, and then the rest.
    let from = Hva::new(fork.hva().get() + 2 * PAGE_SIZE);
    assert_eq!(space.discard(from..fork.hvas().end), Ok(3));
    assert_eq!((arena.in_use(), space.swapped()), (1002, 0));
    assert_eq!(read(&fork, 0..4), [1, 1, 102, 103]);
    assert_eq!(fork.discard(), Ok(2));
    assert_eq!(read(&fork, 0..1000), read_image(&image, 0..1000));
    assert_eq!((fork.discard(), arena.in_use()), (Ok(0), 1000));

    let plain = filled(&space, 3, 7);
    assert_eq!((plain.discard(), arena.in_use()), (Ok(3), 1000));
    assert_eq!(read(&plain, 0..3), [0; 3]);
    let huge = HostMemory::map(&space, MIB2, Backing::HugePages).unwrap();
    huge.write_u64(5 * PAGE_SIZE, 9);
    huge.write_u64(6 * PAGE_SIZE, 10);
    let page = Hva::new(huge.hva().get() + 5 * PAGE_SIZE);
    assert_eq!(space.discard(page..Hva::new(page.get() + PAGE_SIZE)), Ok(1));
    assert_eq!(read(&huge, 5..7), [0, 10]);
    assert_eq!(huge.discard(), Ok(512));
    assert_eq!(read(&huge, 5..7), [0, 0]);
}

#[test]
fn a_fork_is_frozen_as_other_memory_is_and_leaves_its_own_image_alone() {
    let (arena, space) = space(2048);
    let huge = HostMemory::map(&space, MIB2, Backing::HugePages).unwrap();
    (0..512).for_each(|page| huge.write_u64(page * PAGE_SIZE, page));
    let first = huge.freeze().unwrap();
    let fork = HostMemory::map_image(&space, &first).unwrap();
    fork.write_u64(9 * PAGE_SIZE, 1000);
    let second = fork.freeze().unwrap();
    fork.write_u64(9 * PAGE_SIZE, 2000);
    fork.write_u64(10 * PAGE_SIZE, 2001);
    assert_eq!(arena.in_use(), 512 + 1 + 2);
    assert_eq!(read_image(&first, 8..11), [8, 9, 10]);
    assert_eq!(read_image(&second, 8..11), [8, 1000, 10]);
    assert_eq!(read(&fork, 8..11), [8, 2000, 2001]);
    // What the second has of the first stays.
    drop((huge, first));
    assert_eq!(fork.discard(), Ok(2));
    assert_eq!((read(&fork, 8..11), arena.in_use()), (vec![8, 1000, 10], 512));
    drop(fork);
    assert_eq!((read_image(&second, 8..11), arena.in_use()), (vec![8, 1000, 10], 512));
    drop(second);
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn protection_and_unmapping_go_by_pages_of_an_image_as_of_other_memory() {
    let (arena, space) = space(64);
    let parent = filled(&space, 6, 100);
    let image = parent.freeze().unwrap();
    let fork = HostMemory::map_image(&space, &image).unwrap();
    let at = |page| Hva::new(fork.hva().get() + page * PAGE_SIZE);
    space.mprotect(at(2)..at(4), Protection::ReadOnly).unwrap();
    assert!(space.write_u64(at(2), 1).is_err());
    space.write_u64(at(4), 1).unwrap();
    space.munmap(at(0)..at(1)).unwrap();
    assert!(space.read_u64(at(0)).is_err());
    assert_eq!(read(&fork, 1..6), [101, 102, 103, 1, 105]);
    assert_eq!(arena.in_use(), 7);
    assert_eq!(space.fork(at(1)..at(2)), Err(Error::Invalid));
    assert_eq!(space.mremap(at(1)..at(2), None), Err(Error::Invalid));
    assert_eq!(space.migrate_range(at(1)..at(6)), Ok(1), "the image's pages are nobody's to move");
    assert_eq!(read(&fork, 1..6), [101, 102, 103, 1, 105]);
}

#[test]
fn what_is_not_all_mapped_or_there_for_good_is_neither_frozen_nor_discarded() {
    let (arena, space) = space(64);
    let start = filled(&space, 4, 7);
    let hole = Hva::new(start.hva().get() + 2 * PAGE_SIZE);
    space.munmap(hole..Hva::new(hole.get() + PAGE_SIZE)).unwrap();
    assert_eq!(start.freeze().unwrap_err(), Error::NotMapped);
    assert_eq!(start.discard(), Err(Error::NotMapped));
    let fixed = HostMemory::map(&space, PAGE_SIZE, Backing::Contiguous).unwrap();
    assert_eq!(
        (fixed.freeze().unwrap_err(), fixed.discard()),
        (Error::Invalid, Err(Error::Invalid))
    );
    let image = filled(&space, 1, 7).freeze().unwrap();
    let (_, elsewhere) = self::space(64);
    assert_eq!(HostMemory::map_image(&elsewhere, &image).unwrap_err(), Error::Invalid);
    drop(image);
    assert_eq!(arena.in_use(), 4);
}

/// A VM whose memory is an image's, in an address space of its own.
struct Fork {
    vcpu: MachineVcpu,
    cpu: Cpu,
    vm: Vm<mayfly_machine::MachineWorld<mayfly_stage2::Ept>>,
    memory: HostMemory,
    space: Arc<HostSpace>,
    id: mayfly_machine::address_space::NotifierId,
}

impl Fork {
    fn of(machine: &Machine, image: &Arc<Image>) -> Self {
        let space = machine.another_space();
        let memory = HostMemory::map_image(&space, image).unwrap();
        let vm = Vm::create(machine.config(&space, VmOptions::default())).unwrap();
        let id = space.register(Arc::new(Telling::new(vm.clone(), true)));
        vm.set_memory_region(&memory.region(SlotId::main(0), Gpa::new(0))).unwrap();
        let vcpu = vm.create_vcpu(0).unwrap();
        Self { vcpu, cpu: machine.cpu(Vec::new()), vm, memory, space, id }
    }

    fn run(&mut self, program: Vec<Instruction>) -> u64 {
        self.cpu.load(program);
        assert_eq!(self.vcpu.run(&mut self.cpu), Exit::Halt);
        self.cpu.mismatches()
    }

    fn destroy(self) {
        let Self { vcpu, vm, memory, space, id, .. } = self;
        drop(vcpu);
        vm.clone().destroy();
        space.unregister(id);
        vm.wait_reclaimed();
        drop(memory);
    }
}

fn touch(pages: Range<u64>, value: u64) -> Instruction {
    let (gpa, len) = (Gpa::new(pages.start * PAGE_SIZE), (pages.end - pages.start) * PAGE_SIZE);
    Instruction::Touch { gpa, len, value }
}

fn verify(pages: Range<u64>, value: u64) -> Instruction {
    let (gpa, len) = (Gpa::new(pages.start * PAGE_SIZE), (pages.end - pages.start) * PAGE_SIZE);
    Instruction::Verify { gpa, len, value }
}

/// A machine, and an image of so many pages that all hold 7.
fn frozen(pages: u64) -> (Machine, Arc<Image>) {
    let machine = Machine::with_frames(1 << 16).unwrap();
    let memory = machine.map(pages * PAGE_SIZE).unwrap();
    (0..pages).for_each(|page| memory.write_u64(page * PAGE_SIZE, 7));
    (machine, memory.freeze().unwrap())
}

#[test]
fn a_guest_that_goes_back_finds_the_image_and_faults_for_what_it_had_written_alone() {
    let (machine, image) = frozen(4096);
    let arena = machine.hardware().arena().clone();
    let before = arena.in_use();
    let mut fork = Fork::of(&machine, &image);
    // It reads 100 pages, and writes to 40 of them, and to 10 others.
    let wrong = fork.run(vec![
        verify(0..100, 7),
        touch(60..100, 1),
        touch(3000..3010, 1),
        verify(60..100, 1),
        verify(0..60, 7),
    ]);
    assert_eq!(wrong, 0);
    let tables = fork.vm.stage2().frames() as u64;
    assert_eq!(arena.in_use() - before, 50 + tables);

    let entries = machine.hardware().charged(Op::EntriesWritten(0));
    assert_eq!(fork.memory.discard(), Ok(50));
    let zapped = machine.hardware().charged(Op::EntriesWritten(0)) - entries;
    assert_eq!(zapped, 50, "the 60 pages that were only read stay mapped");
    assert_eq!(arena.in_use() - before, tables);

    let entries = machine.hardware().charged(Op::EntriesWritten(0));
    assert_eq!(fork.run(vec![verify(0..100, 7), verify(3000..3010, 7)]), 0);
    assert_eq!(machine.hardware().charged(Op::EntriesWritten(0)) - entries, 50);
    assert!(read_image(&image, 0..4096).iter().all(|value| *value == 7));
    fork.destroy();
    assert_eq!(arena.in_use(), before);
}

#[test]
fn a_fork_costs_the_same_whatever_the_size_of_its_memory() {
    let counts = [512_u64, 32768].map(|pages| {
        let (machine, image) = frozen(pages);
        let hardware = machine.hardware();
        let (frames, entries) =
            (hardware.arena().in_use(), hardware.charged(Op::EntriesWritten(0)));
        let mut fork = Fork::of(&machine, &image);
        let idle = hardware.arena().in_use() - frames;
        assert_eq!(fork.run(vec![touch(100..120, 1)]), 0);
        let after = hardware.arena().in_use() - frames;
        let entries = hardware.charged(Op::EntriesWritten(0)) - entries;
        fork.destroy();
        (idle, after, entries)
    });
    assert_eq!(counts[0], counts[1]);
}

/// Says that it is over when it is dropped.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_image_of_a_running_guest_changes_no_more() {
    const PAGES: u64 = 64;
    let machine = Machine::with_frames(1 << 16).unwrap();
    let vm: MachineVm = machine.create_vm().unwrap();
    let memory = machine.map(PAGES * PAGE_SIZE).unwrap();
    vm.set_memory_region(&memory.region(SlotId::main(0), Gpa::new(0))).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let done = AtomicBool::new(false);
    scope(|threads| {
        // Also where a check fails: the guest ends then, and the test.
        let _ended = Ended(&done);
        threads.spawn(|| {
            let mut cpu = machine.cpu(Vec::new());
            for value in 1.. {
                cpu.load(vec![touch(0..PAGES, value), verify(0..PAGES, value)]);
                assert_eq!(vcpu.run(&mut cpu), Exit::Halt);
                assert_eq!(cpu.mismatches(), 0, "the guest has lost a write");
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..50 {
            let image = memory.freeze().unwrap();
            let fork = HostMemory::map_image(&machine.another_space(), &image).unwrap();
            let seen = read_image(&image, 0..PAGES);
            // What one pass writes, it writes from the first page on.
            assert!(seen.is_sorted_by(|one, next| one >= next), "{seen:?}");
            assert!(seen[0] - seen[PAGES as usize - 1] <= 1, "{seen:?}");
            fork.write_u64(0, u64::MAX);
            std::thread::yield_now();
            assert_eq!(read_image(&image, 0..PAGES), seen);
            assert_eq!(read(&fork, 1..PAGES), seen[1..]);
        }
    });
    drop(vcpu);
    vm.destroy();
}
