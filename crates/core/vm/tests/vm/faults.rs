//! What a fault comes to.

use mayfly_memslot::{Flags, Gfn, Gpa, Hva, PAGE_SIZE, Region, SlotId, USER_SLOTS};
use mayfly_platform::address::Pfn;
use mayfly_stage2::{Format, Level, Permissions};
use mayfly_vm::{
    Access, Caches, Config, Error, Event, Exit, Guest, HostFault, Requests, SlotZap, Translation,
    Vm,
};

use crate::common::{
    Once, Outcome, Setup, TestFormat, TestVcpu, hva, mmio_exit, read, region, translation, vm,
    write,
};

const MIB2: u64 = 0x200;
const GIB1: u64 = 0x4_0000;

/// A slot, what the host says of its memory, and the leaf that a write to its page `at` is to be mapped by.
struct Case {
    what: &'static str,
    /// First frame, in the guest.
    gfn: u64,
    pages: u64,
    /// First page of the host's memory, beyond that of slot 0.
    page: u64,
    flags: Flags,
    host: Level,
    at: u64,
    leaf: Level,
}

const CASE: Case = Case {
    what: "",
    gfn: GIB1,
    pages: 2 * GIB1,
    page: 0,
    flags: Flags::empty(),
    host: Level::GIB1,
    at: 0,
    leaf: Level::PAGE,
};

#[test]
fn a_fault_takes_the_largest_block_that_slot_and_host_allow() {
    let cases = [
        Case { what: "all agree on 1 GiB", leaf: Level::GIB1, ..CASE },
        Case { what: "in its middle as well", at: GIB1 + 12345, leaf: Level::GIB1, ..CASE },
        Case { what: "the host has 2 MiB", host: Level::MIB2, leaf: Level::MIB2, ..CASE },
        Case { what: "the host has pages", host: Level::PAGE, ..CASE },
        Case {
            what: "the host has more than entries can map",
            host: Level::GIB512,
            leaf: Level::GIB1,
            ..CASE
        },
        Case { what: "the slot is 1 GiB less a page", pages: GIB1 - 1, leaf: Level::MIB2, ..CASE },
        Case { what: "the last 2 MiB of that lack a page", pages: GIB1 - 1, at: GIB1 - 2, ..CASE },
        Case { what: "the slot begins a page late", gfn: GIB1 + 1, page: 1, ..CASE },
        Case {
            what: "but has all of the next 2 MiB",
            gfn: GIB1 + 1,
            page: 1,
            at: MIB2,
            leaf: Level::MIB2,
            ..CASE
        },
        Case {
            what: "and of the next 1 GiB",
            gfn: GIB1 + 1,
            page: 1,
            pages: 2 * GIB1 - 1,
            at: GIB1,
            leaf: Level::GIB1,
            ..CASE
        },
        Case { what: "host memory lies askew by 2 MiB", page: MIB2, leaf: Level::MIB2, ..CASE },
        Case { what: "host memory lies askew by a page", page: 1, at: 10 * MIB2, ..CASE },
        Case { what: "the guest's side lies askew", gfn: GIB1 + 1, at: 10 * MIB2, ..CASE },
        Case {
            what: "both lie askew by as much",
            gfn: GIB1 + MIB2,
            page: MIB2,
            at: 7,
            leaf: Level::MIB2,
            ..CASE
        },
        Case { what: "the slot is 2 MiB", pages: MIB2, at: MIB2 - 1, leaf: Level::MIB2, ..CASE },
        Case { what: "pages are logged", flags: Flags::LOG_DIRTY_PAGES, ..CASE },
        Case { what: "the slot is one page", pages: 1, ..CASE },
    ];
    for Case { what, gfn, pages, page, flags, host, at, leaf } in cases {
        let setup = Setup::new(SlotZap::Range);
        setup.memory.set_level(host);
        let vm = setup.vm();
        let mut vcpu = vm.create_vcpu(0).unwrap();
        let backing = hva(0, page * PAGE_SIZE);
        vm.set_memory_region(&Region { flags, backing, ..region(0, gfn, pages) }).unwrap();
        let outcome = write(&mut vcpu, (gfn + at) * PAGE_SIZE + 5, &[1]);
        assert_eq!(outcome, Outcome::Memory(hva(0, (page + at) * PAGE_SIZE + 5)), "{what}");
        let (level, _) = translation(&mut vcpu, gfn + at).unwrap();
        assert_eq!(level, leaf, "{what}");
        assert_eq!(setup.memory.take_asked(), [(hva(0, (page + at) * PAGE_SIZE), true)], "{what}");
        // The whole slot is where it should be, whatever the sizes; and no frame beside it is mapped.
        for at in [0, pages / 3, pages - 1] {
            let outcome = read(&mut vcpu, (gfn + at) * PAGE_SIZE, 1);
            assert_eq!(outcome, Outcome::Memory(hva(0, (page + at) * PAGE_SIZE)), "{what}");
        }
        for beside in [gfn - 1, gfn + pages] {
            assert_eq!(translation(&mut vcpu, beside), None, "{what}");
        }
    }
}

