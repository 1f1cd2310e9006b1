//! A guest that only an interrupt brings out: no slice of its time ends, and nothing that it does is an exit.

#[path = "common/out.rs"]
mod out;

use mayfly_machine::{CpuThread, HostMemory, Instruction, LeftOut, Machine, Processors, Rigour};
use mayfly_memslot::{Gpa, PAGE_SIZE, SlotId};
use mayfly_stage2::Arm;
use mayfly_vm::Exit;

use out::Out;

/// Where the guest says that it is there, and, in the same page, waits to be let go.
const HERE: Gpa = Gpa::new(0);
const GO: Gpa = Gpa::new(8);

/// A vCPU is kicked in the middle of its guest, which is then told to end. Returns which of the two it comes out by.
fn kicked(left_out: LeftOut, rigour: Rigour) -> Exit {
    let processors = Processors { slice: None, ..Processors::default() };
    let machine = Machine::<Arm<40>>::with_processors(1 << 12, processors).unwrap();
    machine.hardware().set_rigour(rigour);
    let vm = machine.create_vm().unwrap();
    let memory: HostMemory = machine.map(PAGE_SIZE).unwrap();
    vm.set_memory_region(&memory.region(SlotId::main(0), HERE)).unwrap();
    let thread = CpuThread::spawn().unwrap();
    let _out = Out::of(&vm);
    let program = vec![
        Instruction::Touch { gpa: HERE, len: 1, value: 1 },
        Instruction::WaitFor { gpa: GO, value: 1 },
    ];
    let mut running = thread.run(vm.create_vcpu(0).unwrap(), machine.cpu(program));
    while memory.read_u64(HERE.get()) == 0 {
        assert!(!running.has_come_out());
        std::thread::yield_now();
    }
    machine.hardware().tlbs().leave_out(left_out);
    assert!(vm.kick(0));
    // What is pending by now comes before what the guest reads from here on.
    memory.write_u64(GO.get(), 1);
    running.wait().exit
}

#[test]
fn a_kick_interrupts_and_without_the_interrupt_nobody_hears_of_it() {
    let all = Rigour::all();
    assert_eq!(kicked(LeftOut::Nothing, all), Exit::Kicked);
    assert_eq!(kicked(LeftOut::Interrupt, all), Exit::Halt);
    // A guest that looks finds it all the same.
    assert_eq!(kicked(LeftOut::Interrupt, all - Rigour::NEEDS_INTERRUPTS), Exit::Kicked);
}
