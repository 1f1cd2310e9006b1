//! All that may wait, two of a kind and of different kinds at a time, while a vCPU is inside a device, which then does
//! what a device may do. If any of them waited for another in a circle, these tests would not end; they say who, after
//! much longer than it takes.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{spawn, yield_now};
use std::time::Duration;

use mayfly_memslot::{Flags, Gpa, PAGE_SIZE, Region, SlotId};
use mayfly_platform::Op;
use mayfly_vm::{
    Bus, CacheCapabilities, CacheOp, Caches, Config, Device, Exit, InstructionCaches, Reason,
    SlotZap,
};

use crate::common::{
    AnyDevice, Log, Order, Outcome, Recorder, Setup, Stop, Stopped, TestVcpu, TestVm, Toggle,
    deleted, hva, range, read, region,
};

/// Tables that may await their readers at a time.
const BOUND: usize = 4096;
/// Tables of the large slot: more.
const TABLES: u64 = 4313;
const PER_TABLE: u64 = 512;
const HERE: u64 = 0x1000;
const FIRST: u64 = 0x200;

/// What may wait.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Create,
    Delete,
    Move,
    Log,
    Harvest,
    Unmap,
    Migrate,
    CachesOff,
    Unregister,
    Release,
    Destroy,
}

const WORKS: [Work; 11] = [
    Work::Create,
    Work::Delete,
    Work::Move,
    Work::Log,
    Work::Harvest,
    Work::Unmap,
    Work::Migrate,
    Work::CachesOff,
    Work::Unregister,
    Work::Release,
    Work::Destroy,
];

impl Work {
    /// Whether it empties the tables of the large slot. (To move it is to delete it where it was.)
    fn empties(self) -> bool {
        matches!(self, Self::Delete | Self::Unmap | Self::CachesOff)
    }

    /// Does it. What it works on may be gone by then.
    fn run(self, vm: &TestVm, vcpu: &Mutex<TestVcpu>) {
        match self {
            Self::Create => vm.set_memory_region(&region(1, 0x10, 4)).unwrap_or_default(),
            Self::Delete => vm.set_memory_region(&deleted(large())).unwrap_or_default(),
            Self::Move => {
                let gpa = Gpa::new((FIRST + PER_TABLE) * PAGE_SIZE);
                let _ = vm.set_memory_region(&Region { gpa, ..large() });
            }
            Self::Log => {
                let flags = Flags::LOG_DIRTY_PAGES;
                let _ = vm.set_memory_region(&Region { flags, ..region(2, 0x20, 4) });
            }
            Self::Harvest => assert_eq!(vm.harvest_dirty(SlotId::main(3), 0, &mut [0]), Ok(0)),
            Self::Unmap => drop(vm.invalidate_start(hva(0, 0), large().size, Reason::Unmap)),
            Self::Migrate => drop(vm.invalidate_start(hva(0, 0), PAGE_SIZE, Reason::Migrate)),
            Self::CachesOff => {
                let exit = vcpu.lock().unwrap().run(&mut Toggle::new(Some(CacheOp::Off)));
                assert!(matches!(exit, Exit::Halt | Exit::Kicked), "{exit:?}");
            }
            Self::Unregister => drop(vm.unregister_device(Bus::Mmio, range(0x2000, 8))),
            Self::Release => vm.release(),
            Self::Destroy => vm.clone().destroy(),
        }
    }
}

/// What a device may do.
#[derive(Clone, Copy, Debug)]
enum Within {
    Create,
    Register,
    Kick,
    Vcpu,
    Destroy,
}

const WITHINS: [Within; 5] =
    [Within::Create, Within::Register, Within::Kick, Within::Vcpu, Within::Destroy];

impl Within {
    fn run(self, vm: &TestVm) {
        match self {
            Self::Create => vm.set_memory_region(&region(4, 0x30, 1)).unwrap(),
            Self::Register => {
                let device = Recorder::device(1, &Log::default());
                drop(vm.register_device(Bus::Mmio, range(0x3000, 8), device));
            }
            Self::Kick => assert!(vm.kick(2) && vm.kick(0)),
            Self::Vcpu => drop(vm.create_vcpu(7)),
            Self::Destroy => vm.clone().destroy(),
        }
    }
}

fn large() -> Region<mayfly_memslot::Hva> {
    region(0, FIRST, TABLES * PER_TABLE)
}

/// A device that stops whoever accesses it, and then does something itself.
struct Inside {
    stop: Stop,
    within: Within,
    vm: Mutex<Option<TestVm>>,
}

impl Device for Inside {
    fn read(&self, _vcpu: u32, _offset: u64, _data: &mut [u8]) {
        self.stop.here();
        let vm = self.vm.lock().unwrap().take().unwrap();
        self.within.run(&vm);
    }

    fn write(&self, _vcpu: u32, _offset: u64, _data: &[u8]) {
        unreachable!("it is read")
    }
}

/// A VM with a vCPU inside a device.
struct World {
    setup: Setup,
    vm: TestVm,
    /// Its caches are on.
    vcpu: Arc<Mutex<TestVcpu>>,
    stopped: Stopped,
    /// Whoever comes to its end says so.
    ended: Sender<()>,
    ends: std::sync::mpsc::Receiver<()>,
}

