//! A VM's life on the software machine: real threads, real memory.

#[path = "common/out.rs"]
mod out;

use std::sync::Arc;

use mayfly_iobus::{IoRange, Ioeventfd};
use mayfly_machine::{
    Cpu, CpuThread, GuestBarrier, HostMemory, Instruction, Machine, MachineVm, Register, Signal,
};
use mayfly_memslot::{AddressSpace, Flags, Gfn, Gpa, Hva, Region, SlotId};
use mayfly_vm::{Access, AccessKind, Bus, Exit};

use out::Out;

const RAM: u64 = 0;
const DEVICE: u64 = 0xd000_0000;

fn region(index: u16, gpa: u64, memory: &HostMemory) -> Region<Hva> {
    memory.region(SlotId::main(index), Gpa::new(gpa))
}

fn vm_with_memory(machine: &Machine) -> (MachineVm, HostMemory) {
    let vm = machine.create_vm().unwrap();
    let memory = machine.map(1 << 20).unwrap();
    vm.set_memory_region(&region(0, RAM, &memory)).unwrap();
    (vm, memory)
}

fn run(machine: &Machine, vm: &MachineVm, program: Vec<Instruction>) -> (Exit, Cpu) {
    let mut cpu = machine.cpu(program);
    let exit = vm.create_vcpu(0).unwrap().run(&mut cpu);
    (exit, cpu)
}

#[test]
fn what_a_guest_writes_is_in_the_host_memory_behind_its_slot() {
    let machine = Machine::new().unwrap();
    let (vm, memory) = vm_with_memory(&machine);
    let touch = Instruction::Touch { gpa: Gpa::new(RAM + 8), len: 1 << 20, value: 5 };
    let (exit, _) = run(&machine, &vm, vec![touch]);
    // The range ends past the slot; the last word that is written does not.
    assert_eq!(exit, Exit::Halt);
    for page in 0..256 {
        assert_eq!(memory.read_u64(page * 4096 + 8), 5);
    }
}

#[test]
fn a_guest_reads_what_the_host_wrote_and_counts_what_differs() {
    let machine = Machine::new().unwrap();
    let (vm, memory) = vm_with_memory(&machine);
    for page in 0..256 {
        memory.write_u64(page * 4096, 9);
    }
    memory.write_u64(3 * 4096, 1);
    let verify = Instruction::Verify { gpa: Gpa::new(RAM), len: 1 << 20, value: 9 };
    let (_, cpu) = run(&machine, &vm, vec![verify]);
    assert_eq!((cpu.reads(), cpu.mismatches()), (256, 1));
}

#[test]
fn a_device_answers_its_range_and_nothing_beyond_it() {
    let machine = Machine::new().unwrap();
    let (vm, _memory) = vm_with_memory(&machine);
    let register = Arc::new(Register::default());
    let range = IoRange { start: DEVICE, len: 8 };
    vm.register_device(Bus::Mmio, range, register.clone()).unwrap();
    let write = |gpa, len| Instruction::WriteMmio { gpa: Gpa::new(gpa), len, value: 0x1234 };
    let read = Instruction::ReadMmio { gpa: Gpa::new(DEVICE), len: 2 };
    let (exit, cpu) = run(&machine, &vm, vec![write(DEVICE, 8), read, write(DEVICE + 6, 4)]);
    let spanning = Access::data(Gpa::new(DEVICE + 6), 4, true);
    assert_eq!(exit, Exit::Mmio(spanning));
    assert_eq!(cpu.last_read(), 0x1234);
    assert_eq!(register.accesses(), 2);
    assert_eq!(vm.unregister_device(Bus::Mmio, range).unwrap().accesses_of(&register), 2);
    let (exit, _) = run(&machine, &vm, vec![write(DEVICE, 8)]);
    assert!(matches!(exit, Exit::Mmio(_)));
}

trait AccessesOf {
    fn accesses_of(&self, register: &Arc<Register>) -> u64;
}