#[test]
fn what_another_vcpu_has_mapped_is_not_asked_for_again() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    let [mut one, mut two] = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
    write(&mut one, 0x1000, &[1]);
    assert_eq!(setup.memory.take_asked().len(), 1);
    assert_eq!(write(&mut two, 0x1000, &[1]), Outcome::Memory(hva(0, 0x1000)));
    assert_eq!(setup.memory.take_asked(), []);
}

#[test]
fn a_cpu_is_told_to_forget_the_entry_that_denied_an_access_and_none_where_there_was_none() {
    /// Faults so often, whatever is there, as by what a TLB keeps.
    struct Faulting {
        access: Access,
        left: u32,
        forgotten: Vec<Gfn>,
    }
    impl<F: Format> Guest<F> for Faulting {
        fn enter(&mut self, _: Translation<F>, _: &Requests) -> Event {
            let Some(left) = self.left.checked_sub(1) else { return Event::Halt };
            self.left = left;
            Event::Access(self.access)
        }

        fn forget(&mut self, gfn: Gfn) {
            self.forgotten.push(gfn);
        }

        fn data(&mut self) -> &mut [u8] {
            &mut []
        }

        fn answered(&mut self) {}
    }

    let vm = vm();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let mut faults = |denied, left| {
        let access = Access { denied, ..Access::data(Gpa::new(0x1008), 8, true) };
        let mut guest = Faulting { access, left, forgotten: vec![] };
        assert_eq!(vcpu.run(&mut guest), Exit::Halt);
        guest.forgotten
    };
    assert_eq!(faults(false, 3), [], "it is mapped, and then others were first");
    assert_eq!(faults(true, 2), [Gfn::new(1); 2]);
}

fn permissions(vcpu: &mut TestVcpu, gfn: u64) -> Permissions {
    translation(vcpu, gfn).unwrap().1.permissions
}

#[test]
fn a_page_that_the_host_lets_nobody_write_yet_is_asked_for_again_when_it_is_written() {
    let setup = Setup::new(SlotZap::Range);
    setup.memory.set_writable(false);
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    read(&mut vcpu, 0x1000, 1);
    assert_eq!(permissions(&mut vcpu, 1), Permissions::READ | Permissions::EXECUTE);
    assert_eq!(write(&mut vcpu, 0x1000, &[1]), Outcome::Memory(hva(0, 0x1000)));
    assert_eq!(permissions(&mut vcpu, 1), Permissions::all());
    assert_eq!(setup.memory.take_asked(), [(hva(0, 0x1000), false), (hva(0, 0x1000), true)]);
    assert_eq!(setup.hardware.take_invalidations(), [], "what allows more needs none");
}

#[test]
fn a_read_only_slot_is_mapped_by_blocks_and_its_writes_never_reach_the_host() {
    let setup = Setup::new(SlotZap::Range);
    setup.memory.set_level(Level::MIB2);
    let vm = setup.vm();
    let slot = Region { flags: Flags::READONLY, ..region(0, MIB2, 2 * MIB2) };
    vm.set_memory_region(&slot).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(write(&mut vcpu, 0x20_0000, &[1]), mmio_exit(0x20_0000, 1, true));
    assert_eq!(setup.memory.take_asked(), []);
    read(&mut vcpu, 0x20_0000, 1);
    let (level, leaf) = translation(&mut vcpu, MIB2).unwrap();
    assert_eq!((level, leaf.permissions), (Level::MIB2, Permissions::READ | Permissions::EXECUTE));
    assert_eq!(write(&mut vcpu, 0x20_0000, &[1]), mmio_exit(0x20_0000, 1, true));
    assert_eq!(setup.memory.take_asked(), [(hva(0, 0), false)]);
}

