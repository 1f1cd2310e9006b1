//! Every allocation that a call on a VM makes is refused in turn: the call says ENOMEM, the VM is as it was and usable,
//! and nothing is leaked.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

use common::{
    AnyDevice, Call, Log, Outcome, Recorder, TestVcpu, TestVm, platform, range, read, read_port,
    region, same, write, write_port,
};
use mayfly_iobus::{IoRange, Ioeventfd, Refused};
use mayfly_memslot::{Flags, Gpa, Hva, PAGE_SIZE, Region, SlotId, USER_SLOTS};
use mayfly_vm::{Bus, Config, Event, Exit, Guest, Requests, Vm};

/// Which allocations of a call are refused; the first is number 1.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// This one alone: what the call does about it finds memory.
    Only(usize),
    /// This one and all that follow.
    From(usize),
}

impl Refusal {
    fn first(self) -> usize {
        match self {
            Self::Only(nth) | Self::From(nth) => nth,
        }
    }

    fn refuses(self, nth: usize) -> bool {
        match self {
            Self::Only(only) => nth == only,
            Self::From(first) => nth >= first,
        }
    }
}

thread_local! {
    static REFUSAL: Cell<Option<Refusal>> = const { Cell::new(None) };
    /// Allocations that this thread asked for under the present refusal.
    static ASKED: Cell<usize> = const { Cell::new(0) };
    /// Allocations less deallocations of this thread.
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

struct Failing;

#[global_allocator]
static ALLOCATOR: Failing = Failing;

// SAFETY: passes everything on to the system's allocator, or gives no memory, as an allocator may. (`realloc` and
// `alloc_zeroed` are the provided ones, which come through here.)
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        if REFUSAL.get().is_some_and(|refusal| refusal.refuses(ASKED.get())) {
            return null_mut();
        }
        LIVE.set(LIVE.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - 1);
        // SAFETY: as the caller promises; all memory is the system's.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// What `work` returns under `refusal`, and whether it came to refusing anything.
fn starved<T>(refusal: Refusal, work: impl FnOnce() -> T) -> (T, bool) {
    ASKED.set(0);
    REFUSAL.set(Some(refusal));
    let result = work();
    REFUSAL.set(None);
    (result, ASKED.get() >= refusal.first())
}

const ENOMEM: i32 = 12;
const REFUSALS: [fn(usize) -> Refusal; 2] = [Refusal::Only, Refusal::From];

const LOGGED: u16 = 1;
const PLAIN: u16 = 2;
const DEVICE: IoRange = IoRange { start: 0x10_0000, len: 0x10 };
const EVENTFD: Ioeventfd = Ioeventfd { address: 0x10_0004, len: 4, datamatch: Some(9) };
const FREE: IoRange = IoRange { start: 0x20_0000, len: 0x10 };
const FREE_EVENTFD: Ioeventfd = Ioeventfd { address: 0x10_0004, len: 4, datamatch: Some(10) };
const PORT: IoRange = IoRange { start: 0x3f8, len: 8 };
const FREE_PORT: IoRange = IoRange { start: 0x70, len: 2 };

/// A VM with something of everything, and four vCPUs, which is when their list is full.
struct World {
    vm: TestVm,
    vcpus: Vec<TestVcpu>,
    log: Log,
    /// A device to register.
    spare: AnyDevice,
}

/// Whatever a call made or gave back, dropped when that has been looked at.
#[allow(dead_code)]
enum Made {
    Nothing,
    Device(AnyDevice),
    Vcpu(TestVcpu),
}

/// All that can be seen of a VM.
#[derive(Debug, PartialEq)]
struct Sight {
    slots: String,
    vcpus: usize,
    outcomes: Vec<Outcome>,
    calls: Vec<Call>,
}

impl World {
    fn new() -> Self {
        let vm = Vm::create(platform(), Config::default()).unwrap();
        let log = Log::default();
        vm.set_memory_region(&logged()).unwrap();
        vm.set_memory_region(&region(PLAIN, 0x20, 4)).unwrap();
        vm.register_device(Bus::Mmio, DEVICE, Recorder::device(1, &log)).unwrap();
        vm.register_eventfd(Bus::Mmio, EVENTFD, Recorder::device(2, &log)).unwrap();
        vm.register_device(Bus::Pio, PORT, Recorder::device(3, &log)).unwrap();
        let vcpus = (0..4).map(|id| vm.create_vcpu(id).unwrap()).collect();
        Self { vm, vcpus, spare: Recorder::device(4, &log), log }
    }

    /// What a vCPU meets, wherever a change of the tests below would show; then what is not the guest's to see.
    fn look(&mut self) -> Sight {
        let vcpu = &mut self.vcpus[0];
        let mut outcomes = Vec::new();
        for gfn in [0x10, 0x20, 0x30, 0x40, 0xfee00] {
            outcomes.push(read(vcpu, gfn * PAGE_SIZE, 8));
            outcomes.push(write(vcpu, gfn * PAGE_SIZE + 8, &[0; 8]));
        }
        for start in [DEVICE.start, FREE.start] {
            outcomes.push(read(vcpu, start, 4));
        }
        for value in [9, 10, 11] {
            outcomes.push(write(vcpu, EVENTFD.address, &[value, 0, 0, 0]));
        }
        for port in [PORT.start, FREE_PORT.start] {
            let port = u16::try_from(port).unwrap();
            outcomes.push(read_port(vcpu, port, 1));
            outcomes.push(write_port(vcpu, port, &[0]));
        }
        Sight {
            slots: format!("{:?}", self.vm.slots()),
            vcpus: self.vm.vcpu_count(),
            outcomes,
            calls: self.log.take(),
        }
    }

    fn set(&self, region: &Region<Hva>) -> Result<Made, i32> {
        self.vm.set_memory_region(region).map(|()| Made::Nothing).map_err(|error| error.errno())
    }

    /// The spare device, unless it was refused: then it has to come back.
    fn registered(&self, result: Result<(), Refused<AnyDevice>>) -> Result<Made, i32> {
        result.map(|()| Made::Nothing).map_err(|refused| {
            assert!(same(&refused.device, &self.spare), "a refused device is given back");
            refused.error.errno()
        })
    }
}

fn logged() -> Region<Hva> {
    Region { flags: Flags::LOG_DIRTY_PAGES, ..region(LOGGED, 0x10, 4) }
}

fn private() -> Region<Hva> {
    Region { slot: SlotId::main(USER_SLOTS), ..region(7, 0xfee00, 1) }
}

/// A guest that has nothing to do.
struct Spent;

impl Guest<Hva> for Spent {
    fn enter(&mut self, _requests: &Requests) -> Event {
        Event::Halt
    }

    fn access(&mut self, _memory: Hva) {}

    fn data(&mut self) -> &mut [u8] {
        &mut []
    }
}

/// A call that has to ask for memory at least so many times.
struct Case(&'static str, usize, fn(&World) -> Result<Made, i32>);

const CASES: &[Case] = &[
    Case("create a slot", 1, |world| world.set(&region(3, 0x30, 4))),
    Case("create a slot with a dirty log", 3, |world| {
        world.set(&Region { flags: Flags::LOG_DIRTY_PAGES, ..region(3, 0x30, 4) })
    }),
    Case("delete a slot", 1, |world| world.set(&Region { size: 0, ..region(PLAIN, 0x20, 0) })),
    Case("delete a slot with a dirty log", 1, |world| world.set(&Region { size: 0, ..logged() })),
    Case("move a slot", 1, |world| world.set(&region(PLAIN, 0x40, 4))),
    Case("move a slot with a dirty log", 1, |world| {
        world.set(&Region { gpa: Gpa::new(0x40 * PAGE_SIZE), ..logged() })
    }),
    Case("begin a dirty log", 3, |world| {
        world.set(&Region { flags: Flags::LOG_DIRTY_PAGES, ..region(PLAIN, 0x20, 4) })
    }),
    Case("end a dirty log", 1, |world| world.set(&Region { flags: Flags::empty(), ..logged() })),
    Case("create a private slot", 1, |world| {
        let set = world.vm.set_private_memory_region(&private());
        set.map(|()| Made::Nothing).map_err(|error| error.errno())
    }),
    Case("register a device", 3, |world| {
        world.registered(world.vm.register_device(Bus::Mmio, FREE, world.spare.clone()))
    }),
    Case("register a device on a port", 3, |world| {
        world.registered(world.vm.register_device(Bus::Pio, FREE_PORT, world.spare.clone()))
    }),
    Case("register an ioeventfd", 3, |world| {
        world.registered(world.vm.register_eventfd(Bus::Mmio, FREE_EVENTFD, world.spare.clone()))
    }),
    Case("unregister a device", 2, |world| {
        let device = world.vm.unregister_device(Bus::Mmio, DEVICE);
        device.map(Made::Device).map_err(|error| error.errno())
    }),
    Case("unregister a device on a port", 2, |world| {
        let device = world.vm.unregister_device(Bus::Pio, PORT);
        device.map(Made::Device).map_err(|error| error.errno())
    }),
    Case("unregister an ioeventfd", 2, |world| {
        let device = world.vm.unregister_eventfd(Bus::Mmio, EVENTFD);
        device.map(Made::Device).map_err(|error| error.errno())
    }),
    Case("create a vCPU", 3, |world| {
        world.vm.create_vcpu(4).map(Made::Vcpu).map_err(|error| error.errno())
    }),
];

/// What `call` makes in the end, and how often it was refused memory before: each of its allocations in turn.
fn in_the_end<T>(
    what: &str,
    refusal: fn(usize) -> Refusal,
    mut call: impl FnMut(Refusal) -> (Result<T, i32>, bool),
) -> (T, usize) {
    for refusals in 0.. {
        let refusal = refusal(refusals + 1);
        match call(refusal) {
            (Ok(made), false) => return (made, refusals),
            (Err(ENOMEM), true) => {}
            (result, refused) => {
                panic!("{what}: {refusal:?}, refused: {refused}, errno {:?}", result.err())
            }
        }
    }
    unreachable!("a call makes finitely many allocations")
}

#[test]
fn a_call_that_is_refused_memory_changes_nothing_and_succeeds_when_there_is_some() {
    for Case(what, at_least, call) in CASES {
        for refusal in REFUSALS {
            let live = LIVE.get();
            {
                let mut world = World::new();
                let before = world.look();
                let (made, refusals) = in_the_end(what, refusal, |refusal| {
                    let result = starved(refusal, || call(&world));
                    if result.0.is_err() {
                        assert_eq!(world.look(), before, "{what}: {refusal:?}");
                    }
                    result
                });
                assert!(refusals >= *at_least, "{what}: {refusals} allocations");
                assert_ne!(world.look(), before, "{what}");
                drop(made);
            }
            assert_eq!(LIVE.get(), live, "{what}: everything is freed with the VM");
        }
    }
}

#[test]
fn a_vm_that_is_refused_memory_is_not_created_and_leaves_nothing_behind() {
    let platform = platform();
    for refusal in REFUSALS {
        let live = LIVE.get();
        let (vm, refusals) = in_the_end("create a VM", refusal, |refusal| {
            let (result, refused) = starved(refusal, || {
                let created = TestVm::create(platform.clone(), Config::default());
                created.map_err(|error| error.errno())
            });
            if result.is_err() {
                assert_eq!(LIVE.get(), live, "{refusal:?}");
            }
            (result, refused)
        });
        assert!(refusals >= 6, "the domain, two address spaces, two buses, the VM");
        vm.set_memory_region(&region(0, 0, 1)).unwrap();
        drop(vm);
        assert_eq!(LIVE.get(), live);
    }
}

#[test]
fn running_and_kicking_and_destroying_take_no_memory() {
    let mut world = World::new();
    let (count, refused) = starved(Refusal::From(1), || {
        world.vm.kick(1);
        let kicked = world.vcpus[1].run(&mut Spent);
        world.vm.clone().destroy();
        (kicked, world.vm.vcpu_count())
    });
    assert_eq!((count, refused), ((Exit::Kicked, 4), false));
}

#[test]
fn what_a_change_replaced_is_freed_without_memory() {
    let world = World::new();
    for index in 0..100 {
        let start = 0x1000_0000 + index * 0x10;
        let device = Recorder::device(0, &world.log);
        world.vm.register_device(Bus::Mmio, range(start, 8), device).unwrap();
    }
    assert!(world.vm.srcu().stats().deferred > 0);
    let ((), refused) = starved(Refusal::From(1), || world.vm.srcu().barrier());
    assert!(!refused);
    assert_eq!(world.vm.srcu().stats().deferred, 0);
}
