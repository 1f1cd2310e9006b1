//! Where an access to guest physical memory goes.

use mayfly_memslot::{AddressSpace, Flags, Gfn, Gpa, PAGE_SIZE, Region};
use mayfly_stage2::Format;
use mayfly_vm::{Access, AccessKind, Bus, Event, Exit, Guest, MMIO_MAX, Requests, Translation};

use crate::common::{
    Call, Log, Once, Outcome, Recorder, hva, mmio_exit, range, read, region, translation, vm, write,
};

#[test]
fn an_access_to_memory_is_performed_at_the_byte_behind_it() {
    let vm = vm();
    vm.set_memory_region(&region(0, 0x10, 4)).unwrap();
    vm.set_memory_region(&region(1, 0x14, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read(&mut vcpu, 0x1_0000, 1), Outcome::Memory(hva(0, 0)));
    assert_eq!(write(&mut vcpu, 0x1_3ffc, &[0; 4]), Outcome::Memory(hva(0, 0x3ffc)));
    assert_eq!(read(&mut vcpu, 0x1_4001, 8), Outcome::Memory(hva(1, 1)));
    assert_eq!(read(&mut vcpu, 0x1_8000, 1), mmio_exit(0x1_8000, 1, false));
    assert_eq!(write(&mut vcpu, 0xffff, &[0]), mmio_exit(0xffff, 1, true));
}

#[test]
fn an_access_to_memory_may_be_as_long_as_the_rest_of_its_page() {
    let vm = vm();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read(&mut vcpu, 0x1000, 0x1000), Outcome::Memory(hva(0, 0x1000)));
    assert_eq!(read(&mut vcpu, 0x1100, 0xf00), Outcome::Memory(hva(0, 0x1100)));
}

#[test]
fn an_access_over_two_pages_of_memory_is_performed_when_both_are_there() {
    let vm = vm();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read(&mut vcpu, 0xfff, 2), Outcome::Memory(hva(0, 0xfff)));
    for gfn in [0, 1] {
        assert!(translation(&mut vcpu, gfn).is_some(), "page {gfn}");
    }
    assert_eq!(write(&mut vcpu, 0x2ffc, &[0; 8]), Outcome::Memory(hva(0, 0x2ffc)));
}

#[test]
fn an_access_of_which_a_part_is_no_memory_is_an_exit_of_its_own_and_no_device_gets_it() {
    let (vm, log) = (vm(), Log::default());
    vm.set_memory_region(&region(0, 1, 1)).unwrap();
    for start in [0, 0x2000] {
        let device = Recorder::device(1, &log);
        vm.register_device(Bus::Mmio, range(start, 0x1000), device).unwrap();
    }
    let mut vcpu = vm.create_vcpu(0).unwrap();
    for is_write in [false, true] {
        let mut straddling = |gpa| {
            let access = Access::data(Gpa::new(gpa), 8, is_write);
            Once::new(Event::Access(access), vec![0; 8]).run(&mut vcpu)
        };
        let unbacked = |gpa, len, kind| {
            let access = Access { kind, ..Access::data(Gpa::new(gpa), len, is_write) };
            Outcome::Exit(Exit::Unbacked(access))
        };
        assert_eq!(straddling(0xffc), unbacked(0xffc, 8, AccessKind::Data), "then memory");
        assert_eq!(straddling(0x1ffe), unbacked(0x2000, 6, AccessKind::Opaque), "after memory");
        assert_eq!(straddling(0x2ffc), unbacked(0x2ffc, 8, AccessKind::Data), "neither");
    }
    assert_eq!(log.take(), []);
}

