//! Guests that execute what the host has put into a frame that was executed from before.

use mayfly_machine::cache::{LineCounts, Lines};
use mayfly_machine::scenario::{ForcedFormat, TableFormat};
use mayfly_machine::{Cpu, Instruction, Machine, MachineVcpu, VmOptions};
use mayfly_memslot::{Gpa, SlotId};
use mayfly_platform::Op;
use mayfly_platform::address::PAGE_SIZE;
use mayfly_platform::cache::{CacheCapabilities, InstructionCaches};
use mayfly_stage2::Format;
use mayfly_vm::{Caches, Error, Exit};

const KINDS: [InstructionCaches; 3] =
    [InstructionCaches::Coherent, InstructionCaches::Physical, InstructionCaches::Virtual];

fn machine<F: Format>(instructions: InstructionCaches) -> Machine<F> {
    let capabilities = CacheCapabilities { instructions, fgt: false };
    Machine::with_caches(1 << 10, Lines::Modelled, capabilities).unwrap()
}

/// What is fetched from the first page.
fn fetch<F: Format>(vcpu: &mut MachineVcpu<F>, cpu: &mut Cpu<F>) -> u64 {
    cpu.load(vec![Instruction::Fetch { gpa: Gpa::new(0) }]);
    assert_eq!(vcpu.run(cpu), Exit::Halt);
    cpu.last_read()
}

/// What a guest executes of a page with 1 in it, and again when the page was swapped out and another has its frame, with
/// 2 in it; and what was dropped from instruction caches, as the machine and as the core counts it.
fn executes<F: Format>(instructions: InstructionCaches, caches: Caches) -> ([u64; 2], Dropped) {
    let machine = machine::<F>(instructions);
    let vm = machine.create_vm_with(VmOptions { caches, ..VmOptions::default() }).unwrap();
    let memory = machine.map(PAGE_SIZE).unwrap();
    vm.set_memory_region(&memory.region(SlotId::main(0), Gpa::new(0))).unwrap();
    let (mut vcpu, mut cpu) = (vm.create_vcpu(0).unwrap(), machine.cpu(Vec::new()));
    cpu.turn_caches_off();
    let frame = || machine.space().resolve(memory.hva(), false).unwrap().pfn;
    memory.write_u64(0, 1);
    let (first, was) = (fetch(&mut vcpu, &mut cpu), frame());
    assert!(machine.space().reclaim(memory.hva()));
    memory.write_u64(0, 2);
    assert_eq!(frame(), was, "who is given a frame has the one that was given back last");
    let second = fetch(&mut vcpu, &mut cpu);
    let LineCounts { fetched, emptied, .. } = machine.cache().lines();
    let charged = |op| machine.hardware().charged(op);
    let dropped = Dropped {
        lines: fetched,
        everything: emptied,
        charged: [charged(Op::InstructionsForgotten(0)), charged(Op::AllInstructionsForgotten)],
    };
    ([first, second], dropped)
}

#[derive(Debug, PartialEq, Eq)]
struct Dropped {
    lines: u64,
    everything: u64,
    /// Frames, and times.
    charged: [u64; 2],
}

#[test]
fn a_guest_executes_what_the_host_has_put_there_and_drops_are_by_kind() {
    for kind in KINDS {
        let (lines, everything) = match kind {
            InstructionCaches::Coherent => (0, 0),
            InstructionCaches::Physical => (2 * PAGE_SIZE / 64, 0),
            InstructionCaches::Virtual => (0, 2),
        };
        let charged = [lines * 64 / PAGE_SIZE, everything];
        let expected = ([1, 2], Dropped { lines, everything, charged });
        assert_eq!(executes::<TableFormat>(kind, Caches::Tracked), expected, "{kind:?}");
        assert_eq!(executes::<TableFormat>(kind, Caches::Reported), expected, "{kind:?}");
        assert_eq!(executes::<ForcedFormat>(kind, Caches::Tracked), expected, "{kind:?}");
    }
}

#[test]
fn a_vm_is_refused_whose_instruction_caches_nobody_would_maintain() {
    fn create<F: Format>(kind: InstructionCaches) -> Result<(), Error> {
        let options = VmOptions { caches: Caches::Coherent, ..VmOptions::default() };
        machine::<F>(kind).create_vm_with(options).map(|_| ())
    }
    for kind in KINDS {
        let expected = match kind {
            InstructionCaches::Coherent => Ok(()),
            _ => Err(Error::InstructionCaches),
        };
        // Forced write-back is about data.
        assert_eq!(create::<ForcedFormat>(kind), expected, "{kind:?}");
        assert_eq!(create::<TableFormat>(kind), expected, "{kind:?}");
    }
    let dropped = Dropped { lines: 0, everything: 0, charged: [0; 2] };
    let coherent = executes::<ForcedFormat>(InstructionCaches::Coherent, Caches::Coherent);
    assert_eq!(coherent, ([1, 2], dropped));
}

/// The page is executed, and then its frame holds something else, with nobody told.
#[test]
fn where_nobody_drops_lines_a_guest_executes_what_its_frame_said_before() {
    for kind in KINDS {
        let machine = machine::<ForcedFormat>(kind);
        let options = VmOptions { caches: Caches::Tracked, ..VmOptions::default() };
        let vm = machine.create_vm_with(options).unwrap();
        let memory = machine.map(PAGE_SIZE).unwrap();
        vm.set_memory_region(&memory.region(SlotId::main(0), Gpa::new(0))).unwrap();
        let (mut vcpu, mut cpu) = (vm.create_vcpu(0).unwrap(), machine.cpu(Vec::new()));
        memory.write_u64(0, 1);
        assert_eq!(fetch(&mut vcpu, &mut cpu), 1);
        memory.write_u64(0, 2);
        let found = if kind == InstructionCaches::Coherent { 2 } else { 1 };
        assert_eq!(fetch(&mut vcpu, &mut cpu), found, "{kind:?}");
    }
}