impl AccessesOf for mayfly_machine::AnyDevice {
    fn accesses_of(&self, register: &Arc<Register>) -> u64 {
        assert_eq!(Arc::as_ptr(self).cast::<()>(), Arc::as_ptr(register).cast::<()>());
        register.accesses()
    }
}

#[test]
fn an_exit_that_the_caller_answers_goes_on_behind_the_access() {
    use mayfly_vm::Guest;
    let machine = Machine::new().unwrap();
    let (vm, memory) = vm_with_memory(&machine);
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let mut cpu = machine.cpu(vec![
        Instruction::ReadMmio { gpa: Gpa::new(DEVICE), len: 4 },
        Instruction::Touch { gpa: Gpa::new(RAM), len: 4096, value: 3 },
    ]);
    assert!(matches!(vcpu.run(&mut cpu), Exit::Mmio(Access { len: 4, write: false, .. })));
    // Who does not answer has it come out again.
    assert!(matches!(vcpu.run(&mut cpu), Exit::Mmio(Access { len: 4, write: false, .. })));
    cpu.data().copy_from_slice(&[1, 0, 0, 0]);
    cpu.answered();
    assert_eq!(cpu.last_read(), 1);
    assert_eq!(vcpu.run(&mut cpu), Exit::Halt);
    assert_eq!(memory.read_u64(0), 3);
}

#[test]
fn an_access_over_two_pages_of_memory_loses_nothing_and_one_over_a_hole_changes_nothing() {
    let machine = Machine::new().unwrap();
    let vm = machine.create_vm().unwrap();
    let memory = machine.map(0x2000).unwrap();
    vm.set_memory_region(&region(0, 0x1000, &memory)).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let value = 0x1122_3344_5566_7788;
    let touch = |gpa| Instruction::Touch { gpa: Gpa::new(gpa), len: 8, value };
    let verify = |gpa, value| Instruction::Verify { gpa: Gpa::new(gpa), len: 8, value };

    let mut cpu = machine.cpu(vec![touch(0x1ffb), verify(0x1ffb, value)]);
    assert_eq!((vcpu.run(&mut cpu), cpu.mismatches()), (Exit::Halt, 0));
    assert_eq!(memory.read_u64(0xff8), value << 24);
    assert_eq!(memory.read_u64(0x1000), value >> 40);

    let unbacked = |gpa, len, kind, write| {
        Exit::Unbacked(Access { kind, ..Access::data(Gpa::new(gpa), len, write) })
    };
    // Memory, then a hole, which begins in the middle of the access; a hole, then memory.
    let cases = [(0x2ffc, 0x3000, 4, AccessKind::Opaque), (0xffc, 0xffc, 8, AccessKind::Data)];
    for (gpa, at, len, kind) in cases {
        cpu.load(vec![touch(gpa), Instruction::Verify { gpa: Gpa::new(gpa), len: 8, value }]);
        for write in [true, false] {
            assert_eq!(vcpu.run(&mut cpu), unbacked(at, len, kind, write));
            cpu.abort();
        }
        assert_eq!((vcpu.run(&mut cpu), cpu.aborts(), cpu.reads()), (Exit::Halt, 2, 0));
    }
    assert_eq!((memory.read_u64(0x1ff8), memory.read_u64(0)), (0, 0), "nothing was written");
}

