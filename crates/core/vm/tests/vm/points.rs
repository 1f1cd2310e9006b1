//! Points of long work where the embedder may take interrupts: how much is done between two, and what is held there.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mayfly_memslot::{Flags, Gfn, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_platform::Op;
use mayfly_stage2::{Level, Reclaimer, Slice};
use mayfly_vm::{
    Bus, CacheCapabilities, CacheOp, Caches, Config, Exit, InstructionCaches, Reason, SlotZap, Vm,
};

use crate::common::{
    Log, Outcome, PIECE, Recorder, Setup, TestVcpu, TestVm, Toggle, deleted, hva, range, read,
    region, write,
};

const MIB2: u64 = Level::MIB2.pages();
const GIB1: u64 = Level::GIB1.pages();

/// Entries that a slice may look at.
const ENTRIES: u32 = 64;

/// Pages of the memory that is worked on: more than one slice, and more than one table.
const PAGES: u64 = 2 * MIB2;

/// Where the memory is that is worked on, and other memory.
const HERE: u64 = GIB1;
const THERE: u64 = 3 * GIB1 + 7 * MIB2;

fn memory() -> Region<Hva> {
    region(0, HERE, PAGES)
}

fn logged() -> Region<Hva> {
    Region { flags: Flags::LOG_DIRTY_PAGES, ..memory() }
}

/// A VM with slots [`HERE`], which may be logged, and [`THERE`], a vCPU that has written to all of the first, and one
/// beside.
struct World {
    setup: Setup,
    vm: TestVm,
    vcpu: TestVcpu,
    other: TestVcpu,
}

impl World {
    fn new(slot_zap: SlotZap, caches: Caches, logs: bool) -> Self {
        let mut setup = Setup::new(slot_zap);
        // Whoever retires a root helps.
        setup.reclaimer = Arc::new(Reclaimer::new(setup.hardware.clone(), 0));
        let data = CacheCapabilities {
            instructions: InstructionCaches::Coherent,
            ..CacheCapabilities::default()
        };
        setup.caches.set_capabilities(data);
        let config = setup.config();
        let slice = Slice { entries: ENTRIES, ..config.slice };
        let vm = Vm::create(Config { caches, slice, ..config }).unwrap();
        vm.set_memory_region(&memory()).unwrap();
        vm.set_memory_region(&region(1, THERE, MIB2)).unwrap();
        let (mut vcpu, mut other) = (vm.create_vcpu(0).unwrap(), vm.create_vcpu(1).unwrap());
        write(&mut other, THERE * PAGE_SIZE, &[1]);
        for page in 0..PAGES {
            write(&mut vcpu, (HERE + page) * PAGE_SIZE, &[1]);
        }
        if logs {
            vm.set_memory_region(&logged()).unwrap();
            for page in (0..PAGES).step_by(2) {
                write(&mut vcpu, (HERE + page) * PAGE_SIZE, &[1]);
            }
        }
        Self { setup, vm, vcpu, other }
    }

    fn turn(&mut self, op: CacheOp) {
        assert_eq!(self.vcpu.run(&mut Toggle::new(Some(op))), Exit::Halt);
    }

    fn harvest(&self) {
        let mut words = vec![0; 40 * 1024];
        self.vm.harvest_dirty(SlotId::main(0), 0, &mut words).unwrap();
    }

    fn invalidate(&self, reason: Reason) {
        drop(self.vm.invalidate_start(hva(0, 0), PAGES * PAGE_SIZE, reason));
    }
}

const CACHES: &str = "caches are turned on and off";
const HARVEST: &str = "a log is harvested";

type Work = fn(&mut World);

/// What takes long, on how it is built, and how many points it has at least.
fn works() -> Vec<(&'static str, SlotZap, Caches, Work, u64)> {
    let (range, roots) = (SlotZap::Range, SlotZap::AllRoots);
    let slices = PAGES / u64::from(ENTRIES);
    let log: Work = |world| world.vm.set_memory_region(&logged()).unwrap();
    let harvest: Work = |world| world.harvest();
    let delete: Work = |world| world.vm.set_memory_region(&deleted(memory())).unwrap();
    let off: Work = |world| {
        world.turn(CacheOp::On);
        world.turn(CacheOp::Off);
    };
    let block: Work = |world| {
        world.setup.memory.set_level(Level::GIB1);
        world.invalidate(Reason::Migrate);
        read(&mut world.vcpu, HERE * PAGE_SIZE, 1);
    };
    vec![
        ("a log is switched on", range, Caches::Coherent, log, slices),
        // Half of the pages are written, and no others are looked at to protect them.
        (HARVEST, range, Caches::Tracked, harvest, 40 + slices + slices / 2),
        ("memory is unmapped", range, Caches::Coherent, |w| w.invalidate(Reason::Unmap), 1),
        ("memory moves", range, Caches::Tracked, |w| w.invalidate(Reason::Migrate), slices),
        (
            "memory is swapped out",
            range,
            Caches::Reported,
            |w| w.invalidate(Reason::Reclaim { coherent: false }),
            slices,
        ),
        (
            "memory is aged",
            range,
            Caches::Coherent,
            |w| _ = w.vm.age(hva(0, 0), PAGES * PAGE_SIZE),
            slices,
        ),
        ("a slot is deleted", range, Caches::Tracked, delete, slices),
        ("all roots go", roots, Caches::Tracked, delete, slices),
        (CACHES, range, Caches::Tracked, off, slices),
        ("a block is mapped", range, Caches::Tracked, block, MIB2 / PIECE),
        (
            "everything is flushed",
            range,
            Caches::Reported,
            |w| w.vm.clean_invalidate_mapped(),
            slices,
        ),
    ]
}

