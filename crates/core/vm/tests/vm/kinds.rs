//! Memory of other kinds than the usual: a device's, not executable by blocks, broken, private; and too many tables.

use mayfly_memslot::{Gpa, PAGE_SIZE};
use mayfly_platform::address::Pfn;
use mayfly_stage2::{self as stage2, Level, MemoryType, Permissions};
use mayfly_vm::{
    Access, AccessKind, CacheCapabilities, CacheOp, Caches, Config, Error, Event, Exit, HostFault,
    InstructionCaches, Reason, Resolved, SlotZap, Vm,
};

use crate::caches::{DATA, turn};
use crate::common::{
    Once, Outcome, Setup, TestVcpu, TestVm, deleted, hva, read, region, translation, write,
};

const MIB2: u64 = 0x200;
const RW: Permissions = Permissions::READ.union(Permissions::WRITE);
const RX: Permissions = Permissions::READ.union(Permissions::EXECUTE);

pub(crate) fn fetch(vcpu: &mut TestVcpu, gfn: u64) -> Outcome {
    let access = fetched(gfn);
    Once::new(Event::Access(access), vec![0; 4]).run(vcpu)
}

fn fetched(gfn: u64) -> Access {
    Access { kind: AccessKind::Fetch, ..Access::data(Gpa::new(gfn * PAGE_SIZE), 4, false) }
}

fn found(vcpu: &mut TestVcpu, gfn: u64) -> (Level, Permissions) {
    let (level, leaf) = translation(vcpu, gfn).unwrap();
    (level, leaf.permissions)
}

/// VMs of whose slot 1, two blocks of 2 MiB, the host says that it is a device.
fn with_device(
    slot_zap: SlotZap,
    caches: Caches,
    processors: CacheCapabilities,
) -> (Setup, TestVm) {
    let setup = Setup::new(slot_zap);
    setup.caches.set_capabilities(processors);
    setup.memory.set_level(Level::MIB2);
    setup.memory.set_kind(|backing, _, usual| {
        let is_device = backing >= hva(1, 0);
        if is_device { Resolved::device(usual.pfn, usual.level) } else { usual }
    });
    let vm = Vm::create(Config { caches, ..setup.config() }).unwrap();
    vm.set_memory_region(&region(0, 0, 1)).unwrap();
    vm.set_memory_region(&region(1, MIB2, 2 * MIB2)).unwrap();
    (setup, vm)
}

#[test]
fn a_device_is_mapped_as_one_on_every_root_and_nothing_is_kept_of_it_in_caches() {
    for slot_zap in [SlotZap::Range, SlotZap::AllRoots] {
        let (setup, vm) = with_device(
            slot_zap,
            Caches::Tracked,
            CacheCapabilities { instructions: InstructionCaches::Virtual, fgt: false },
        );
        // One whose accesses go through the caches, and one past which they go.
        let [mut on, mut off] = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
        turn(&mut on, CacheOp::On);
        let check = |vcpu: &mut TestVcpu| {
            let pfn = Pfn::new(hva(1, 7 * PAGE_SIZE).get() / PAGE_SIZE);
            let (level, leaf) = translation(vcpu, MIB2 + 7).unwrap();
            assert_eq!((leaf.memory, leaf.permissions), (MemoryType::Device, RW));
            assert_eq!((level, leaf.pfn, leaf.written), (Level::MIB2, pfn, false));
        };
        for vcpu in [&mut on, &mut off] {
            let place = hva(1, 7 * PAGE_SIZE);
            assert_eq!(read(vcpu, (MIB2 + 7) * PAGE_SIZE, 4), Outcome::Memory(place));
            check(vcpu);
            // The right to write is there from the beginning.
            setup.memory.take_asked();
            assert_eq!(write(vcpu, (MIB2 + 7) * PAGE_SIZE, &[1; 4]), Outcome::Memory(place));
            assert_eq!(setup.memory.take_asked(), []);
            let failed = Exit::Failed(fetched(MIB2 + 8), HostFault::NotExecutable.into());
            assert_eq!(fetch(vcpu, MIB2 + 8), Outcome::Exit(failed));
        }
        turn(&mut off, CacheOp::On);
        turn(&mut off, CacheOp::Off);
        assert_eq!(setup.caches.take(), []);
        // What goes beside it, and what it is zapped for, changes nothing of that.
        vm.set_memory_region(&deleted(region(0, 0, 1))).unwrap();
        drop(vm.invalidate_start(hva(1, 0), PAGE_SIZE, Reason::Reclaim { coherent: false }));
        for vcpu in [&mut on, &mut off] {
            read(vcpu, (MIB2 + 7) * PAGE_SIZE, 4);
            check(vcpu);
        }
        assert_eq!(setup.caches.take(), [], "{slot_zap:?}");
    }
}