#[test]
fn whole_lines_are_written_and_read_of_every_page() {
    let machine = Machine::new().unwrap();
    let vm = machine.create_vm().unwrap();
    let memory = machine.map(0x3000).unwrap();
    vm.set_memory_region(&region(0, RAM, &memory)).unwrap();
    let (gpa, len, value) = (Gpa::new(RAM), 0x2000, 7);
    let verify = Instruction::VerifyLines { gpa, len, value };
    let program = vec![Instruction::TouchLines { gpa, len, value }, verify.clone()];
    let (exit, cpu) = run(&machine, &vm, program);
    assert_eq!((exit, cpu.reads(), cpu.mismatches()), (Exit::Halt, 128, 0));
    for word in (0..0x3000).step_by(8) {
        let expected = if word < 0x2000 && word % 64 == 0 { value } else { 0 };
        assert_eq!(memory.read_u64(word), expected, "{word:#x}");
    }
    memory.write_u64(0x1040, 9);
    let (_, cpu) = run(&machine, &vm, vec![verify]);
    let first = cpu.first_mismatch().map(|first| (first.gpa, first.read));
    assert_eq!((cpu.mismatches(), first), (1, Some((Gpa::new(RAM + 0x1040), 9))));
}

/// What follows a page in the host's memory is another's, whoever's.
#[test]
fn lines_that_begin_within_a_page_end_with_it() {
    let machine = Machine::new().unwrap();
    let (vm, memory) = vm_with_memory(&machine);
    let (start, len) = (Gpa::new(RAM), 1 << 20);
    run(&machine, &vm, vec![Instruction::Touch { gpa: start, len, value: 5 }]);
    let gpa = Gpa::new(RAM + 128);
    let program = vec![
        Instruction::TouchLines { gpa, len, value: 6 },
        Instruction::VerifyLines { gpa, len, value: 6 },
    ];
    let mut cpu = machine.cpu(program);
    assert_eq!(vm.create_vcpu(1).unwrap().run(&mut cpu), Exit::Halt);
    assert_eq!((cpu.reads(), cpu.mismatches()), (256 * 62, 0));
    for page in 0..256 {
        let words = [0, 64, 128, 4032].map(|offset| memory.read_u64(page * 4096 + offset));
        assert_eq!(words, [5, 0, 6, 6], "page {page}");
    }
}

#[test]
fn a_fetch_finds_memory_and_no_device() {
    let machine = Machine::new().unwrap();
    let (vm, _memory) = vm_with_memory(&machine);
    let range = IoRange { start: DEVICE, len: 8 };
    let register = Arc::new(Register::default());
    vm.register_device(Bus::Mmio, range, register.clone()).unwrap();
    let fetch = |gpa| Instruction::Fetch { gpa: Gpa::new(gpa) };
    let (exit, _) = run(&machine, &vm, vec![fetch(RAM), fetch(DEVICE)]);
    let kind = AccessKind::Fetch;
    let access = Access { kind, ..Access::data(Gpa::new(DEVICE), 8, false) };
    assert_eq!((exit, register.accesses()), (Exit::Unbacked(access), 0));
}

#[test]
fn an_ioeventfd_is_signalled_by_the_writes_that_match_it() {
    let machine = Machine::new().unwrap();
    let (vm, _memory) = vm_with_memory(&machine);
    let signal = Arc::new(Signal::default());
    let on = Ioeventfd { address: DEVICE, len: 4, datamatch: Some(7) };
    vm.register_eventfd(Bus::Mmio, on, signal.clone()).unwrap();
    let write = |value| Instruction::WriteMmio { gpa: Gpa::new(DEVICE), len: 4, value };
    let (exit, _) = run(&machine, &vm, vec![write(7), write(7), write(8)]);
    assert!(matches!(exit, Exit::Mmio(_)));
    assert_eq!((signal.take(), signal.take()), (2, 0));
}

#[test]
fn a_write_to_a_read_only_slot_is_an_exit_and_changes_nothing() {
    let machine = Machine::new().unwrap();
    let vm = machine.create_vm().unwrap();
    let memory = machine.map(4096).unwrap();
    vm.set_memory_region(&Region { flags: Flags::READONLY, ..region(0, RAM, &memory) }).unwrap();
    let (exit, _) =
        run(&machine, &vm, vec![Instruction::Touch { gpa: Gpa::new(RAM), len: 4096, value: 1 }]);
    assert_eq!(exit, Exit::Mmio(Access::data(Gpa::new(RAM), 8, true)));
    assert_eq!(memory.read_u64(0), 0);
    let (exit, cpu) =
        run(&machine, &vm, vec![Instruction::Verify { gpa: Gpa::new(RAM), len: 4096, value: 0 }]);
    assert_eq!((exit, cpu.reads(), cpu.mismatches()), (Exit::Halt, 1, 0));
}

