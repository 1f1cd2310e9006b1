//! Which cache lines vCPUs share and write when they fault: counted, store by store.
//!
//! All memory of a VM, tables included, lies where an access traps, and is written down (see `watch`). Two vCPUs fault
//! in turn. A line is shared if both touch it, whatever it holds: what a vCPU keeps for itself is not told apart by
//! name. What is the embedder's (the host's memory, the TLBs) lies elsewhere and is not counted.

#![cfg(all(target_os = "linux", target_arch = "x86_64", not(mayfly_loom)))]

#[path = "../common/mod.rs"]
mod common;
mod watch;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mayfly_memslot::{Flags, Gfn, Gpa, PAGE_SIZE, Region, SlotId};
use mayfly_stage2::{Format, Level};
use mayfly_vm::{Access, Base, Event, Exit, Guest, Requests, SlotZap, Translation};

use common::{Setup, TestFormat, TestVcpu, TestVm, frames, hva, region};
use watch::{LINE, Lines, Touched};

/// What is watched is all of it, so one test at a time.
static TURN: Mutex<()> = Mutex::new(());

/// A guest that comes out for one access, and halts when it is entered again.
struct Fault {
    access: Option<Access>,
    base: Option<Base>,
    cpu: u32,
}

impl Fault {
    fn new(cpu: u32, gfn: u64, write: bool) -> Self {
        let access = Access::data(Gpa::new(gfn * PAGE_SIZE), 8, write);
        Self { access: Some(access), base: None, cpu }
    }
}

impl<F: Format> Guest<F> for Fault {
    fn enter(&mut self, translation: Translation<F>, _requests: &Requests) -> Event {
        // SAFETY: a program that stands for a guest.
        self.base = Some(unsafe { translation.load() });
        self.access.take().map_or(Event::Halt, Event::Access)
    }

    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        unreachable!("there is memory")
    }

    fn answered(&mut self) {}
}

/// A VM in memory that is watched, and two vCPUs of it that have run.
struct World {
    setup: Setup,
    vm: TestVm,
    vcpus: [TestVcpu; 2],
    _turn: MutexGuard<'static, ()>,
}

/// Frames in one cache line of a table.
const PER_LINE: u64 = (LINE / size_of::<u64>()) as u64;

impl World {
    /// With 4 MiB from frame 0 on, and a table for each half of it.
    fn new(flags: Flags) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let setup = Setup::new(SlotZap::Range);
        let vm = watch::inside(|| setup.vm());
        watch::inside(|| vm.set_memory_region(&Region { flags, ..region(0, 0, 1024) }).unwrap());
        let vcpus = watch::inside(|| [0, 1].map(|id| vm.create_vcpu(id).unwrap()));
        let mut world = Self { setup, vm, vcpus, _turn: turn };
        for (vcpu, gfn) in world.vcpus.iter_mut().zip([0, 512]) {
            assert_eq!(vcpu.run(&mut Fault::new(vcpu.id(), gfn, true)), Exit::Halt);
        }
        world
    }

    /// What `vcpu` touches in a run with one fault, from before it enters until after it halts.
    fn fault(&mut self, vcpu: usize, gfn: u64, write: bool) -> Touched {
        let mut guest = Fault::new(vcpu as u32, gfn, write);
        let vcpu = &mut self.vcpus[vcpu];
        let (exit, touched) = watch::touched(|| vcpu.run(&mut guest));
        assert_eq!(exit, Exit::Halt);
        let (level, leaf) =
            frames::walk::<TestFormat>(guest.base.unwrap().top, Gfn::new(gfn)).unwrap();
        assert_eq!(level, Level::PAGE);
        assert_eq!(leaf.pfn.get(), hva(0, gfn * PAGE_SIZE).get() / PAGE_SIZE);
        touched
    }

    /// Two faults, one by each vCPU, at the frames given; and the lines that one of them writes and the other touches.
    fn contended(&mut self, gfns: [u64; 2], write: bool) -> Lines {
        let [one, two] = [0, 1].map(|vcpu| self.fault(vcpu, gfns[vcpu], write));
        for touched in [&one, &two] {
            assert!(
                touched.read.len() > 10 && touched.written.len() > 2,
                "it was watched: {touched:?}"
            );
        }
        let all = |touched: &Touched| -> Lines { &touched.read | &touched.written };
        &(&one.written & &all(&two)) | &(&two.written & &all(&one))
    }

    /// The line that the entry of `gfn` lies in.
    fn entry(&self, gfn: u64) -> usize {
        let root = mayfly_stage2::Role::MAIN;
        let top = self.vm.stage2().root(root, &self.vm.srcu().read_lock()).unwrap().top();
        frames::entry::<TestFormat>(top, Gfn::new(gfn)) / LINE
    }
}

