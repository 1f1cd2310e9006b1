//! Memory that changes under a guest.

use mayfly_memslot::{
    AddressSpace, Flags, Gfn, Gpa, PAGE_SIZE, PRIVATE_SLOTS, Region, SlotId, USER_SLOTS,
};

use crate::common::{Outcome, TestVm, hva, mmio_exit, read, region, vm, write};

#[test]
fn a_guest_follows_a_slot_that_is_created_moved_and_deleted() {
    let vm = vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(read(&mut vcpu, 0x1_0000, 8), mmio_exit(0x1_0000, 8, false));
    vm.set_memory_region(&region(3, 0x10, 2)).unwrap();
    assert_eq!(read(&mut vcpu, 0x1_0000, 8), Outcome::Memory(hva(3, 0)));
    vm.set_memory_region(&region(3, 0x11, 2)).unwrap();
    assert_eq!(read(&mut vcpu, 0x1_0000, 8), mmio_exit(0x1_0000, 8, false));
    assert_eq!(read(&mut vcpu, 0x1_2000, 8), Outcome::Memory(hva(3, 0x1000)));
    vm.set_memory_region(&Region { size: 0, ..region(3, 0, 0) }).unwrap();
    assert_eq!(read(&mut vcpu, 0x1_2000, 8), mmio_exit(0x1_2000, 8, false));
}

#[test]
fn the_pages_that_a_guest_writes_are_logged_from_when_the_log_was_switched_on() {
    let vm = vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    vm.set_memory_region(&region(0, 0x10, 8)).unwrap();
    write(&mut vcpu, 0x1_0000, &[1]);
    let logged = Region { flags: Flags::LOG_DIRTY_PAGES, ..region(0, 0x10, 8) };
    vm.set_memory_region(&logged).unwrap();
    write(&mut vcpu, 0x1_3fff, &[1]);
    read(&mut vcpu, 0x1_5000, 1);
    // The log moves with its slot.
    vm.set_memory_region(&Region { gpa: Gpa::new(0x20 * PAGE_SIZE), ..logged }).unwrap();
    write(&mut vcpu, 0x2_6000, &[1]);
    assert_eq!(dirty(&vm, 0x20), 1 << 3 | 1 << 6);
    assert_eq!(dirty(&vm, 0x20), 0);
}

/// Takes the log of the slot at `gfn`.
fn dirty(vm: &TestVm, gfn: u64) -> u64 {
    let section = vm.srcu().read_lock();
    let slots = vm.slots().load(AddressSpace::Main, &section);
    let mut word = [0];
    slots.find(Gfn::new(gfn)).unwrap().dirty().unwrap().harvest(0, &mut word);
    word[0]
}

#[test]
fn a_private_slot_is_memory_to_the_guest_and_out_of_the_users_reach() {
    let vm = vm();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let apic = Region { slot: SlotId::main(USER_SLOTS), ..region(9, 0xfee00, 1) };
    assert_eq!(vm.set_memory_region(&apic).unwrap_err().errno(), 22);
    vm.set_private_memory_region(&apic).unwrap();
    assert_eq!(read(&mut vcpu, 0xfee0_0020, 4), Outcome::Memory(hva(9, 0x20)));

    // Neither can the user delete it, nor lie over it.
    assert_eq!(vm.set_memory_region(&Region { size: 0, ..apic }).unwrap_err().errno(), 22);
    assert_eq!(vm.set_memory_region(&region(0, 0xfedff, 2)).unwrap_err().errno(), 17);
    assert_eq!(read(&mut vcpu, 0xfee0_0020, 4), Outcome::Memory(hva(9, 0x20)));

    vm.set_private_memory_region(&Region { size: 0, ..apic }).unwrap();
    assert_eq!(read(&mut vcpu, 0xfee0_0020, 4), mmio_exit(0xfee0_0020, 4, false));
}

#[test]
fn private_slots_are_the_three_above_the_users_and_take_no_flags() {
    let vm = vm();
    let at = |index: u16| Region { slot: SlotId::main(index), ..region(0, index.into(), 1) };
    for index in [0, USER_SLOTS - 1, USER_SLOTS + PRIVATE_SLOTS, u16::MAX] {
        assert_eq!(vm.set_private_memory_region(&at(index)).unwrap_err().errno(), 22, "{index}");
    }
    for index in USER_SLOTS..USER_SLOTS + PRIVATE_SLOTS {
        let logged = Region { flags: Flags::LOG_DIRTY_PAGES, ..at(index) };
        assert_eq!(vm.set_private_memory_region(&logged).unwrap_err().errno(), 22);
        vm.set_private_memory_region(&at(index)).unwrap();
    }
}