#[test]
fn what_a_device_cannot_answer_never_reaches_one() {
    let (vm, log) = (vm(), Log::default());
    vm.set_memory_region(&Region { flags: Flags::READONLY, ..region(0, 1, 1) }).unwrap();
    vm.register_device(Bus::Mmio, range(0, 0x2000), Recorder::device(1, &log)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let mut make = |gpa, kind, write| {
        let access = Access { kind, ..Access::data(Gpa::new(gpa), 8, write) };
        (Once::new(Event::Access(access), vec![0; 8]).run(&mut vcpu), access)
    };
    let unbacked = |access| Outcome::Exit(Exit::Unbacked(access));
    for kind in [AccessKind::Opaque, AccessKind::Fetch, AccessKind::Walk] {
        let (outcome, access) = make(0x800, kind, false);
        assert_eq!(outcome, unbacked(access), "where no memory is");
        assert_eq!(make(0x1800, kind, false).0, Outcome::Memory(hva(0, 0x800)));
    }
    for kind in [AccessKind::Opaque, AccessKind::Walk] {
        let (outcome, access) = make(0x1800, kind, true);
        assert_eq!(outcome, unbacked(access), "where memory is read-only");
    }
    assert_eq!(log.take(), []);
    assert_eq!(make(0x800, AccessKind::Data, false).0, Outcome::Device(vec![1; 8]));
}

#[test]
fn an_access_that_nobody_answers_is_made_again_and_one_that_is_answered_is_not() {
    struct Twice {
        entries: u32,
        answered: bool,
        data: [u8; 4],
    }
    impl<F: Format> Guest<F> for Twice {
        fn enter(&mut self, _translation: Translation<F>, _requests: &Requests) -> Event {
            self.entries += 1;
            let access = Access::data(Gpa::new(0x1000), 4, true);
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

    let (vm, log) = (vm(), Log::default());
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let mut guest = Twice { entries: 0, answered: false, data: [5; 4] };
    let exit = Exit::Mmio(Access::data(Gpa::new(0x1000), 4, true));
    assert_eq!((vcpu.run(&mut guest), vcpu.run(&mut guest)), (exit, exit));
    vm.register_device(Bus::Mmio, range(0x1000, 4), Recorder::device(1, &log)).unwrap();
    assert_eq!((vcpu.run(&mut guest), guest.entries), (Exit::Halt, 4));
    assert_eq!(log.take(), [Call::Write { id: 1, offset: 0, data: vec![5; 4] }]);
}

#[test]
fn an_access_of_any_length_and_place_is_at_worst_an_exit() {
    let vm = vm();
    vm.set_memory_region(&region(0, 0, 1)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    for gpa in [0x1000, 0x1001, 0x1fff, u64::MAX - 7, u64::MAX] {
        for len in [0, PAGE_SIZE + 1, u64::MAX - 0xfff, u64::MAX - 1, u64::MAX] {
            for write in [false, true] {
                let access = Access::data(Gpa::new(gpa), len, write);
                let outcome = Once::new(Event::Access(access), vec![0; 8]).run(&mut vcpu);
                let exit = if len == 0 { Exit::Mmio(access) } else { Exit::Unbacked(access) };
                assert_eq!(outcome, Outcome::Exit(exit));
            }
        }
    }
}

#[test]
fn an_access_without_bytes_is_an_exit_where_no_memory_is() {
    let vm = vm();
    let log = Log::default();
    vm.set_memory_region(&region(0, 0, 1)).unwrap();
    vm.register_device(Bus::Mmio, range(0x1000, 8), Recorder::device(1, &log)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read(&mut vcpu, 0x1000, 0), mmio_exit(0x1000, 0, false));
    assert_eq!(write(&mut vcpu, 0x1000, &[]), mmio_exit(0x1000, 0, true));
    assert_eq!(log.take(), []);
    assert_eq!(read(&mut vcpu, 0, 0), Outcome::Memory(hva(0, 0)), "memory is asked first");
}

#[test]
fn a_device_gets_the_accesses_that_lie_in_its_range_and_no_others() {
    let vm = vm();
    let log = Log::default();
    vm.register_device(Bus::Mmio, range(0x1000, 6), Recorder::device(1, &log)).unwrap();
    vm.register_device(Bus::Mmio, range(0x1006, 8), Recorder::device(2, &log)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();

    assert_eq!(read(&mut vcpu, 0x1002, 4), Outcome::Device(vec![1; 4]));
    assert_eq!(write(&mut vcpu, 0x1006, b"written!"), Outcome::Device(b"written!".to_vec()));
    let calls = [
        Call::Read { id: 1, offset: 2, len: 4 },
        Call::Write { id: 2, offset: 0, data: b"written!".to_vec() },
    ];
    assert_eq!(log.take(), calls);

    // Over the end of the first, though the second goes on there; over the end of the second; before the first.
    assert_eq!(read(&mut vcpu, 0x1004, 4), mmio_exit(0x1004, 4, false));
    assert_eq!(write(&mut vcpu, 0x100c, &[7; 4]), mmio_exit(0x100c, 4, true));
    assert_eq!(read(&mut vcpu, 0xfff, 1), mmio_exit(0xfff, 1, false));
    assert_eq!(log.take(), []);
}

#[test]
fn a_device_gets_no_access_longer_than_mmio_can_be() {
    let vm = vm();
    let log = Log::default();
    vm.register_device(Bus::Mmio, range(0x1000, 0x100), Recorder::device(1, &log)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read(&mut vcpu, 0x1000, MMIO_MAX), Outcome::Device(vec![1; 8]));
    assert_eq!(read(&mut vcpu, 0x1000, MMIO_MAX + 1), mmio_exit(0x1000, 9, false));
    assert_eq!(log.take().len(), 1);
}

#[test]
fn memory_hides_a_device_at_the_same_address() {
    let vm = vm();
    let log = Log::default();
    vm.register_device(Bus::Mmio, range(0x1000, 8), Recorder::device(1, &log)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read(&mut vcpu, 0x1000, 8), Outcome::Device(vec![1; 8]));
    vm.set_memory_region(&region(0, 1, 1)).unwrap();
    assert_eq!(read(&mut vcpu, 0x1000, 8), Outcome::Memory(hva(0, 0)));
    vm.set_memory_region(&Region { size: 0, ..region(0, 1, 1) }).unwrap();
    assert_eq!(read(&mut vcpu, 0x1000, 8), Outcome::Device(vec![1; 8]));
}

#[test]
fn a_write_to_read_only_memory_goes_to_the_device_there_and_else_exits() {
    let vm = vm();
    let log = Log::default();
    let read_only = Flags::READONLY | Flags::LOG_DIRTY_PAGES;
    vm.set_memory_region(&Region { flags: read_only, ..region(0, 1, 2) }).unwrap();
    vm.register_device(Bus::Mmio, range(0x1000, 8), Recorder::device(1, &log)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read(&mut vcpu, 0x1000, 4), Outcome::Memory(hva(0, 0)));
    assert_eq!(write(&mut vcpu, 0x1000, &[3; 4]), Outcome::Device(vec![3; 4]));
    assert_eq!(log.take(), [Call::Write { id: 1, offset: 0, data: vec![3; 4] }]);
    assert_eq!(write(&mut vcpu, 0x2000, &[3; 4]), mmio_exit(0x2000, 4, true));

    let section = vm.srcu().read_lock();
    let slots = vm.slots().load(AddressSpace::Main, &section);
    let log = slots.find(Gfn::new(1)).unwrap().dirty().unwrap();
    assert_eq!(log.harvest(0, &mut [0]), 0, "no page was written");
}