#[test]
fn a_part_of_a_device_that_goes_leaves_the_rest_as_it_was_and_a_flush_of_all_leaves_it_alone() {
    let (setup, vm) = with_device(SlotZap::Range, Caches::Reported, DATA);
    let mut vcpu = vm.create_vcpu(0).unwrap();
    read(&mut vcpu, 0, 1);
    read(&mut vcpu, MIB2 * PAGE_SIZE, 1);
    assert_eq!(setup.caches.take_cleaned(), [(Pfn::new(hva(0, 0).get() / PAGE_SIZE), 1)]);
    vm.clean_invalidate_mapped();
    assert_eq!(setup.caches.take().len(), 1, "the page of memory");
    // Splits the block.
    let change = mayfly_vm::Change {
        reason: Reason::Protect,
        old: mayfly_vm::Protection::ReadWrite,
        new: mayfly_vm::Protection::ReadOnly,
    };
    drop(vm.invalidate_start(hva(1, 0), PAGE_SIZE, change));
    for (page, permissions) in [(0, Permissions::READ), (1, RW), (MIB2 - 1, RW)] {
        let (level, leaf) = translation(&mut vcpu, MIB2 + page).unwrap();
        assert_eq!((level, leaf.memory), (Level::PAGE, MemoryType::Device));
        assert_eq!(leaf.permissions, permissions);
    }
    assert_eq!(setup.caches.take(), []);
}

#[test]
fn blocks_that_are_not_executable_are_split_where_a_page_is_executed() {
    let (setup, _vm, mut vcpu) = Setup::in_blocks(2 * MIB2);
    let mut executed = false;
    setup.memory.set_kind(move |backing, wanted, usual| {
        let is_second = backing >= hva(0, MIB2 * PAGE_SIZE);
        executed |= wanted == Permissions::EXECUTE && !is_second;
        if wanted == Permissions::EXECUTE {
            Resolved { level: Level::PAGE, ..usual }
        } else if executed && !is_second {
            Resolved { level: Level::PAGE, allowed: RW, ..usual }
        } else {
            Resolved { allowed: RW, ..usual }
        }
    });
    for block in [MIB2, 2 * MIB2] {
        write(&mut vcpu, block * PAGE_SIZE, &[1]);
        assert_eq!(found(&mut vcpu, block), (Level::MIB2, RW));
    }
    setup.memory.take_asked();
    let place = |page| Outcome::Memory(hva(0, page * PAGE_SIZE));
    assert_eq!(fetch(&mut vcpu, MIB2 + 5), place(5));
    assert_eq!(found(&mut vcpu, MIB2 + 5).0, Level::PAGE);
    assert!(found(&mut vcpu, MIB2 + 5).1.contains(RX));
    assert_eq!(setup.memory.take_asked().len(), 1);
    // What is beside it is as it was, but for its size, and so is the next block.
    for page in [4, 6, MIB2 - 1] {
        assert_eq!(write(&mut vcpu, (MIB2 + page) * PAGE_SIZE, &[1]), place(page));
        assert_eq!(found(&mut vcpu, MIB2 + page), (Level::PAGE, RW));
    }
    assert_eq!(found(&mut vcpu, 2 * MIB2), (Level::MIB2, RW));
    assert_eq!(setup.memory.take_asked(), []);
}

#[test]
fn a_right_that_another_takes_the_place_of_is_gone_from_every_tlb() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    setup.memory.set_kind(|_, wanted, usual| {
        let allowed = if wanted == Permissions::EXECUTE { RX } else { RW };
        Resolved { allowed, ..usual }
    });
    write(&mut vcpu, 0x1000, &[1]);
    assert_eq!(setup.hardware.take_invalidations(), []);
    for _ in 0..2 {
        assert_eq!(fetch(&mut vcpu, 1), Outcome::Memory(hva(0, 0x1000)));
        assert_eq!(found(&mut vcpu, 1), (Level::PAGE, RX));
        assert_eq!(setup.hardware.take_invalidations().len(), 1, "the right to write goes");
        write(&mut vcpu, 0x1000, &[1]);
        assert_eq!(found(&mut vcpu, 1), (Level::PAGE, RW));
        assert_eq!(setup.hardware.take_invalidations().len(), 1, "the right to execute goes");
    }
}

