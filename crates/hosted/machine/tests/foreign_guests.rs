//! Guests that a vCPU runs though they are not on its machine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mayfly_machine::{Cpu, HostMemory, Instruction, Machine, MachineVcpu, Program};
use mayfly_memslot::{Gpa, PAGE_SIZE, SlotId};
use mayfly_vm::Exit;

const GPA: Gpa = Gpa::new(0x1000);

/// A vCPU of a VM of its own, and the VM's memory, a page at [`GPA`].
fn vcpu(machine: &Machine) -> (MachineVcpu, HostMemory) {
    let vm = machine.create_vm().unwrap();
    let memory = machine.map(PAGE_SIZE).unwrap();
    vm.set_memory_region(&memory.region(SlotId::main(0), GPA)).unwrap();
    (vm.create_vcpu(0).unwrap(), memory)
}

fn touch() -> Program {
    vec![Instruction::Touch { gpa: GPA, len: 8, value: 1 }]
}

#[test]
fn a_guest_on_a_cpu_of_another_machine_is_not_entered() {
    let (first, second) = (Machine::new().unwrap(), Machine::new().unwrap());
    let (mut vcpu, _memory) = vcpu(&second);
    let mut guest: Cpu = first.cpu(touch());
    assert!(catch_unwind(AssertUnwindSafe(|| vcpu.run(&mut guest))).is_err());
    assert_eq!(guest.named(), None, "its CPU walks frames of its own machine by their numbers");
    assert_eq!(vcpu.run(&mut second.cpu(touch())), Exit::Halt);
}
