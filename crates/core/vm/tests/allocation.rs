//! Every allocation that a call on a VM makes is refused in turn, of memory and of frames: the call says ENOMEM, the VM
//! is as it was and usable, and nothing is leaked.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

use common::{
    AnyDevice, Call, Hardware, Log, Outcome, Recorder, Setup, TestFormat, TestVcpu, TestVm,
    deleted, hva, perform, range, read, read_port, region, same, write, write_port,
};
use mayfly_iobus::{IoRange, Ioeventfd, Refused, Relocation};
use mayfly_memslot::{Flags, Gfn, Gpa, Hva, PAGE_SIZE, Region, SlotId, USER_SLOTS};
use mayfly_vm::{
    Access, Bus, Device, Event, Exit, Guest, Reason, Requests, SlotZap, Translation, Vm,
};

/// Which allocations of a call are refused; the first is number 1.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// This one alone: what the call does about it finds memory.
    Only(usize),
    /// This one and all that follow.
    From(usize),
    /// Not of memory, but of frames for tables: this one and all that follow.
    Frames(usize),
}

const REFUSALS: [fn(usize) -> Refusal; 3] = [Refusal::Only, Refusal::From, Refusal::Frames];

impl Refusal {
    fn first(self) -> usize {
        match self {
            Self::Only(nth) | Self::From(nth) | Self::Frames(nth) => nth,
        }
    }

