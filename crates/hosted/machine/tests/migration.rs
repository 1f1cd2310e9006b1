//! Memory that is copied while its guest writes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{ScopedJoinHandle, scope, yield_now};

use mayfly_machine::address_space::Backing;
use mayfly_machine::walk::Cause;
use mayfly_machine::{Arena, CpuTlb, HostMemory, Machine, MachineVcpu, MachineVm};
use mayfly_memslot::{Flags, Gfn, Gpa, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_stage2::{Arm, Ept, Format, Level, Permissions};
use mayfly_vm::{Access, Event, Exit, Guest, Requests, Translation};

use mayfly_platform::testing::threads::{Over, until};

const BLOCKS: u64 = 2;
const PAGES: u64 = BLOCKS * Level::MIB2.pages();
const WORDS: usize = (PAGES / 64) as usize;
/// Words of the log that are taken at a time.
const PART: usize = 4;
const SLOT: SlotId = SlotId::main(0);

/// Counts up the first word of each of its pages, here and there, until it is told to stop or its memory is gone.
struct Counting<'a> {
    tlb: CpuTlb,
    arena: Arc<Arena>,
    /// Its pages are those of this number modulo two.
    number: u64,
    at: u64,
    writes: &'a AtomicU64,
    stops: &'a AtomicBool,
}

impl Counting<'_> {
    fn stay<F: Format>(&mut self, translation: Translation<F>, requests: &Requests) -> Event {
        let Self { tlb, arena, number, at, writes, stops } = self;
        let mut guest = tlb.enter::<F>(arena, &translation);
        for _ in 0..256 {
            if requests.any() {
                return Event::Request;
            }
            if stops.load(Ordering::Acquire) {
                return Event::Halt;
            }
            guest.poll();
            let page = (*at * 37 % (PAGES / 2)) * 2 + *number;
            let gpa = Gpa::new(page * PAGE_SIZE);
            match guest.translate::<F>(arena, gpa.gfn(), Permissions::WRITE) {
                Ok(found) => arena.word(found.hpa(gpa)).fetch_add(1, Ordering::Relaxed),
                Err(fault) => {
                    let denied = fault.cause == Cause::Permission;
                    return Event::Access(Access { denied, ..Access::data(gpa, 8, true) });
                }
            };
            writes.fetch_add(1, Ordering::Relaxed);
            *at += 1;
        }
        Event::Request
    }
}

/// A guest on CPUs with format `F`.
struct On<'a, F>(Counting<'a>, std::marker::PhantomData<F>);

impl<F: Format> Guest<F> for On<'_, F> {
    fn enter(&mut self, translation: Translation<F>, requests: &Requests) -> Event {
        self.0.stay::<F>(translation, requests)
    }

    fn cpu(&self) -> u32 {
        self.0.tlb.number()
    }

    fn forget(&mut self, gfn: Gfn) {
        self.0.tlb.forget(gfn);
    }

    fn data(&mut self) -> &mut [u8] {
        &mut []
    }

    fn answered(&mut self) {}
}

struct Migration<F: Format> {
    machine: Machine<F>,
    vm: MachineVm<F>,
    memory: HostMemory,
    copy: Vec<u64>,
}

impl<F: Format> Migration<F> {
    fn new() -> Self {
        let machine = Machine::<F>::with_frames(1 << 16).unwrap();
        let vm = machine.create_vm().unwrap();
        let memory = machine.map_backed(PAGES * PAGE_SIZE, Backing::HugePages).unwrap();
        vm.set_memory_region(&memory.region(SLOT, Gpa::new(0))).unwrap();
        Self { machine, vm, memory, copy: vec![0; PAGES as usize] }
    }

    fn region(&self, flags: Flags) -> Region<Hva> {
        Region { flags, ..self.memory.region(SLOT, Gpa::new(0)) }
    }

    fn read(&self, page: usize) -> u64 {
        self.memory.read_u64(page as u64 * PAGE_SIZE)
    }

    /// Copies the pages that are marked from word `first` on.
    fn copy(&mut self, first: usize, words: &[u64]) {
        for (word, marks) in (first..).zip(words) {
            for page in (64 * word..).take(64).filter(|page| marks >> (page % 64) & 1 != 0) {
                self.copy[page] = self.read(page);
            }
        }
    }

    /// What is in the log, taken part by part, each copied when it is taken. Returns how many pages were copied.
    fn copy_log(&mut self) -> u64 {
        let mut words = [0; WORDS];
        self.vm.read_dirty(SLOT, 0, &mut words).unwrap();
        let mut copied = 0;
        for first in (0..WORDS).step_by(PART) {
            let which = &mut words[first..WORDS.min(first + PART)];
            copied += self.vm.clear_dirty(SLOT, first, which).unwrap();
            self.copy(first, &words[first..WORDS.min(first + PART)]);
        }
        copied
    }

    fn copy_all(&mut self) {
        self.copy(0, &[!0; WORDS]);
    }

    fn differ(&self) -> usize {
        (0..PAGES as usize).filter(|&page| self.read(page) != self.copy[page]).count()
    }
}

/// Runs a vCPU until its guest stops, or its memory is gone.
fn run<F: Format>(mut vcpu: MachineVcpu<F>, mut guest: On<'_, F>) {
    loop {
        match vcpu.run(&mut guest) {
            Exit::Kicked => {}
            Exit::Halt | Exit::Mmio(_) => return,
            exit => panic!("a vCPU came out with {exit:?}"),
        }
    }
}