#[test]
fn between_two_points_no_more_is_done_than_is_stated() {
    for (what, slot_zap, caches, work, points) in works() {
        let mut world = World::new(slot_zap, caches, what == HARVEST);
        let cleaned = Arc::new(AtomicU64::new(0));
        let counting = Arc::clone(&cleaned);
        world.setup.caches.at_each_clean(move |count| {
            counting.fetch_add(count, Ordering::Relaxed);
        });
        let hardware = Arc::clone(&world.setup.hardware);
        let written = move || hardware.charged(Op::EntriesWritten(1)) as u64;
        // Since the last point, and how many there were.
        let since = Arc::new(Mutex::new((written(), 0, 0)));
        let at_point = {
            let (since, written, cleaned) = (since.clone(), written.clone(), cleaned.clone());
            move || {
                let mut since = since.lock().unwrap();
                let (now, clean) = (written(), cleaned.load(Ordering::Relaxed));
                assert!(now - since.0 <= u64::from(ENTRIES), "{what}: {} entries", now - since.0);
                assert!(clean - since.1 < 2 * PIECE, "{what}: {} frames", clean - since.1);
                *since = (now, clean, since.2 + 1);
            }
        };
        world.setup.hardware.at_each_point(at_point);
        work(&mut world);
        world.setup.hardware.at_no_point();
        let counted = since.lock().unwrap().2;
        assert!(counted >= points, "{what}: {counted} points, and not {points}");
    }
}

/// On top of the one who is at the point: who waited for something that he holds would wait for ever.
#[test]
fn at_each_point_vcpus_fault_and_are_kicked_and_come_and_go_and_the_host_changes_other_memory() {
    for (what, slot_zap, caches, work, points) in works() {
        let mut world = World::new(slot_zap, caches, what == HARVEST);
        let passed = Arc::new(AtomicUsize::new(0));
        let (vm, hardware) = (world.vm.clone(), Arc::clone(&world.setup.hardware));
        let other = std::mem::replace(&mut world.other, world.vm.create_vcpu(2).unwrap());
        let (other, counting) = (Mutex::new(other), Arc::clone(&passed));
        world.setup.hardware.at_each_point(move || {
            let number = counting.fetch_add(1, Ordering::Relaxed) as u64;
            let mut other = other.lock().unwrap();
            // With what went before it mapped, and not: in a table that is there, and that is missing.
            let page = THERE + number % MIB2;
            let changed = hva(1, number % MIB2 * PAGE_SIZE);
            // For this reason alone nothing is flushed, which would wait for whoever is flushing.
            drop(vm.invalidate_start(changed, PAGE_SIZE, Reason::Exit));
            // Who turns caches off takes everything away, and a fault anywhere waits for that.
            let frame = Gfn::new(page);
            let waits = vm.stage2().is_invalidating(&(frame..Gfn::new(page + 1)));
            assert!(!waits || what == CACHES, "{what}");
            if !waits {
                let refused = hardware.charged(Op::FaultRefused);
                assert!(
                    matches!(read(&mut other, page * PAGE_SIZE, 1), Outcome::Memory(_)),
                    "{what}"
                );
                assert!(matches!(write(&mut other, page * PAGE_SIZE, &[1]), Outcome::Memory(_)));
                assert_eq!(hardware.charged(Op::FaultRefused), refused, "{what}");
            }
            other.kicker().kick();
            assert!(vm.kick(1));
            assert_eq!(other.run(&mut Toggle::new(None)), Exit::Kicked);
            let mut fresh = vm.create_vcpu(10).unwrap();
            if !waits {
                let read = read(&mut fresh, page * PAGE_SIZE, 1);
                assert!(matches!(read, Outcome::Memory(_)), "{what}");
            }
            drop(fresh);
            if number < 100 {
                let device = Recorder::device(1, &Log::default());
                vm.register_device(Bus::Mmio, range(0x10_0000 + number * 8, 8), device).unwrap();
            }
            vm.age(hva(1, 0), PAGE_SIZE);
        });
        work(&mut world);
        world.setup.hardware.at_no_point();
        assert!(passed.load(Ordering::Relaxed) as u64 >= points, "{what}");
    }
}
