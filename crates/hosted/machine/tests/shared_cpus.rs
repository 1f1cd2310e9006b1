//! More vCPUs than CPUs: what one vCPU leaves in a TLB, another meets there.

#[path = "common/out.rs"]
mod out;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mayfly_machine::{
    CpuThread, HostMemory, Instruction, LeftOut, Machine, MachineVm, Processors, Program, Rigour,
};
use mayfly_memslot::{Gpa, Hva, PAGE_SIZE, SlotId};
use mayfly_stage2::{Arm, Ept, Format, Sv39x4};
use mayfly_vm::Exit;

use out::Out;

const FRAMES: usize = 1 << 13;
const VMS: u64 = 2;
const VCPUS: u64 = 4;

/// Pages of one vCPU.
const PAGES: u64 = 4;

/// Where the pages of vCPU `id` are.
fn range(id: u64) -> (Gpa, u64) {
    (Gpa::new(id * PAGES * PAGE_SIZE), PAGES * PAGE_SIZE)
}

fn vm_with_memory<F: Format>(machine: &Machine<F>) -> (MachineVm<F>, HostMemory) {
    let vm = machine.create_vm().unwrap();
    let memory = machine.map(VCPUS * PAGES * PAGE_SIZE).unwrap();
    vm.set_memory_region(&memory.region(SlotId::main(0), Gpa::new(0))).unwrap();
    (vm, memory)
}

/// Two VMs have `VCPUS` vCPUs each, which never come out by themselves, on two CPUs, while the host takes their pages
/// away again and again. Returns how often a CPU has flushed on account of another vCPU.
fn eight_vcpus_on_two_cpus<F: Format>() -> u64 {
    let machine = Machine::<F>::with_processors(FRAMES, Processors::shared(2)).unwrap();
    let vms: Vec<_> = (0..VMS).map(|_| vm_with_memory(&machine)).collect();
    let mut running = Vec::new();
    let out: Vec<_> = vms.iter().map(|(vm, _)| Out::of(vm)).collect();
    for (value, (vm, _)) in (1..).zip(&vms) {
        for id in 0..VCPUS {
            let (gpa, len) = range(id);
            let value = value * 100 + id;
            let program = vec![
                Instruction::Touch { gpa, len, value },
                Instruction::Spin { loops: 20 },
                Instruction::Verify { gpa, len, value },
                Instruction::Jump(0),
            ];
            let vcpu = vm.create_vcpu(id as u32).unwrap();
            let thread = CpuThread::spawn().unwrap();
            running.push((thread.run(vcpu, machine.cpu(program)), thread));
        }
    }
    let tlbs = Arc::clone(machine.hardware().tlbs());
    // One that comes out by itself has panicked: then the others are brought out too.
    let mut stay = true;
    while stay && tlbs.cpu_counts().entries < 3000 {
        for (_, memory) in &vms {
            for page in (0..memory.size()).step_by(PAGE_SIZE as usize) {
                machine.space().reclaim(Hva::new(memory.hva().get() + page));
            }
        }
        stay = vms.iter().all(|(vm, _)| vm.vcpu_count() == VCPUS as usize);
    }
    // Each while others have the CPU that it waits for.
    for (vm, _) in &vms {
        (0..VCPUS).for_each(|id| assert!(vm.kick(id as u32) || !stay));
    }
    for (running, thread) in running {
        let stopped = running.wait();
        assert_eq!((stopped.exit, stopped.cpu.mismatches()), (Exit::Kicked, 0));
        assert!(stopped.cpu.reads() > 0, "one that never had its turn");
        drop((stopped, thread));
    }
    drop(out);
    for (vm, _) in vms {
        vm.destroy();
    }
    drop(machine);
    assert_eq!(tlbs.counts().named_when_gone, 0);
    tlbs.cpu_counts().flushed
}

#[test]
fn eight_vcpus_of_two_vms_share_two_cpus_on_arm() {
    assert!(eight_vcpus_on_two_cpus::<Arm<40>>() > 300);
}

#[test]
fn eight_vcpus_of_two_vms_share_two_cpus_on_risc_v() {
    assert!(eight_vcpus_on_two_cpus::<Sv39x4>() > 300);
}