#[test]
fn what_the_host_cannot_provide_is_the_callers_to_see_and_can_be_tried_again() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let faults =
        [(HostFault::NotMapped, 14), (HostFault::ReadOnly, 14), (HostFault::OutOfMemory, 12)];
    let access = Access::data(Gpa::new(0x1000), 1, true);
    for (fault, errno) in faults {
        setup.memory.fail_with(Some(fault));
        let failed = Outcome::Exit(Exit::Failed(access, Error::Host(fault)));
        assert_eq!(write(&mut vcpu, 0x1000, &[1]), failed);
        assert_eq!(Error::Host(fault).errno(), errno);
        assert_eq!(translation(&mut vcpu, 1), None);
    }
    setup.memory.fail_with(None);
    assert_eq!(write(&mut vcpu, 0x1000, &[1]), Outcome::Memory(hva(0, 0x1000)));
}

#[test]
fn a_slot_ends_where_the_tables_do() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    let last = (1 << 28) - 1;
    let (fits, past) = (region(0, last, 1), region(0, last, 2));
    assert_eq!(vm.set_memory_region(&past).unwrap_err().errno(), 22);
    let private = Region { slot: SlotId::main(USER_SLOTS), ..past };
    assert_eq!(vm.set_private_memory_region(&private).unwrap_err().errno(), 22);
    vm.set_memory_region(&fits).unwrap();
    assert_eq!(vm.set_memory_region(&region(0, last + 1, 1)).unwrap_err().errno(), 22);
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read(&mut vcpu, last * PAGE_SIZE, 1), Outcome::Memory(hva(0, 0)));
    let (gpa, len) = ((last + 1) * PAGE_SIZE, 1);
    assert_eq!(read(&mut vcpu, gpa, 1), mmio_exit(gpa, len, false));
}

#[test]
fn a_frame_that_no_entry_can_name_is_the_callers_to_see_and_nobody_cleans_it() {
    let setup = Setup::new(SlotZap::Range);
    let vm = Vm::create(Config { caches: Caches::Tracked, ..setup.config() }).unwrap();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let pfn = 1 << TestFormat::PFN_BITS;
    setup.memory.move_page(hva(0, 0x1000), pfn);
    for write in [false, true, false] {
        let access = Access::data(Gpa::new(0x1000), 1, write);
        let limit = Pfn::new(pfn);
        let error = Error::Stage2(mayfly_stage2::Error::PfnOutOfRange { pfn: limit, limit });
        let event = Event::Access(access);
        let failed = Once::<TestFormat>::new(event, vec![1]).run(&mut vcpu);
        assert_eq!(failed, Outcome::Exit(Exit::Failed(access, error)));
        assert_eq!((error.errno(), translation(&mut vcpu, 1)), (14, None));
    }
    assert_eq!(setup.caches.take(), []);
    setup.memory.move_page(hva(0, 0x1000), pfn - 1);
    assert_eq!(read(&mut vcpu, 0x1000, 1), Outcome::Memory(Hva::new((pfn - 1) * PAGE_SIZE)));
}

#[test]
fn a_fault_without_memory_for_tables_fails_and_can_be_tried_again() {
    let setup = Setup::new(SlotZap::Range);
    let vm = setup.vm();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    for left in [0, 1] {
        setup.hardware.refuse_frames_after(left);
        match write(&mut vcpu, 0x1000, &[1]) {
            Outcome::Exit(Exit::Failed(_, error)) => assert_eq!(error.errno(), 12),
            other => panic!("{other:?}"),
        }
        setup.hardware.refuse_no_frames();
        if left == 0 {
            continue;
        }
        assert_eq!(write(&mut vcpu, 0x1000, &[1]), Outcome::Memory(hva(0, 0x1000)));
    }
}

#[test]
fn vms_that_share_the_only_cpu_and_the_only_vmid_take_turns() {
    // One bit: VMID 1 alone.
    let setup = Setup::with_vmids(SlotZap::Range, 1);
    let vms = [setup.vm(), setup.vm(), setup.vm()];
    let mut vcpus = [0, 1, 2].map(|vm: usize| vms[vm].create_vcpu(0).unwrap());
    for vm in &vms {
        vm.set_memory_region(&region(0, 0, 4)).unwrap();
    }
    for round in 0..3 {
        for vcpu in &mut vcpus {
            assert_eq!(read(vcpu, round * 0x1000, 1), Outcome::Memory(hva(0, round * 0x1000)));
        }
    }
    assert_eq!(setup.hardware.rollovers(), 3 * 3 - 1);
}
