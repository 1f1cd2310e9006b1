//! What is counted.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use mayfly_vm::iobus::IoRange;
use mayfly_vm::memslot::{PAGE_SIZE, Region};
use mayfly_vm::platform::cache::InstructionCaches;
use mayfly_vm::stage2::{VmidTag, Vmids};
use mayfly_vm::{Bus, CacheOp, Caches, Device, Event, Reason, Vm};

use crate::console;
use crate::guest::Script;
use crate::memory::Register;
use crate::platform::Machine;
use crate::setup::{Kinds, Setup, deleted, exit, hypercall, region, touch};
use crate::state;
use crate::table::{Limits, Table, UNBOUNDED, at_most};

/// Pages of a block of 2 MiB.
const BLOCK: u64 = 512;

/// Counts everything. Returns whether all limits hold.
pub(crate) fn run() -> bool {
    let mut buffer = [0; 128];
    let mut table = Table::new(console::argument(&mut buffer));
    creation(&mut table);
    devices(&mut table);
    exits(&mut table);
    slots(&mut table);
    ends(&mut table);
    aliases(&mut table);
    reclaim(&mut table);
    tracked(&mut table);
    vmids(&mut table);
    state::rows(&mut table);
    table.all_hold()
}

fn creation(table: &mut Table<'_>) {
    for (caches, name, limit) in [
        (Caches::Coherent, "Vm::create, coherent", 4_000),
        (Caches::Tracked, "Vm::create, tracked", 5_500),
    ] {
        let setup = Setup::new(caches, false);
        let config = setup.config();
        let limits = Limits { stack: Some(2 << 10), ..at_most(limit) };
        let vm = table.row(name, limits, &setup.machine, || Vm::create(config));
        let vm = vm.unwrap();
        table
            .row("  its create_vcpu, first", UNBOUNDED, &setup.machine, || vm.create_vcpu(0))
            .unwrap();
        table
            .row("  its create_vcpu, later", UNBOUNDED, &setup.machine, || vm.create_vcpu(1))
            .unwrap();
    }
    let setup = Setup::new(Caches::Coherent, false);
    let vm = setup.vm();
    for index in 0..3 {
        let region = region(index, u64::from(index) << 10, 1 << 10);
        let set = || vm.set_memory_region(&region);
        table.row("set_memory_region, create", UNBOUNDED, &setup.machine, set).unwrap();
    }
}

/// A range of a device.
fn range(index: u64) -> IoRange {
    IoRange { start: (1 << 36) + index * PAGE_SIZE, len: PAGE_SIZE }
}

fn register(vm: &Vm<Kinds>, index: u64) {
    assert!(vm.register_device(Bus::Mmio, range(index), Box::new(Register)).is_ok());
}

fn devices(table: &mut Table<'_>) {
    let setup = Setup::new(Caches::Coherent, false);
    let vm = setup.vm();
    for index in 0..8 {
        let device: Box<dyn Device> = Box::new(Register);
        let add = || vm.register_device(Bus::Mmio, range(index), device);
        let added = table.row("register_device", UNBOUNDED, &setup.machine, add);
        assert!(added.is_ok());
    }
    let take = || vm.unregister_device(Bus::Mmio, range(3));
    table.row("unregister_device", UNBOUNDED, &setup.machine, take).unwrap();
}