/// A VPID for each vCPU tells them apart.
#[test]
fn eight_vcpus_of_two_vms_share_two_cpus_with_ept() {
    assert_eq!(eight_vcpus_on_two_cpus::<Ept>(), 0);
}

/// Runs vCPU A0, one of another VM, and A1, in this order, on one CPU. Returns what the last has flushed there.
fn one_after_the_other<F: Format>(left_out: LeftOut) -> u64 {
    let machine = Machine::<F>::with_processors(FRAMES, Processors::shared(1)).unwrap();
    let [a, b] = [(); 2].map(|()| vm_with_memory(&machine));
    machine.hardware().tlbs().leave_out(left_out);
    let runs = [(&a, 0), (&b, 0), (&a, 1)];
    let vcpus = runs.map(|(vm, id)| {
        let mut vcpu = vm.0.create_vcpu(id).unwrap();
        let (gpa, len) = range(0);
        let before = machine.hardware().tlbs().cpu_counts().flushed;
        let program = vec![Instruction::Touch { gpa, len, value: 1 }];
        assert_eq!(vcpu.run(&mut machine.cpu(program)), Exit::Halt);
        (machine.hardware().tlbs().cpu_counts().flushed - before, vcpu)
    });
    vcpus[2].0
}

#[test]
fn what_a_vcpu_left_before_that_of_another_vm_came_is_flushed_for_the_next_of_its_own() {
    assert_eq!(one_after_the_other::<Arm<40>>(LeftOut::Nothing), 1);
    assert_eq!(one_after_the_other::<Sv39x4>(LeftOut::Nothing), 1);
    assert_eq!(one_after_the_other::<Ept>(LeftOut::Nothing), 0);
}

#[test]
fn who_leaves_the_flush_out_is_found_out_but_with_ept() {
    fn panics<F: Format>() -> bool {
        let run = || one_after_the_other::<F>(LeftOut::Flush);
        catch_unwind(AssertUnwindSafe(run)).is_err_and(|said| {
            said.downcast_ref::<String>().is_some_and(|said| said.contains("met unflushed"))
        })
    }
    assert!(panics::<Arm<40>>());
    assert!(panics::<Sv39x4>());
    assert!(!panics::<Ept>());
}

/// VMs come and go, of which there are more than VMIDs, on two CPUs; some stay. Each finds what it wrote, though the
/// CPUs walk, out of guests, from what their base registers name.
fn vms_come_and_go<F: Format>() {
    let processors = Processors { vmid_bits: 2, ..Processors::shared(2) };
    let machine = Machine::<F>::with_processors(FRAMES, processors).unwrap();
    machine.hardware().set_rigour(Rigour::all());
    let tlbs = Arc::clone(machine.hardware().tlbs());
    let run = |vm: &MachineVm<F>, program: Program| {
        let mut cpu = machine.cpu(program);
        let exit = vm.create_vcpu(0).unwrap().run(&mut cpu);
        assert_eq!((exit, cpu.mismatches()), (Exit::Halt, 0));
    };
    let (gpa, len) = range(0);
    let mut vms = VecDeque::new();
    for value in 1..40 {
        let (vm, memory) = vm_with_memory(&machine);
        // To the other CPU in between.
        let program = vec![
            Instruction::Touch { gpa, len, value },
            Instruction::Spin { loops: 300 },
            Instruction::Verify { gpa, len, value },
        ];
        run(&vm, program);
        vms.push_back((vm, memory, value));
        for (vm, _, value) in &vms {
            run(vm, vec![Instruction::Verify { gpa, len, value: *value }]);
        }
        if vms.len() == 4 {
            let (vm, memory, _) = vms.pop_front().unwrap();
            vm.destroy();
            drop(memory);
        }
    }
    assert!(machine.vmids().rollovers() > 0, "there were VMIDs for all");
    assert!(tlbs.cpu_counts().walks_outside > 0);
    for (vm, ..) in vms {
        vm.destroy();
    }
    drop(machine);
    assert_eq!(tlbs.counts().named_when_gone, 0, "a CPU still names a root that is freed");
}

#[test]
fn no_cpu_names_a_root_that_is_gone_on_arm() {
    vms_come_and_go::<Arm<40>>();
}

#[test]
fn no_cpu_names_a_root_that_is_gone_on_risc_v() {
    vms_come_and_go::<Sv39x4>();
}
