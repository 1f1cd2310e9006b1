//! A format that is chosen when the program runs, and the VM that is built in it.

use mayfly_machine::{Instruction, Machine, Processors};
use mayfly_memslot::{Gpa, PAGE_SIZE, SlotId};
use mayfly_stage2::{Arm, ArmFeatures, WithArm};
use mayfly_vm::Exit;

/// Runs a guest that has memory at both ends of what it can address, on processors that can address no more.
struct Guest {
    ipa_bits: u32,
}

impl WithArm for Guest {
    type Output = (u64, i32);

    /// The reads whose value was known and right; and the errno of a slot that goes on past the last frame.
    fn with<const IPA_BITS: u32, const FWB: bool>(self) -> Self::Output {
        let (pa_bits, ipa_bits) = (self.ipa_bits, Some(self.ipa_bits));
        let processors = Processors { pa_bits, ipa_bits, ..Processors::default() };
        let machine = Machine::<Arm<IPA_BITS, FWB>>::with_processors(1 << 13, processors).unwrap();
        let vm = machine.create_vm().unwrap();
        let memory = machine.map(4 * PAGE_SIZE).unwrap();
        let end = 1 << self.ipa_bits;
        let ends = [Gpa::new(0), Gpa::new(end - memory.size())];
        for (index, gpa) in (0..).zip(ends) {
            vm.set_memory_region(&memory.region(SlotId::main(index), gpa)).unwrap();
        }
        let past = memory.region(SlotId::main(2), Gpa::new(end));
        let errno = vm.set_memory_region(&past).unwrap_err().errno();
        let len = memory.size();
        let mut cpu = machine.cpu(vec![
            Instruction::Touch { gpa: ends[0], len, value: 7 },
            Instruction::Verify { gpa: ends[1], len, value: 7 },
        ]);
        assert_eq!(vm.create_vcpu(0).unwrap().run(&mut cpu), Exit::Halt);
        assert_eq!(cpu.mismatches(), 0);
        (cpu.reads(), errno)
    }
}

#[test]
fn a_vm_of_any_choice_has_memory_up_to_its_last_frame_and_no_further() {
    for (pa_range, pa_bits) in [(0, 32), (1, 36), (2, 40), (3, 42), (4, 44), (5, 48)] {
        for fwb in [0, 1] {
            let choice = ArmFeatures::new(pa_range, 0, fwb << 40).choose(pa_bits).unwrap();
            assert_eq!(choice.ipa().bits(), pa_bits);
            assert_eq!(choice.with(Guest { ipa_bits: pa_bits }), (4, 22), "{choice:?}");
        }
    }
}
