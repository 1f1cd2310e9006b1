//! VMs that live and die beside the storm's.

use std::sync::Arc;

use mayfly_machine::{CpuThread, Instruction, MachineVm, Program, Running, VmOptions};
use mayfly_memslot::{Gpa, Region, SlotId};
use mayfly_vm::{Bus, Exit};

use crate::Storm;
use crate::devices::{Mortal, range};
use crate::random::Random;
use crate::tally::What;

const VCPUS: u32 = 2;
const DEVICES: u64 = 4;
const SIZE: u64 = 0x1_0000;

/// Lets one VM after another live, until the storm is over.
pub(crate) fn live_and_die(storm: &Storm, random: &mut Random) {
    let threads: Vec<_> = (0..VCPUS).map(|_| CpuThread::spawn().unwrap()).collect();
    while !storm.tally.is_over() {
        live(storm, &threads, random);
        storm.tally.add(What::VmLived, 1);
    }
}

fn live(storm: &Storm, threads: &[CpuThread], random: &mut Random) {
    let vm = storm
        .machine
        .create_vm_with(VmOptions { pace: storm.pace, ..VmOptions::default() })
        .unwrap();
    let memory = storm.machine.map(SIZE).unwrap();
    let slot = memory.region(SlotId::main(0), Gpa::new(0));
    let devices: Vec<_> = (0..DEVICES).map(|_| Mortal::new(&storm.tally)).collect();
    if random.once_in(2) {
        vm.set_memory_region(&slot).unwrap();
        register(&vm, &devices);
    } else {
        register(&vm, &devices);
        vm.set_memory_region(&slot).unwrap();
    }
    let start = |(id, thread): (u32, &CpuThread)| {
        thread.run(vm.create_vcpu(id).unwrap(), storm.machine.cpu(forever(id)))
    };
    let running: Vec<_> = (0..).zip(threads).map(start).collect();
    // It may die before its guests have begun, or after they have used everything, or when something is missing
    // already.
    if random.once_in(2) {
        while devices.iter().any(|device| device.calls() == 0) {
            std::thread::yield_now();
        }
        if random.once_in(2) {
            let gone = random.below(DEVICES);
            drop(vm.unregister_device(Bus::Mmio, range(gone)).unwrap());
            devices[gone as usize].give_back();
        }
        if random.once_in(2) {
            vm.set_memory_region(&Region { size: 0, ..slot }).unwrap();
        }
    }
    vm.destroy();
    for stopped in running.into_iter().map(Running::wait) {
        assert!(matches!(stopped.exit, Exit::Kicked | Exit::Mmio(_)), "{:?}", stopped.exit);
        assert_eq!(stopped.cpu.mismatches(), 0);
    }
    for device in devices {
        assert_eq!(Arc::strong_count(&device), 1, "the VM has freed everything");
    }
    // Unmapped here, when VM and vCPUs are gone.
    drop(memory);
}

fn register(vm: &MachineVm, devices: &[Arc<Mortal>]) {
    for (place, device) in (0..).zip(devices) {
        vm.register_device(Bus::Mmio, range(place), device.clone()).unwrap();
    }
}

/// Uses its part of the memory, and every device, again and again.
fn forever(id: u32) -> Program {
    let len = SIZE / u64::from(VCPUS);
    let (gpa, value) = (Gpa::new(u64::from(id) * len), u64::from(id) + 1);
    let mut program =
        vec![Instruction::Touch { gpa, len, value }, Instruction::Verify { gpa, len, value }];
    program.extend((0..DEVICES).map(|place| {
        let gpa = Gpa::new(range(place).start);
        Instruction::WriteMmio { gpa, len: 4, value }
    }));
    program.push(Instruction::Jump(0));
    program
}
