//! Every allocation that a call on a VM makes is refused in turn, of memory and of frames: the call says ENOMEM, the VM
//! is as it was and usable, and nothing is leaked.

mod refusal;
mod world;

#[path = "../common/mod.rs"]
mod common;

use common::{Recorder, Setup, TestVcpu, deleted, hva, range, region};
use mayfly_memslot::{Flags, Gpa, PAGE_SIZE, Region, SlotId};
use mayfly_vm::{Access, Bus, Exit, Reason, SlotZap, Vm};

use refusal::{LIVE, REFUSALS, Refusal, starved};
use world::{
    DEVICE, EVENTFD, FREE, FREE_EVENTFD, FREE_PORT, LOGGED, MOVE, Made, PLAIN, PORT, Toucher,
    UNTOUCHED, World, logged, private,
};

const ENOMEM: i32 = 12;

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
