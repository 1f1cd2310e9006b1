//! Two machines, and parts of one that are used with the other. Both number their frames from 1, so what is a guest's
//! memory on one machine is a table on the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use mayfly_vm::memslot::{Flags, Gpa, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_vm::testing::Step::Store;
use mayfly_vm::testing::{Kinds, Machine};
use mayfly_vm::{Config, Error, Exit, Vcpu, Vm};

use crate::FRAMES;

/// Two machines, and the configuration of a VM that is on the second.
fn two() -> (Machine, Machine, Config<Kinds>) {
    let (first, second) = (Machine::new(FRAMES), Machine::new(FRAMES));
    let config = second.config();
    (first, second, config)
}

/// A VM with a slot of one page at guest address 0, behind it the memory at the returned address, where its vCPU has
/// stored 1.
fn with_memory(machine: &Machine) -> (Vcpu<Kinds>, Hva) {
    let vm = Vm::create(machine.config()).unwrap();
    let backing = machine.memory().allocate(1).unwrap();
    let (slot, flags, gpa) = (SlotId::main(0), Flags::empty(), Gpa::new(0));
    vm.set_memory_region(&Region { slot, flags, gpa, size: PAGE_SIZE, backing }).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    assert_eq!(vcpu.run(&mut machine.guest([Store(0, 1)])), Exit::Halt);
    (vcpu, backing)
}

#[test]
fn a_vm_is_not_created_with_the_memory_of_another_machine() {
    let (first, _second, config) = two();
    let mixed = Config { memory: first.config().memory, ..config };
    assert_eq!(Vm::create(mixed).err(), Some(Error::OtherMachine));
}

#[test]
fn vmids_of_another_machine_are_refused() {
    let (first, _second, mut config) = two();
    config.stage2.vmids = first.config().stage2.vmids;
    assert!(catch_unwind(AssertUnwindSafe(|| Vm::create(config))).is_err());
}

#[test]
fn a_guest_of_one_machine_does_not_walk_the_tables_of_another() {
    let (first, second, _) = two();
    let ((_mine, memory), (mut other, _)) = (with_memory(&first), with_memory(&second));
    let mut guest = first.guest([Store(0, 7)]);
    let _ = catch_unwind(AssertUnwindSafe(|| other.run(&mut guest)));
    assert_eq!(first.memory().word(memory).load(Ordering::Relaxed), 1, "a VM of the second wrote");
    assert_eq!(other.run(&mut second.guest([Store(0, 1)])), Exit::Halt);
}

#[test]
fn a_reclaimer_of_another_machine_frees_tables_where_they_are() {
    let (first, second, mut config) = two();
    config.stage2.reclaimer = first.config().stage2.reclaimer;
    let vm = Vm::create(config).unwrap();
    let live = [&first, &second].map(|machine| machine.process().arena().live());
    drop(vm.create_vcpu(0).unwrap());
    vm.destroy();
    assert!(first.reclaim(), "no vCPU is in its guest");
    assert_eq!([&first, &second].map(|machine| machine.process().arena().live()), live);
}