fn exits(table: &mut Table<'_>) {
    let setup = Setup::new(Caches::Coherent, false);
    let (machine, vm) = (&*setup.machine, setup.vm());
    (0..8).for_each(|index| register(&vm, index));
    vm.set_memory_region(&region(0, 0, 1 << 16)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    touch(&mut vcpu, 0, true);

    let limits = Limits { barriers: Some(2), ..at_most(230) };
    let at = |index: u64, write| Script::access(range(index).start, write);
    for write in [false, true] {
        exit(&mut vcpu, at(2, write));
        let name = if write { "MMIO exit, write" } else { "MMIO exit, read" };
        table.counted(name, limits, machine, || exit(&mut vcpu, at(2, write)));
    }
    let away = || exit(&mut vcpu, at(5, false));
    table.counted("  of another device than the last", UNBOUNDED, machine, away);
    table.counted("hypercall answered in enter", UNBOUNDED, machine, || {
        exit(&mut vcpu, hypercall())
    });
    let there = || touch(&mut vcpu, 1, true);
    table.counted("first fault, tables there", at_most(420), machine, there);
    let read = || touch(&mut vcpu, 2, false);
    table.counted("  of a read", at_most(420), machine, read);
    let missing = || touch(&mut vcpu, BLOCK, true);
    table.counted("first fault, a table missing", UNBOUNDED, machine, missing);
    setup.memory.writable.store(false, Ordering::Relaxed);
    touch(&mut vcpu, 3, false);
    let relaxes = || exit(&mut vcpu, Script::denied_write(3 * PAGE_SIZE));
    table.counted("fault that relaxes", UNBOUNDED, machine, relaxes);
    let again = || exit(&mut vcpu, Script::denied_write(3 * PAGE_SIZE));
    table.counted("fault of what is there already", UNBOUNDED, machine, again);
}

fn slots(table: &mut Table<'_>) {
    let pages = ["delete 100 pages, coherent", "delete 100 pages, tracked"];
    let blocks = ["delete 128 blocks of 2 MiB, coherent", "delete 128 blocks of 2 MiB, tracked"];
    let designs = [Caches::Coherent, Caches::Tracked];
    for (caches, (pages, blocks)) in designs.into_iter().zip(pages.into_iter().zip(blocks)) {
        let setup = Setup::new(caches, false);
        let (machine, vm) = (&*setup.machine, setup.vm());
        let small = region(0, 0, 100);
        vm.set_memory_region(&small).unwrap();
        let mut vcpu = vm.create_vcpu(0).unwrap();
        if caches == Caches::Tracked {
            exit(&mut vcpu, Script::new(Event::Caches(CacheOp::On)));
        }
        for page in 0..100 {
            touch(&mut vcpu, page, true);
        }
        let delete = || vm.set_memory_region(&deleted(small));
        table.row(pages, UNBOUNDED, machine, delete).unwrap();

        let setup = Setup::new(caches, true);
        let (machine, vm) = (&*setup.machine, setup.vm());
        let large = region(0, 0, 128 * BLOCK);
        vm.set_memory_region(&large).unwrap();
        let mut vcpu = vm.create_vcpu(0).unwrap();
        if caches == Caches::Tracked {
            exit(&mut vcpu, Script::new(Event::Caches(CacheOp::On)));
        }
        for block in 0..128 {
            touch(&mut vcpu, block * BLOCK, true);
        }
        let delete = || vm.set_memory_region(&deleted(large));
        let limits = Limits { invalidations: Some(128), ..at_most(10_000) };
        table.row(blocks, limits, machine, delete).unwrap();
    }
}

fn ends(table: &mut Table<'_>) {
    let setup = Setup::new(Caches::Coherent, false);
    let (machine, vm) = (&*setup.machine, setup.vm());
    vm.set_memory_region(&region(0, 0, 1 << 16)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    touch(&mut vcpu, 0, true);
    let other = vm.clone();
    table.row("destroy", UNBOUNDED, machine, || vm.destroy());
    table.row("drop of a vCPU", UNBOUNDED, machine, || drop(vcpu));
    setup.reclaim();
    table.row("drop of a VM", UNBOUNDED, machine, || drop(other));
}

/// A page of host memory in very many slots: each of four times as many costs what it did, and the steps further down
/// that a search among the slots takes.
fn aliases(table: &mut Table<'_>) {
    for (count, name, limit) in [
        (64, "invalidate a page in 64 slots", 64 * 3_000),
        (256, "invalidate a page in 256 slots", 256 * 3_200),
    ] {
        let setup = Setup::new(Caches::Coherent, false);
        let (machine, vm) = (&*setup.machine, setup.vm());
        let page = region(0, 0, 1).backing;
        let mut vcpu = vm.create_vcpu(0).unwrap();
        for index in 0..count {
            let alias = region(index, u64::from(index) * 2, 1);
            vm.set_memory_region(&Region { backing: page, ..alias }).unwrap();
            touch(&mut vcpu, u64::from(index) * 2, true);
        }
        let limits = Limits { invalidations: Some(u64::from(count)), ..at_most(limit) };
        let invalidate = || drop(vm.invalidate_start(page, PAGE_SIZE, Reason::Unmap));
        table.row(name, limits, machine, invalidate);
    }
}

fn reclaim(table: &mut Table<'_>) {
    let top = (1 << 28) - BLOCK;
    let top_and_bottom: &[u64] = &[0, top];
    for (name, pages) in [
        ("reclaim 4 tables, at the bottom", &[0][..]),
        ("reclaim 4 tables, at the top", &[top][..]),
        ("reclaim 6 tables, at the top and bottom", top_and_bottom),
    ] {
        let setup = Setup::new(Caches::Coherent, false);
        let (machine, vm) = (&*setup.machine, setup.vm());
        vm.set_memory_region(&region(0, 0, BLOCK)).unwrap();
        vm.set_memory_region(&region(1, top, BLOCK)).unwrap();
        let mut vcpu = vm.create_vcpu(0).unwrap();
        for &page in pages {
            touch(&mut vcpu, page, true);
        }
        vm.destroy();
        drop(vcpu);
        table.row(name, at_most(3_000), machine, || setup.reclaim());
    }
}

fn tracked(table: &mut Table<'_>) {
    let setup = Setup::new(Caches::Tracked, true);
    let (machine, vm) = (&*setup.machine, setup.vm());
    vm.set_memory_region(&region(0, 0, 4 * BLOCK)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    for (block, write, limit, name) in [
        (0, false, 2_500, "tracked: first fault in a block, a read"),
        (1, true, 7_000, "tracked: first fault in a block, a write"),
    ] {
        let first = || touch(&mut vcpu, block * BLOCK, write);
        table.counted(name, at_most(limit), machine, first);
    }
}

fn vmids(table: &mut Table<'_>) {
    let setup = Setup::new(Caches::Coherent, false);
    let mmu = setup.machine.clone();
    // SAFETY: no VM uses them, and no guest is entered.
    let make = || unsafe { Vmids::try_new(mmu, 16) };
    let all = table.row("VMIDs of 16 bits", UNBOUNDED, &setup.machine, make);
    all.unwrap();

    // All numbers are taken when a root is entered that has none, and each CPU names a root: the most that the lock of a
    // roll-over is held for with VMIDs of so many bits.
    const NUMBERS: u32 = 255;
    for (cpus, limit, name) in [
        (1, 7_000, "entry that rolls over, 1 CPU"),
        (128, 14_000, "entry that rolls over, 128 CPUs"),
    ] {
        let machine = Machine::with_cpus(InstructionCaches::Physical, cpus);
        // SAFETY: as above.
        let vmids = unsafe { Vmids::try_new(machine.clone(), 8) }.unwrap();
        let vcpu = vmids.vcpu();
        let enter = |number: u32, root: &VmidTag| {
            let cpu = number.saturating_sub(NUMBERS - cpus) % cpus;
            // SAFETY: no guest is entered.
            unsafe { root.activate(cpu, vcpu) }
        };
        let roots: Vec<_> = (0..=NUMBERS).map(|_| vmids.tag().unwrap()).collect();
        for (number, root) in (0..NUMBERS).zip(&roots) {
            let _ = enter(number, root);
        }
        assert_eq!(vmids.rollovers(), 0);
        let roll_over = || enter(NUMBERS, &roots[NUMBERS as usize]);
        let _ = table.row(name, at_most(limit), &machine, roll_over);
        assert_eq!(vmids.rollovers(), 1);
    }
}