/// A guest of two vCPUs while `migrate` is at work. It ends when `migrate` says so, or with its memory.
fn beside<F: Format>(
    migration: &mut Migration<F>,
    migrate: impl FnOnce(&mut Migration<F>, &AtomicU64, &AtomicBool),
) {
    let (writes, stops) = (AtomicU64::new(0), AtomicBool::new(false));
    scope(|scope| {
        let vcpus: Vec<ScopedJoinHandle<'_, ()>> = [0, 1]
            .map(|number| {
                let vcpu = migration.vm.create_vcpu(number as u32).unwrap();
                let hardware = migration.machine.hardware();
                let (tlb, arena) = (hardware.tlbs().cpu(), Arc::clone(hardware.arena()));
                let (writes, stops) = (&writes, &stops);
                let guest = Counting { tlb, arena, number, at: 0, writes, stops };
                scope.spawn(move || {
                    // One that ends while `migrate` waits for its writes.
                    let _over = Over(stops);
                    run(vcpu, On(guest, std::marker::PhantomData));
                })
            })
            .into();
        // Also where `migrate` panics, which would wait for the vCPUs otherwise.
        let _over = Over(&stops);
        until_written(&writes, PAGES, &stops);
        migrate(migration, &writes, &stops);
        for vcpu in vcpus {
            vcpu.join().unwrap();
        }
    });
}

/// Waits until the guest has written `more` times.
fn until_written(writes: &AtomicU64, more: u64, stops: &AtomicBool) {
    let target = writes.load(Ordering::Relaxed) + more;
    until(stops, || writes.load(Ordering::Relaxed) >= target);
}

fn a_guest_that_is_copied_as_it_runs_has_the_same_memory_in_the_end<F: Format>() {
    for deletes in [false, true] {
        let mut migration = Migration::<F>::new();
        beside(&mut migration, |migration, writes, stops| {
            migration.vm.set_memory_region(&migration.region(Flags::LOG_DIRTY_PAGES)).unwrap();
            migration.vm.split_blocks(SLOT).unwrap();
            migration.copy_all();
            let mut copied = 0;
            while copied < PAGES {
                until_written(writes, PAGES / 4, stops);
                copied += migration.copy_log();
            }
            until_written(writes, 100, stops);
            if deletes {
                // Under the guest, which runs until it has no memory.
                let gone = Region { size: 0, ..migration.region(Flags::empty()) };
                let slot = migration.vm.replace_memory_region(&gone).unwrap().unwrap();
                let mut words = [0; WORDS];
                assert!(slot.dirty().unwrap().harvest(0, &mut words) > 0);
                migration.copy(0, &words);
                assert_eq!(migration.differ(), 0, "{}, deleted", F::NAME);
            }
            stops.store(true, Ordering::Release);
        });
        if !deletes {
            assert!(migration.copy_log() > 0);
        }
        assert_eq!(migration.differ(), 0, "{}, {deletes}", F::NAME);
    }
}

fn a_guest_whose_migration_is_called_off_has_its_blocks_back<F: Format>() {
    let mut migration = Migration::<F>::new();
    beside(&mut migration, |migration, writes, stops| {
        // By what each page is mapped. All of them are mapped, but a vCPU's fault freezes an entry while it changes it.
        let count = |migration: &Migration<F>, wanted: Level| {
            let vm = &migration.vm;
            let level = |page| loop {
                let section = vm.srcu().read_lock();
                let root = vm.stage2().roots(&section).next().unwrap();
                match root.translate(Gfn::new(page), &section) {
                    Some((level, _)) => return level,
                    None => yield_now(),
                }
            };
            (0..PAGES).filter(|page| level(*page) == wanted).count() as u64
        };
        migration.vm.set_memory_region(&migration.region(Flags::LOG_DIRTY_PAGES)).unwrap();
        migration.vm.split_blocks(SLOT).unwrap();
        assert_eq!((count(migration, Level::PAGE), count(migration, Level::MIB2)), (PAGES, 0));
        until_written(writes, PAGES / 2, stops);
        migration.copy_log();
        migration.vm.set_memory_region(&migration.region(Flags::empty())).unwrap();
        migration.vm.collapse_pages(SLOT).unwrap();
        // Some the guest may have made itself, by a write.
        assert_eq!(count(migration, Level::MIB2), PAGES);
        until_written(writes, PAGES, stops);
        stops.store(true, Ordering::Release);
    });
}

#[test]
fn a_guest_that_is_copied_as_it_runs_has_the_same_memory_in_the_end_with_ept() {
    a_guest_that_is_copied_as_it_runs_has_the_same_memory_in_the_end::<Ept>();
}

#[test]
fn a_guest_that_is_copied_as_it_runs_has_the_same_memory_in_the_end_on_arm() {
    a_guest_that_is_copied_as_it_runs_has_the_same_memory_in_the_end::<Arm<48>>();
}

#[test]
fn a_guest_whose_migration_is_called_off_has_its_blocks_back_with_ept() {
    a_guest_whose_migration_is_called_off_has_its_blocks_back::<Ept>();
}

#[test]
fn a_guest_whose_migration_is_called_off_has_its_blocks_back_on_arm() {
    a_guest_whose_migration_is_called_off_has_its_blocks_back::<Arm<48>>();
}