#[test]
fn the_dirty_log_has_the_pages_that_the_guest_wrote() {
    let machine = Machine::new().unwrap();
    let vm = machine.create_vm().unwrap();
    let memory = machine.map(64 * 4096).unwrap();
    let logged = Region { flags: Flags::LOG_DIRTY_PAGES, ..region(0, RAM, &memory) };
    vm.set_memory_region(&logged).unwrap();
    let touch = |page: u64, pages: u64| Instruction::Touch {
        gpa: Gpa::new(page * 4096),
        len: pages * 4096,
        value: 1,
    };
    let verify = Instruction::Verify { gpa: Gpa::new(0), len: 64 * 4096, value: 0 };
    run(&machine, &vm, vec![touch(3, 2), touch(63, 1), verify]);
    let section = vm.srcu().read_lock();
    let slot = vm.slots().load(AddressSpace::Main, &section).find(Gfn::new(0)).unwrap();
    let mut log = [0];
    slot.dirty().unwrap().harvest(0, &mut log);
    assert_eq!(log, [1 << 63 | 0b11 << 3]);
}

#[test]
fn vcpus_meet_at_a_barrier_and_see_each_others_writes() {
    let machine = Machine::new().unwrap();
    let (vm, _memory) = vm_with_memory(&machine);
    let barrier = Arc::new(GuestBarrier::new(3));
    let threads: Vec<_> = (0..3).map(|_| CpuThread::spawn().unwrap()).collect();
    let _out = Out::of(&vm);
    let running: Vec<_> = (0..3_u64)
        .map(|id| {
            let mine = Gpa::new(id * 0x1_0000);
            let next = Gpa::new((id + 1) % 3 * 0x1_0000);
            let cpu = machine.cpu(vec![
                Instruction::Touch { gpa: mine, len: 0x1_0000, value: 6 },
                Instruction::Barrier(barrier.clone()),
                Instruction::Verify { gpa: next, len: 0x1_0000, value: 6 },
                Instruction::Barrier(barrier.clone()),
                Instruction::Spin { loops: 10 },
            ]);
            let vcpu = vm.create_vcpu(u32::try_from(id).unwrap()).unwrap();
            threads[usize::try_from(id).unwrap()].run(vcpu, cpu)
        })
        .collect();
    for stopped in running.into_iter().map(mayfly_machine::Running::wait) {
        assert_eq!(stopped.exit, Exit::Halt);
        assert_eq!((stopped.cpu.reads(), stopped.cpu.mismatches()), (16, 0));
    }
}

#[test]
fn a_kick_brings_a_vcpu_out_of_a_guest_that_never_leaves() {
    let machine = Machine::new().unwrap();
    let (vm, _memory) = vm_with_memory(&machine);
    let thread = CpuThread::spawn().unwrap();
    let _out = Out::of(&vm);
    let forever = vec![Instruction::Spin { loops: 1000 }, Instruction::Jump(0)];
    let running = thread.run(vm.create_vcpu(5).unwrap(), machine.cpu(forever.clone()));
    assert!(vm.kick(5));
    assert!(!vm.kick(6));
    let stopped = running.wait();
    assert_eq!(stopped.exit, Exit::Kicked);

    let running = thread.run(stopped.vcpu, stopped.cpu);
    vm.destroy();
    let mut stopped = running.wait();
    assert_eq!(stopped.exit, Exit::Kicked);
    assert_eq!(stopped.vcpu.run(&mut stopped.cpu), Exit::Kicked, "a destroyed VM is not entered");
}