    fn refuses(self, nth: usize) -> bool {
        match self {
            Self::Only(only) => nth == only,
            Self::From(first) => nth >= first,
            Self::Frames(_) => false,
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
fn starved<T>(refusal: Refusal, hardware: &Hardware, work: impl FnOnce() -> T) -> (T, bool) {
    if let Refusal::Frames(nth) = refusal {
        hardware.refuse_frames_after(nth - 1);
        let result = work();
        return (result, hardware.refuse_no_frames() > 0);
    }
    ASKED.set(0);
    REFUSAL.set(Some(refusal));
    let result = work();
    REFUSAL.set(None);
    (result, ASKED.get() >= refusal.first())
}

const ENOMEM: i32 = 12;

const LOGGED: u16 = 1;
const PLAIN: u16 = 2;
const DEVICE: IoRange = IoRange { start: 0x10_0000, len: 0x10 };
const EVENTFD: Ioeventfd = Ioeventfd { address: 0x10_0004, len: 4, datamatch: Some(9) };
const FREE: IoRange = IoRange { start: 0x20_0000, len: 0x10 };
const FREE_EVENTFD: Ioeventfd = Ioeventfd { address: 0x10_0004, len: 4, datamatch: Some(10) };
const PORT: IoRange = IoRange { start: 0x3f8, len: 8 };
const FREE_PORT: IoRange = IoRange { start: 0x70, len: 2 };
/// What the mover does.
const MOVE: [Relocation; 1] = [Relocation::Device { from: DEVICE, to: FREE }];
const MOVER: IoRange = IoRange { start: 0x30_0000, len: 8 };
/// Memory that no vCPU has touched, far from what they have.
const UNTOUCHED: u64 = 0x8000_0000;

/// A VM with something of everything, and four vCPUs, which is when their list is full; and one that has no vCPU yet.
struct World {
    setup: Setup,
    vm: TestVm,
    vcpus: Vec<TestVcpu>,
    empty: TestVm,
    log: Log,
    /// A device to register.
    spare: AnyDevice,
    /// A device that moves another.
    mover: Arc<Mover>,
}

/// A device that does [`MOVE`] when it is written to, if it has a VM.
#[derive(Default)]
struct Mover {
    vm: Mutex<Option<TestVm>>,
    errno: Mutex<i32>,
}

impl Device for Mover {
    fn read(&self, _vcpu: u32, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&self, _vcpu: u32, _offset: u64, _data: &[u8]) {
        if let Some(vm) = &*self.vm.lock().unwrap() {
            let moved = vm.relocate(Bus::Mmio, &MOVE);
            *self.errno.lock().unwrap() = moved.map_or_else(|error| error.errno(), |()| 0);
        }
    }
}

/// A guest that writes one byte, and has nothing of its own on the heap.
struct Writer {
    gpa: u64,
    data: [u8; 1],
    answered: bool,
}

impl Guest for Writer {
    fn enter(&mut self, _translation: Translation, _requests: &Requests) -> Event {
        let access = Access::data(Gpa::new(self.gpa), 1, true);
        if self.answered { Event::Halt } else { Event::Access(access) }
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        &mut self.data
    }

    fn answered(&mut self) {
        self.answered = true;
    }
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
    vcpus: [usize; 2],
    outcomes: Vec<Outcome>,
    calls: Vec<Call>,
}

impl World {
    fn new(slot_zap: SlotZap) -> Self {
        let setup = Setup::new(slot_zap);
        let (vm, empty) = (setup.vm(), setup.vm());
        let log = Log::default();
        vm.set_memory_region(&logged()).unwrap();
        vm.set_memory_region(&region(PLAIN, 0x20, 4)).unwrap();
        vm.set_memory_region(&region(9, UNTOUCHED / PAGE_SIZE, 4)).unwrap();
        vm.register_device(Bus::Mmio, DEVICE, Recorder::device(1, &log)).unwrap();
        vm.register_eventfd(Bus::Mmio, EVENTFD, Recorder::device(2, &log)).unwrap();
        vm.register_device(Bus::Pio, PORT, Recorder::device(3, &log)).unwrap();
        let vcpus = (0..4).map(|id| vm.create_vcpu(id).unwrap()).collect();
        let mover = Arc::new(Mover::default());
        vm.register_device(Bus::Mmio, MOVER, mover.clone()).unwrap();
        Self { setup, vm, vcpus, empty, spare: Recorder::device(4, &log), mover, log }
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
            vcpus: [self.vm.vcpu_count(), self.empty.vcpu_count()],
            outcomes,
            calls: self.log.take(),
        }
    }

    /// Ends everything, and asserts that no frame is left.
    fn end(self, what: &str) {
        let Self { setup, vm, empty, vcpus, .. } = self;
        drop(vcpus);
        vm.destroy();
        empty.destroy();
        assert!(setup.reclaim());
        assert_eq!(setup.hardware.live(), 0, "{what}: all frames come back");
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

    /// Has a guest write to the mover.
    fn move_from_handler(&mut self) -> Result<Made, i32> {
        *self.mover.vm.lock().unwrap() = Some(self.vm.clone());
        let mut guest = Writer { gpa: MOVER.start, data: [1], answered: false };
        assert_eq!(self.vcpus[2].run(&mut guest), Exit::Halt);
        // Or the VM would have a device that has the VM.
        *self.mover.vm.lock().unwrap() = None;
        match *self.mover.errno.lock().unwrap() {
            0 => Ok(Made::Nothing),
            errno => Err(errno),
        }
    }

    /// Has the last vCPU write at `gpa`.
    fn touch(&mut self, gpa: u64) -> Result<Made, i32> {
        let access = Access::data(Gpa::new(gpa), 8, true);
        match self.vcpus[3].run(&mut Toucher(access)) {
            Exit::Halt => Ok(Made::Nothing),
            Exit::Failed(failed, error) => {
                assert_eq!(failed, access);
                Err(error.errno())
            }
            exit => panic!("{exit:?}"),
        }
    }
}

fn logged() -> Region<Hva> {
    Region { flags: Flags::LOG_DIRTY_PAGES, ..region(LOGGED, 0x10, 4) }
}

fn private() -> Region<Hva> {
    Region { slot: SlotId::main(USER_SLOTS), ..region(7, 0xfee00, 1) }
}

/// A guest that makes one access to memory, and has nothing of its own on the heap.
struct Toucher(Access);

impl Guest for Toucher {
    fn enter(&mut self, translation: Translation, _requests: &Requests) -> Event {
        if perform::<TestFormat>(translation, self.0).is_some() {
            Event::Halt
        } else {
            Event::Access(self.0)
        }
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        unreachable!("there is memory")
    }

    fn answered(&mut self) {}
}

/// A call; how many times it has to ask for memory at least, and for frames.
struct Case(&'static str, [usize; 2], fn(&mut World) -> Result<Made, i32>);

const CASES: &[Case] = &[
    Case("create a slot", [1, 0], |world| world.set(&region(3, 0x30, 4))),
    Case("create a slot with a dirty log", [3, 0], |world| {
        world.set(&Region { flags: Flags::LOG_DIRTY_PAGES, ..region(3, 0x30, 4) })
    }),
    Case("delete a slot", [1, 0], |world| world.set(&deleted(region(PLAIN, 0x20, 0)))),
    Case("delete a slot with a dirty log", [1, 0], |world| world.set(&deleted(logged()))),
    Case("move a slot", [1, 0], |world| world.set(&region(PLAIN, 0x40, 4))),
    Case("move a slot with a dirty log", [1, 0], |world| {
        world.set(&Region { gpa: Gpa::new(0x40 * PAGE_SIZE), ..logged() })
    }),
    Case("begin a dirty log", [3, 0], |world| {
        world.set(&Region { flags: Flags::LOG_DIRTY_PAGES, ..region(PLAIN, 0x20, 4) })
    }),
    Case("end a dirty log", [1, 0], |world| {
        world.set(&Region { flags: Flags::empty(), ..logged() })
    }),
    Case("create a private slot", [1, 0], |world| {
        let set = world.vm.set_private_memory_region(&private());
        set.map(|()| Made::Nothing).map_err(|error| error.errno())
    }),
    Case("register a device", [3, 0], |world| {
        world.registered(world.vm.register_device(Bus::Mmio, FREE, world.spare.clone()))
    }),
    Case("register a device on a port", [3, 0], |world| {
        world.registered(world.vm.register_device(Bus::Pio, FREE_PORT, world.spare.clone()))
    }),
    Case("register an ioeventfd", [3, 0], |world| {
        world.registered(world.vm.register_eventfd(Bus::Mmio, FREE_EVENTFD, world.spare.clone()))
    }),
    Case("unregister a device", [2, 0], |world| {
        let device = world.vm.unregister_device(Bus::Mmio, DEVICE);
        device.map(Made::Device).map_err(|error| error.errno())
    }),
    Case("unregister a device on a port", [2, 0], |world| {
        let device = world.vm.unregister_device(Bus::Pio, PORT);
        device.map(Made::Device).map_err(|error| error.errno())
    }),
    Case("unregister an ioeventfd", [2, 0], |world| {
        let device = world.vm.unregister_eventfd(Bus::Mmio, EVENTFD);
        device.map(Made::Device).map_err(|error| error.errno())
    }),
    Case("move a device", [2, 0], |world| {
        let moved = world.vm.relocate(Bus::Mmio, &MOVE);
        moved.map(|()| Made::Nothing).map_err(|error| error.errno())
    }),
    Case("move a device while handling an access", [2, 0], World::move_from_handler),
    Case("create a vCPU", [3, 0], |world| {
        world.vm.create_vcpu(4).map(Made::Vcpu).map_err(|error| error.errno())
    }),
    Case("create the first vCPU", [4, 1], |world| {
        world.empty.create_vcpu(0).map(Made::Vcpu).map_err(|error| error.errno())
    }),
    Case("fault", [0, 2], |world| world.touch(UNTOUCHED)),
];

/// What a call does in VMs that are zapped by range, and where roots are replaced.
const ZAPS: [SlotZap; 2] = [SlotZap::Range, SlotZap::AllRoots];

/// The arena and the first thread's own memory are there when something is counted.
fn warm_up() {
    World::new(SlotZap::Range).end("nothing");
}

#[test]
fn a_call_that_is_refused_memory_changes_nothing_and_succeeds_when_there_is_some() {
    warm_up();
    for slot_zap in ZAPS {
        for Case(what, at_least, call) in CASES {
            for refusal in REFUSALS {
                let live = LIVE.get();
                let refusals =
                    (1..).take_while(|&nth| one_refusal(slot_zap, what, *call, refusal(nth)));
                let (refusals, kind) = (refusals.count(), matches!(refusal(1), Refusal::Frames(_)));
                assert!(refusals >= at_least[usize::from(kind)], "{what}: {refusals} allocations");
                assert_eq!(LIVE.get(), live, "{what}: everything is freed with the VM");
            }
        }
    }
}

/// Makes the call under `refusal`, and again with memory, in a VM of its own. Returns whether anything was refused.
fn one_refusal(
    slot_zap: SlotZap,
    what: &str,
    call: fn(&mut World) -> Result<Made, i32>,
    refusal: Refusal,
) -> bool {
    let mut world = World::new(slot_zap);
    let before = world.look();
    let hardware = world.setup.hardware.clone();
    let (result, refused) = starved(refusal, &hardware, || call(&mut world));
    let made = match result {
        Err(ENOMEM) if refused => {
            assert_eq!(world.look(), before, "{what}: {refusal:?}");
            call(&mut world).ok()
        }
        // A slot that cannot have its roots replaced is zapped by its range.
        Ok(made) if !refused || slot_zap == SlotZap::AllRoots => Some(made),
        result => panic!("{what}: {refusal:?}, refused: {refused}, errno {:?}", result.err()),
    };
    assert!(made.is_some(), "{what}: {refusal:?}");
    assert!(what == "fault" || world.look() != before, "{what}: {refusal:?}");
    drop(made);
    world.end(what);
    refused
}

#[test]
fn a_vm_that_is_refused_memory_is_not_created_and_leaves_nothing_behind() {
    warm_up();
    let setup = Setup::new(SlotZap::Range);
    for refusal in [Refusal::Only, Refusal::From] {
        let live = LIVE.get();
        let mut refusals = 0;
        let vm = loop {
            let config = setup.config();
            match starved(refusal(refusals + 1), &setup.hardware, || Vm::create(config)) {
                (Ok(vm), false) => break vm,
                (Err(error), true) => assert_eq!(error.errno(), ENOMEM),
                (result, refused) => panic!("{refused}, {result:?}"),
            }
            assert_eq!(LIVE.get(), live, "{:?}", refusal(refusals + 1));
            refusals += 1;
        };
        assert!(refusals >= 7, "the domain, two address spaces, two buses, stage 2, the VM");
        vm.set_memory_region(&region(0, 0, 1)).unwrap();
        drop(vm);
        assert_eq!((LIVE.get(), setup.hardware.live()), (live, 0));
    }
}

#[test]
fn running_on_what_is_mapped_and_all_that_takes_away_takes_no_memory() {
    for slot_zap in ZAPS {
        let mut world = World::new(slot_zap);
        world.look();
        let hardware = world.setup.hardware.clone();
        let ((), refused) = starved(Refusal::From(1), &hardware, || {
            hardware.refuse_frames_after(0);
            let gpa = PAGE_SIZE * 0x11;
            assert!(world.touch(gpa).is_ok(), "a fault in a table that there is");
            assert_eq!(world.vm.harvest_dirty(SlotId::main(LOGGED), 0, &mut [0]), Ok(2));
            assert!(world.touch(gpa).is_ok());
            assert!(world.vm.age(hva(PLAIN, 0), 4 * PAGE_SIZE) > 0);
            for reason in [Reason::Migrate, Reason::Unmap] {
                drop(world.vm.invalidate_start(hva(PLAIN, 0), PAGE_SIZE, reason));
            }
            world.vm.kick(1);
            let access = Access::data(Gpa::new(gpa), 1, true);
            assert_eq!(world.vcpus[1].run(&mut Toucher(access)), Exit::Kicked);
            world.vm.clone().destroy();
            assert_eq!(world.vcpus[2].run(&mut Toucher(access)), Exit::Kicked);
            assert_eq!(world.vm.vcpu_count(), 4);
        });
        assert_eq!((refused, hardware.refuse_no_frames()), (false, 0));
        world.end("what takes no memory");
    }
}

#[test]
fn what_a_change_replaced_is_freed_without_memory() {
    let world = World::new(SlotZap::Range);
    for index in 0..100 {
        let start = 0x1000_0000 + index * 0x10;
        let device = Recorder::device(0, &world.log);
        world.vm.register_device(Bus::Mmio, range(start, 8), device).unwrap();
    }
    assert!(world.vm.srcu().stats().deferred > 0);
    let hardware = &world.setup.hardware;
    let ((), refused) = starved(Refusal::From(1), hardware, || world.vm.srcu().barrier());
    assert!(!refused);
    assert_eq!(world.vm.srcu().stats().deferred, 0);
}

#[test]
fn tables_are_reclaimed_without_memory() {
    let mut world = World::new(SlotZap::Range);
    world.look();
    let World { setup, vm, vcpus, empty, .. } = world;
    let ((), refused) = starved(Refusal::From(1), &setup.hardware, || {
        drop(vcpus);
        vm.clone().destroy();
        assert!(setup.reclaim());
        vm.wait_reclaimed();
    });
    assert_eq!((refused, setup.hardware.live()), (false, 0));
    drop(empty);
}

#[test]
fn a_kicker_that_is_the_last_one_left_frees_nothing_and_what_it_leaves_is_freed_by_others() {
    warm_up();
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let frees = |work: &mut dyn FnMut()| {
        let live = LIVE.get();
        let ((), refused) = starved(Refusal::From(1), &setup.hardware, work);
        assert!(!refused, "it allocates nothing");
        live - LIVE.get()
    };
    // The list has room from here on.
    drop(vm.create_vcpu(0).unwrap());
    let live = LIVE.get();
    let mut vcpu = Some(vm.create_vcpu(0).unwrap());
    let whole = frees(&mut || drop(vcpu.take()));
    assert_eq!((LIVE.get(), vm.vcpu_count()), (live, 0));

    vcpu = Some(vm.create_vcpu(0).unwrap());
    let mut kicker = vcpu.as_ref().map(TestVcpu::kicker);
    assert_eq!(frees(&mut || drop(vcpu.take())), whole - 1, "all but what the kicker has");
    assert_eq!(frees(&mut || drop(kicker.clone())), 0);
    kicker.as_ref().unwrap().kick();
    assert_eq!(frees(&mut || drop(kicker.take())), 0);
    assert_eq!(frees(&mut || assert!(setup.reclaim())), 1, "the reclaimer finds it");
    assert_eq!(LIVE.get(), live);

    let kickers = [0; 3].map(|_| vm.create_vcpu(0).unwrap().kicker());
    assert_eq!(LIVE.get() - live, 3);
    drop(kickers);
    for _ in 0..2 {
        drop(vm.create_vcpu(0).unwrap());
    }
    assert_eq!(LIVE.get(), live, "whoever drops a vCPU finds two");
}
