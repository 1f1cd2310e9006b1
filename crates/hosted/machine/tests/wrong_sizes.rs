//! A format, or memory, that is too wide for the processors: what a VM's guest comes to, in which the core can see
//! nothing wrong.

#[path = "common/bounded.rs"]
mod bounded;

use mayfly_machine::address_space::Backing;
use mayfly_machine::{ADDRESS_SIZE_FAULT, Instruction, Machine, Processors};
use mayfly_memslot::{Gpa, SlotId};
use mayfly_stage2::{Arm, Ept, Format, Sv48x4};
use mayfly_vm::Exit;

use bounded::Bounded;

/// Faults after which a guest gives up.
const FAULTS: u32 = 100;

/// How often a guest of a processor with 40 bits of guest physical address faults, that writes one page of memory at the
/// end of those, and how often where it goes on past them.
fn faults<F: Format>() -> [u32; 2] {
    let processors = Processors { ipa_bits: Some(40), ..Processors::default() };
    let machine = Machine::<F>::with_processors(1 << 12, processors).unwrap();
    let vm = machine.create_vm().unwrap();
    let memory = machine.map(2 << 12).unwrap();
    let last = Gpa::new((1 << 40) - (1 << 12));
    vm.set_memory_region(&memory.region(SlotId::main(0), last)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    [last, Gpa::new(1 << 40)].map(|gpa| {
        let mut cpu = machine.cpu(vec![Instruction::Touch { gpa, len: 1, value: 7 }]);
        let mut guest = Bounded::new(&mut cpu, FAULTS);
        assert_eq!(vcpu.run(&mut guest), Exit::Halt);
        guest.faults()
    })
}

#[test]
fn a_format_that_is_wider_than_the_processor_has_its_guest_fault_for_ever() {
    assert_eq!(faults::<Arm<48>>(), [1, FAULTS]);
    assert_eq!(faults::<Ept>(), [1, FAULTS]);
    assert_eq!(faults::<Sv48x4>(), [1, FAULTS]);
}

/// What a guest comes to that writes memory which lies past 31 bits of address, on processors with so many.
fn writes_past_31_bits<F: Format>(pa_bits: u32) -> Exit {
    let processors = Processors { pa_bits, ..Processors::default() };
    let machine = Machine::<F>::with_processors(3 << 18, processors).unwrap();
    let vm = machine.create_vm().unwrap();
    // One block, and the machine's first GiB has other frames in it.
    let memory = machine.map_backed(1 << 30, Backing::Contiguous).unwrap();
    vm.set_memory_region(&memory.region(SlotId::main(0), Gpa::new(0))).unwrap();
    let mut cpu = machine.cpu(vec![Instruction::Touch { gpa: Gpa::new(0), len: 1, value: 7 }]);
    vm.create_vcpu(0).unwrap().run(&mut cpu)
}

#[test]
fn memory_past_the_physical_addresses_is_no_memory_and_no_device() {
    let fault = Exit::Custom(ADDRESS_SIZE_FAULT);
    assert_eq!([31, 32].map(writes_past_31_bits::<Arm<32>>), [fault, Exit::Halt]);
    assert_eq!([31, 32].map(writes_past_31_bits::<Ept>), [fault, Exit::Halt]);
}