#[test]
fn a_guest_that_was_told_of_a_device_through_its_memory_finds_it() {
    let machine = Machine::new().unwrap();
    let (vm, memory) = vm_with_memory(&machine);
    let thread = CpuThread::spawn().unwrap();
    let _out = Out::of(&vm);
    let rounds = 500;
    let program = (1..=rounds)
        .flat_map(|round| {
            [
                Instruction::WaitFor { gpa: Gpa::new(RAM), value: round },
                Instruction::WriteMmio { gpa: Gpa::new(DEVICE + round * 8), len: 8, value: round },
            ]
        })
        .collect();
    let mut running = thread.run(vm.create_vcpu(0).unwrap(), machine.cpu(program));
    for round in 1..=rounds {
        let register = Arc::new(Register::default());
        let range = IoRange { start: DEVICE + round * 8, len: 8 };
        vm.register_device(Bus::Mmio, range, register.clone()).unwrap();
        memory.write_u64(RAM, round);
        while register.accesses() == 0 {
            assert!(!running.has_come_out() || register.accesses() > 0, "{round}");
            std::thread::yield_now();
        }
        vm.unregister_device(Bus::Mmio, range).unwrap();
        assert_eq!(register.value(), round);
        assert_eq!(Arc::strong_count(&register), 1, "the bus has let go of it");
    }
    assert_eq!(running.wait().exit, Exit::Halt, "no access was taken for an exit");
}

#[test]
fn memory_can_be_unmapped_as_soon_as_its_slot_is_deleted_though_a_vcpu_keeps_using_it() {
    let machine = Machine::new().unwrap();
    let vm = machine.create_vm().unwrap();
    let thread = CpuThread::spawn().unwrap();
    let _out = Out::of(&vm);
    let mut vcpu = vm.create_vcpu(0).unwrap();
    for round in 0..200 {
        let memory = machine.map(16 * 4096).unwrap();
        let here = region(0, RAM, &memory);
        vm.set_memory_region(&here).unwrap();
        let touch = Instruction::Touch { gpa: Gpa::new(RAM), len: 16 * 4096, value: round };
        let running = thread.run(vcpu, machine.cpu(vec![touch, Instruction::Jump(0)]));
        vm.set_memory_region(&Region { size: 0, ..here }).unwrap();
        drop(memory);
        let stopped = running.wait();
        assert!(matches!(stopped.exit, Exit::Mmio(Access { write: true, .. })));
        vcpu = stopped.vcpu;
    }
}

#[test]
fn a_vcpu_is_known_by_its_number_while_it_lives() {
    let machine = Machine::new().unwrap();
    let vm = machine.create_vm().unwrap();
    let first = vm.create_vcpu(1).unwrap();
    assert_eq!(vm.create_vcpu(1).unwrap_err().errno(), 17);
    assert_eq!(vm.create_vcpu(4096).unwrap_err().errno(), 22);
    assert_eq!(vm.vcpu_count(), 1);
    drop(first);
    assert_eq!(vm.vcpu_count(), 0);
    vm.create_vcpu(1).unwrap();
}

#[test]
fn what_a_vm_deferred_is_freed_after_it_was_destroyed() {
    let machine = Machine::new().unwrap();
    let vm = machine.create_vm().unwrap();
    let register = Arc::new(Register::default());
    for i in 0..20 {
        let range = IoRange { start: DEVICE + i * 8, len: 8 };
        vm.register_device(Bus::Mmio, range, register.clone()).unwrap();
    }
    let vcpu = vm.create_vcpu(0).unwrap();
    let srcu = vm.srcu().clone();
    vm.destroy();
    assert_eq!(Arc::strong_count(&register), 21, "the vCPU keeps its VM");
    drop(vcpu);
    assert_eq!(Arc::strong_count(&register), 1);
    srcu.barrier();
    assert_eq!(srcu.stats().deferred, 0);
}