#[test]
fn what_the_host_allows_less_than_was_wanted_fails_and_does_not_go_round() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    setup.memory.set_kind(|_, _, usual| Resolved { allowed: Permissions::READ, ..usual });
    let access = Access::data(Gpa::new(0x1000), 1, true);
    let failed = Exit::Failed(access, HostFault::ReadOnly.into());
    assert_eq!(write(&mut vcpu, 0x1000, &[1]), Outcome::Exit(failed));
    let failed = Exit::Failed(fetched(1), HostFault::NotExecutable.into());
    assert_eq!(fetch(&mut vcpu, 1), Outcome::Exit(failed));
    assert_eq!(read(&mut vcpu, 0x1000, 1), Outcome::Memory(hva(0, 0x1000)));
}

#[test]
fn broken_and_private_pages_are_told_apart_and_can_be_tried_again() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    let access = Access::data(Gpa::new(0x1000), 1, true);
    for (fault, errno) in [(HostFault::Poisoned, 133), (HostFault::Private, 14)] {
        setup.memory.fail_with(Some(fault));
        let failed = Exit::Failed(access, Error::Host(fault));
        assert_eq!(write(&mut vcpu, 0x1000, &[1]), Outcome::Exit(failed));
        assert_eq!((Error::Host(fault).errno(), translation(&mut vcpu, 1)), (errno, None));
    }
    setup.memory.fail_with(None);
    assert_eq!(write(&mut vcpu, 0x1000, &[1]), Outcome::Memory(hva(0, 0x1000)));
}

#[test]
fn tables_beyond_the_limit_of_a_vm_are_refused_and_come_when_others_have_gone() {
    // A root of two frames, a table of 1 GiB, and one of 2 MiB in it.
    const LIMIT: usize = 4;
    const GIB1: u64 = 0x4_0000;
    let setup = Setup::new(SlotZap::Range);
    let create = |max_frames| {
        let config = setup.config();
        let stage2 = stage2::Config { max_frames, ..config.stage2 };
        Vm::create(Config { stage2, ..config }).unwrap()
    };
    let limit = |limit| Error::Stage2(stage2::Error::TableLimit { limit });
    assert_eq!(create(1).create_vcpu(0).unwrap_err(), limit(1));

    let vm = create(LIMIT);
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let low = region(0, 0, GIB1);
    vm.set_memory_region(&low).unwrap();
    vm.set_memory_region(&region(1, GIB1, 1)).unwrap();
    assert_eq!(read(&mut vcpu, 0, 1), Outcome::Memory(hva(0, 0)));
    let live = setup.hardware.live();
    let gpa = GIB1 * PAGE_SIZE;
    let failed = Exit::Failed(Access::data(Gpa::new(gpa), 1, false), limit(LIMIT));
    assert_eq!(read(&mut vcpu, gpa, 1), Outcome::Exit(failed));
    assert_eq!((limit(LIMIT).errno(), setup.hardware.live()), (12, live));
    assert_eq!(read(&mut vcpu, 0, 1), Outcome::Memory(hva(0, 0)), "what is there stays");

    vm.set_memory_region(&deleted(low)).unwrap();
    // They are buried until their readers have left, and count as long.
    vm.srcu().synchronize();
    vm.set_memory_region(&region(2, 0x100, 1)).unwrap();
    vm.set_memory_region(&deleted(region(2, 0x100, 1))).unwrap();
    assert_eq!(setup.hardware.live(), live - 2);
    assert_eq!(read(&mut vcpu, gpa, 1), Outcome::Memory(hva(1, 0)));
}

#[test]
fn a_right_that_the_host_is_just_giving_is_asked_for_again() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    let mut is_given = false;
    setup.memory.set_kind(move |_, _, usual| {
        let allowed = if is_given { RW } else { Permissions::READ };
        is_given = true;
        Resolved { allowed, ..usual }
    });
    let inside = vm.clone();
    // It has made up its mind, and then changes what it has said.
    setup.memory.when_asked(move || {
        drop(inside.invalidate_start(hva(0, 0x1000), PAGE_SIZE, Reason::CopyOnWrite));
    });
    assert_eq!(write(&mut vcpu, 0x1000, &[1]), Outcome::Memory(hva(0, 0x1000)));
    assert_eq!(setup.memory.take_asked().len(), 2);
}