#[test]
fn faults_in_one_line_of_a_table_contend_for_that_line_alone() {
    let mut world = World::new(Flags::empty());
    let line = world.entry(0);
    for (gfns, write) in [([1, 2], true), ([3, 4], false), ([5, 6], true)] {
        assert_eq!(world.contended(gfns, write), BTreeSet::from([line]), "{gfns:?}");
    }
}

#[test]
fn faults_in_different_lines_of_a_table_contend_for_nothing() {
    let mut world = World::new(Flags::empty());
    for write in [true, false] {
        let first = if write { PER_LINE } else { 10 * PER_LINE };
        let gfns = [first, first + PER_LINE];
        assert_eq!(world.contended(gfns, write), BTreeSet::new());
    }
    assert_eq!(world.contended([100, 512 + 100], true), BTreeSet::new(), "in different tables");
}

#[test]
fn a_fault_that_allows_more_writes_what_one_that_maps_does() {
    let mut world = World::new(Flags::empty());
    world.setup.memory.set_writable(false);
    let line = world.entry(0);
    assert_eq!(world.contended([1, 2], false), BTreeSet::from([line]));
    assert_eq!(world.contended([1, 2], true), BTreeSet::from([line]));
    world.vm.age(hva(0, 0), 1024 * PAGE_SIZE);
    assert_eq!(world.contended([1, 2], true), BTreeSet::from([line]));
    world.contended([PER_LINE, 2 * PER_LINE], false);
    assert_eq!(world.contended([PER_LINE, 2 * PER_LINE], true), BTreeSet::new());
}

#[test]
fn a_dirty_log_adds_the_line_of_its_bits() {
    let mut world = World::new(Flags::LOG_DIRTY_PAGES);
    let line = world.entry(0);
    let contended = world.contended([1, 2], true);
    assert_eq!(contended.len(), 2, "the entry and the log");
    assert!(contended.contains(&line));
    let log: Lines = contended.into_iter().filter(|&other| other != line).collect();
    assert_eq!(world.contended([PER_LINE, 2 * PER_LINE], true), log, "the log alone");
    assert_eq!(world.contended([3, 4], false), BTreeSet::from([line]), "reads are not logged");
    assert_eq!(world.vm.harvest_dirty(SlotId::main(0), 0, &mut [0; 16]), Ok(6));
}

#[test]
fn a_vcpu_alone_writes_its_entry_and_two_lines_of_its_own() {
    let mut world = World::new(Flags::empty());
    let line = world.entry(PER_LINE);
    let mut written = world.fault(0, PER_LINE, true).written;
    assert!(written.remove(&line));
    // Its requests, with whether it is in the guest; its record as a reader.
    assert_eq!(written.len(), 2);
    assert_eq!(world.fault(0, 2 * PER_LINE, true).written.intersection(&written).count(), 2);
    let others = world.fault(1, 3 * PER_LINE, true);
    assert!(written.is_disjoint(&others.read) && written.is_disjoint(&others.written));
}

#[test]
fn what_two_write_is_seen() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let words = watch::inside(|| Box::new([const { AtomicU64::new(0) }; 64]));
    let order = Ordering::Relaxed;
    let ((), touched) = watch::touched(|| {
        words[0].store(0, order);
        words[9].swap(0, order);
        black_box(words[40].load(order));
    });
    let line = |index: usize| std::ptr::from_ref(&words[index]).addr() / LINE;
    assert_eq!(touched.written, BTreeSet::from([line(0), line(9)]), "though nothing has changed");
    assert_eq!(touched.read, BTreeSet::from([line(40)]));
}
