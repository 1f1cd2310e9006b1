//! vCPUs that use everything.

use mayfly_machine::{Cpu, Instruction, MachineVcpu, Program};
use mayfly_vm::{Exit, Guest};

use crate::random::Random;
use crate::tally::What;
use crate::{Storm, devices, memory};

/// Runs short programs on vCPUs numbered `id`, one after another, until the storm is over.
pub(crate) fn live(storm: &Storm, id: u32, random: &mut Random) {
    let mut cpu = storm.machine.cpu(Program::new());
    while !storm.tally.is_over() {
        let mut vcpu = storm.vm.create_vcpu(id).unwrap();
        storm.tally.add(What::VcpuCreated, 1);
        for _ in 0..random.below(8) {
            cpu.load(program(id, random));
            run(storm, &mut vcpu, &mut cpu);
        }
    }
}

fn run(storm: &Storm, vcpu: &mut MachineVcpu, cpu: &mut Cpu) {
    loop {
        match vcpu.run(cpu) {
            Exit::Halt => break,
            Exit::Kicked => storm.tally.add(What::Kicked, 1),
            Exit::Mmio(access) => {
                storm.tally.add(What::Exited, 1);
                if !access.write {
                    let value = memory::value_at(access.gpa).to_le_bytes();
                    let data = cpu.data();
                    data.copy_from_slice(&value[..data.len()]);
                }
                cpu.answered();
            }
            exit => panic!("the programs give no cause for {exit:?}"),
        }
    }
    assert_eq!(cpu.mismatches(), 0, "memory is not what it should be");
    storm.tally.add(What::WordVerified, cpu.reads());
}

fn program(id: u32, random: &mut Random) -> Program {
    let (mine, len) = memory::private(id);
    let value = random.next();
    let mut program = vec![Instruction::Touch { gpa: mine, len, value }];
    for _ in 0..random.below(32) {
        program.push(instruction(random));
    }
    program.push(Instruction::Verify { gpa: mine, len, value });
    program
}

fn instruction(random: &mut Random) -> Instruction {
    match random.below(5) {
        0 => {
            let (gpa, len, value) = memory::part(random);
            Instruction::Touch { gpa, len, value }
        }
        1 => {
            let (gpa, len, value) = memory::part(random);
            Instruction::Verify { gpa, len, value }
        }
        2 => {
            let (gpa, value) = devices::target(random);
            Instruction::WriteMmio { gpa, len: 4, value }
        }
        3 => Instruction::ReadMmio { gpa: devices::target(random).0, len: 4 },
        _ => Instruction::Spin { loops: random.below(100) as u32 },
    }
}
