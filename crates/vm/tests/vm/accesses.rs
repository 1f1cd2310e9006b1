//! Where an access to guest physical memory goes.

use mayfly_memslot::{AddressSpace, Flags, Gfn, Gpa, PAGE_SIZE, Region};
use mayfly_vm::{Access, Bus, Event, MMIO_MAX};

use crate::common::{
    Call, Log, Once, Outcome, Recorder, hva, mmio_exit, range, read, region, vm, write,
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
fn an_access_that_leaves_its_page_is_an_exit_though_memory_is_on_both_sides() {
    let vm = vm();
    vm.set_memory_region(&region(0, 0, 4)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read(&mut vcpu, 0xfff, 1), Outcome::Memory(hva(0, 0xfff)));
    assert_eq!(read(&mut vcpu, 0xfff, 2), mmio_exit(0xfff, 2, false));
    assert_eq!(write(&mut vcpu, 0x1ffc, &[0; 8]), mmio_exit(0x1ffc, 8, true));
}

#[test]
fn an_access_of_any_length_and_place_is_at_worst_an_exit() {
    let vm = vm();
    vm.set_memory_region(&region(0, 0, 1)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    for gpa in [0, 1, 0xfff, u64::MAX - 7, u64::MAX] {
        for len in [0, PAGE_SIZE + 1, u64::MAX - 0xfff, u64::MAX - 1, u64::MAX] {
            for write in [false, true] {
                let access = Access { gpa: Gpa::new(gpa), len, write };
                let outcome = Once::new(Event::Access(access), vec![0; 8]).run(&mut vcpu);
                assert_eq!(outcome, mmio_exit(gpa, len, write));
            }
        }
    }
}

#[test]
fn an_access_without_bytes_is_an_exit_wherever_it_is() {
    let vm = vm();
    let log = Log::default();
    vm.set_memory_region(&region(0, 0, 1)).unwrap();
    vm.register_device(Bus::Mmio, range(0x1000, 8), Recorder::device(1, &log)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    for gpa in [0, 0x1000] {
        assert_eq!(read(&mut vcpu, gpa, 0), mmio_exit(gpa, 0, false));
        assert_eq!(write(&mut vcpu, gpa, &[]), mmio_exit(gpa, 0, true));
    }
    assert_eq!(log.take(), []);
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
