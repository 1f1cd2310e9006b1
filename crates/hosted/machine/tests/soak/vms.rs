//! VMs that live and die beside the round's, and use the frames that it gives back.

use std::sync::Arc;

use mayfly_machine::{Cpu, Instruction, Program, VmOptions};
use mayfly_memslot::{Gpa, Region, SlotId};
use mayfly_stage2::Format;
use mayfly_vm::{Exit, SlotZap, Vm};

use crate::crew::Seat;
use crate::random::Random;
use crate::round::Round;
use crate::tally::What;

const SIZE: u64 = 0x1_0000;

/// Lets one VM after another live, until the round is over.
pub(crate) fn live_and_die<F: Format>(round: &Arc<Round<F>>, random: &mut Random, seat: &Seat) {
    let mut cpu = round.machine.cpu(Program::new());
    while !round.tally.is_over() {
        seat.at("letting a VM live");
        live(round, &mut cpu, random, seat);
        round.tally.add(What::VmLived, 1);
    }
}

fn live<F: Format>(round: &Round<F>, cpu: &mut Cpu<F>, random: &mut Random, seat: &Seat) {
    let slot_zap = if random.once_in(2) { SlotZap::Range } else { SlotZap::AllRoots };
    let vm = round.machine.create_vm_with(VmOptions { slot_zap, ..VmOptions::default() }).unwrap();
    let memory = {
        let _mapping = round.mapping.lock().unwrap();
        round.machine.map(SIZE).unwrap()
    };
    let (gpa, value) = (Gpa::new(random.below(4) << 21), random.next());
    let region = memory.region(SlotId::main(0), gpa);
    vm.set_memory_region(&region).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    cpu.load(vec![
        Instruction::Touch { gpa, len: SIZE, value },
        Instruction::Verify { gpa, len: SIZE, value },
    ]);
    assert_eq!((vcpu.run(cpu), cpu.mismatches()), (Exit::Halt, 0));
    if random.once_in(2) {
        seat.at("deleting the slot of a VM");
        vm.set_memory_region(&Region { size: 0, ..region }).unwrap();
        cpu.load(vec![Instruction::Verify { gpa, len: 8, value }]);
        assert!(matches!(vcpu.run(cpu), Exit::Mmio(_)), "it finds memory where no slot is");
    }
    let handle = Vm::clone(&vm);
    seat.at("destroying a VM");
    vm.destroy();
    assert_eq!(vcpu.run(cpu), Exit::Kicked);
    drop(vcpu);
    if random.once_in(4) {
        seat.at("waiting for a VM's tables");
        handle.wait_reclaimed();
        assert_eq!(handle.stage2().frames(), 0);
    }
    drop(handle);
    seat.at("unmapping a VM's memory");
    let _mapping = round.mapping.lock().unwrap();
    drop(memory);
}