impl World {
    fn new(slot_zap: SlotZap, filled: bool, within: Within) -> Self {
        let setup = Setup::new(slot_zap);
        setup.caches.set_capabilities(CacheCapabilities {
            instructions: InstructionCaches::Coherent,
            fgt: false,
        });
        let caches = Caches::Tracked;
        let vm = TestVm::create(Config { caches, ..setup.config() }).unwrap();
        vm.set_memory_region(&large()).unwrap();
        vm.set_memory_region(&region(2, 0x20, 4)).unwrap();
        let logged = Region { flags: Flags::LOG_DIRTY_PAGES, ..region(3, 0x28, 4) };
        vm.set_memory_region(&logged).unwrap();
        let spare = Recorder::device(2, &Log::default());
        vm.register_device(Bus::Mmio, range(0x2000, 8), spare).unwrap();
        let [mut off, mut on, mut within_device] = [0, 1, 2].map(|id| vm.create_vcpu(id).unwrap());
        // Past the caches, so on the root that is emptied when another turns its caches off.
        for table in 0..if filled { TABLES } else { 1 } {
            let gpa = (FIRST + table * PER_TABLE) * PAGE_SIZE;
            assert!(matches!(read(&mut off, gpa, 8), Outcome::Memory(_)));
        }
        assert_eq!(on.run(&mut Toggle::new(Some(CacheOp::On))), Exit::Halt);

        let (stop, stopped) = Stop::new(&Order::default());
        let device: AnyDevice = Arc::new(Inside { stop, within, vm: Mutex::new(Some(vm.clone())) });
        vm.register_device(Bus::Mmio, range(HERE, 8), device).unwrap();
        let (ended, ends) = channel();
        let inside_ended = ended.clone();
        spawn(move || {
            let outcome = read(&mut within_device, HERE, 2);
            let kicked = Outcome::Exit(Exit::Kicked);
            assert!(outcome == kicked || outcome == Outcome::Device(vec![0; 2]), "{outcome:?}");
            drop((off, within_device));
            inside_ended.send(()).unwrap();
        });
        stopped.wait();
        Self { setup, vm, vcpu: Arc::new(Mutex::new(on)), stopped, ended, ends }
    }

    /// Has `work` done, and returns when it is, or waits for something.
    fn start(&self, work: Work) {
        let waits = self.setup.hardware.waits();
        let (vm, vcpu, ended) = (self.vm.clone(), self.vcpu.clone(), self.ended.clone());
        let working = spawn(move || {
            work.run(&vm, &vcpu);
            drop((vm, vcpu));
            ended.send(()).unwrap();
        });
        while !working.is_finished() && self.setup.hardware.waits() == waits {
            yield_now();
        }
    }

    /// Waits until `count` more have come to their ends.
    fn wait_ended(&self, count: usize, what: &dyn std::fmt::Debug) {
        for _ in 0..count {
            let ended = self.ends.recv_timeout(Duration::from_secs(300));
            assert!(ended.is_ok(), "somebody waits, or has panicked: {what:?}");
        }
    }

    /// All that was given is given back.
    fn end(self) {
        let Self { setup, vm, vcpu, .. } = self;
        drop(vcpu);
        vm.clone().destroy();
        vm.wait_reclaimed();
        assert_eq!(setup.hardware.live(), 0);
    }
}

fn walk(slot_zap: SlotZap, filled: bool, pair: [Work; 2], within: Within) {
    let world = World::new(slot_zap, filled, within);
    for work in pair {
        world.start(work);
    }
    world.stopped.go_on();
    world.wait_ended(3, &(slot_zap, pair, within));
    world.end();
}

#[test]
fn no_two_that_wait_wait_for_each_other_or_for_a_device_that_creates_a_slot() {
    for (index, first) in WORKS.into_iter().enumerate() {
        for second in WORKS.into_iter().skip(index) {
            let filled = first.empties() || second.empties();
            walk(SlotZap::Range, filled, [first, second], Within::Create);
        }
    }
}

#[test]
fn nor_where_all_roots_are_replaced() {
    for second in WORKS {
        for within in WITHINS {
            walk(SlotZap::AllRoots, false, [Work::Delete, second], within);
        }
    }
}

#[test]
fn nor_for_whatever_else_a_device_may_do() {
    for work in WORKS {
        for within in WITHINS {
            // With nothing else under way, and with somebody who holds a lock for long.
            walk(SlotZap::Range, false, [work, Work::Harvest], within);
        }
    }
}

#[test]
fn the_host_and_a_vcpu_take_memory_away_past_the_bound_without_a_wait_for_who_is_inside_a_device() {
    for work in [Work::Unmap, Work::CachesOff] {
        let world = World::new(SlotZap::Range, true, Within::Create);
        let (live, freed) = (world.setup.hardware.live(), Op::TablesFreed(0));
        world.start(work);
        world.wait_ended(1, &work);
        let buried = world.setup.hardware.charged(freed);
        assert!((BOUND / 2..=BOUND).contains(&buried), "{buried}, and the others hang");
        assert!(!world.setup.reclaim(), "somebody may be in all of them");
        assert_eq!(world.setup.hardware.live(), live);

        world.stopped.go_on();
        world.wait_ended(1, &work);
        assert!(world.setup.reclaim());
        assert!(world.setup.hardware.charged(freed) > TABLES as usize, "the reclaimer takes them");
        world.end();
    }
}
