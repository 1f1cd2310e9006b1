//! vCPUs that turn their caches on and off at random, and write and read as far as somebody promises what they find.
//!
//! Beside them goes a model that knows of each page only where its last value is: in both memory and caches, or in one
//! of them. It allows what has a promise, and no more: nobody reads, or writes to, the side that is behind.

use mayfly_machine::address_space::Backing;
use mayfly_machine::cache::Lines;
use mayfly_machine::scenario::TableFormat;
use mayfly_machine::{Cpu, HostMemory, Instruction, Machine, MachineVcpu, MachineVm, VmOptions};
use mayfly_memslot::{Gpa, Hva, Region, SlotId};
use mayfly_platform::cache::CacheCapabilities;
use mayfly_vm::{Caches, Exit};
use proptest::prelude::*;

const PAGES: usize = 6;
const VCPUS: usize = 3;
/// Pages lie so far apart: two to a block.
const STRIDE: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
enum Step {
    Write { vcpu: usize, page: usize },
    Read { vcpu: usize, page: usize },
    Switch { vcpu: usize },
    SetWay { vcpu: usize },
    Reset { vcpu: usize },
    Migrate { page: usize },
    Reclaim { page: usize },
    MoveSlot,
}

fn step() -> impl Strategy<Value = Step> {
    let (vcpu, page) = (0..VCPUS, 0..PAGES);
    prop_oneof![
        8 => (vcpu.clone(), page.clone()).prop_map(|(vcpu, page)| Step::Write { vcpu, page }),
        8 => (vcpu.clone(), page.clone()).prop_map(|(vcpu, page)| Step::Read { vcpu, page }),
        4 => vcpu.clone().prop_map(|vcpu| Step::Switch { vcpu }),
        1 => vcpu.clone().prop_map(|vcpu| Step::SetWay { vcpu }),
        1 => vcpu.prop_map(|vcpu| Step::Reset { vcpu }),
        1 => page.clone().prop_map(|page| Step::Migrate { page }),
        1 => page.prop_map(|page| Step::Reclaim { page }),
        1 => Just(Step::MoveSlot),
    ]
}

/// Where the last value of a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Both,
    Memory,
    Cache,
}

struct World {
    players: Vec<Player>,
    pages: [(Place, u64); PAGES],
    vm: MachineVm<TableFormat>,
    memory: HostMemory,
    machine: Machine<TableFormat>,
}

struct Player {
    vcpu: MachineVcpu<TableFormat>,
    cpu: Cpu<TableFormat>,
    on: bool,
}

impl World {
    fn new(backing: Backing) -> Self {
        let capabilities = CacheCapabilities { fgt: true, ..CacheCapabilities::default() };
        let machine: Machine<TableFormat> =
            Machine::with_caches(1 << 13, Lines::Modelled, capabilities).unwrap();
        let options = VmOptions { caches: Caches::Tracked, ..VmOptions::default() };
        let vm = machine.create_vm_with(options).unwrap();
        let memory = machine.map_backed(PAGES as u64 * STRIDE, backing).unwrap();
        let mut world =
            Self { players: Vec::new(), pages: [(Place::Both, 0); PAGES], vm, memory, machine };
        world.set_slot(world.memory.size());
        for id in 0..VCPUS {
            let vcpu = world.vcpu(id);
            world.players.push(vcpu);
        }
        world
    }

    fn vcpu(&self, id: usize) -> Player {
        let vcpu = self.vm.create_vcpu(id as u32).unwrap();
        let mut cpu = self.machine.cpu(Vec::new());
        cpu.turn_caches_off();
        Player { vcpu, cpu, on: false }
    }

    fn set_slot(&self, size: u64) {
        let region = self.memory.region(SlotId::main(0), Gpa::new(0));
        self.vm.set_memory_region(&Region { size, ..region }).unwrap();
    }

    fn hva(&self, page: usize) -> Hva {
        Hva::new(self.memory.hva().get() + page as u64 * STRIDE)
    }

    /// What a vCPU that switches, or the host, has brought about everywhere.
    fn agree(&mut self, from: Place) {
        for (place, _) in &mut self.pages {
            if *place == from {
                *place = Place::Both;
            }
        }
    }

    fn run(&mut self, vcpu: usize, instruction: Instruction) {
        let Player { vcpu, cpu, .. } = &mut self.players[vcpu];
        cpu.load(vec![instruction]);
        assert_eq!(vcpu.run(cpu), Exit::Halt);
        assert_eq!(cpu.first_mismatch(), None);
    }

    fn does(&mut self, step: Step, number: u64) {
        match step {
            Step::Write { vcpu, page } => {
                let mine = if self.players[vcpu].on { Place::Cache } else { Place::Memory };
                if [Place::Both, mine].contains(&self.pages[page].0) {
                    self.pages[page] = (mine, number);
                    let gpa = Gpa::new(page as u64 * STRIDE);
                    self.run(vcpu, Instruction::Touch { gpa, len: 1, value: number });
                }
            }
            Step::Read { vcpu, page } => {
                let mine = if self.players[vcpu].on { Place::Cache } else { Place::Memory };
                let (place, value) = self.pages[page];
                if [Place::Both, mine].contains(&place) {
                    let gpa = Gpa::new(page as u64 * STRIDE);
                    self.run(vcpu, Instruction::Verify { gpa, len: 1, value });
                }
            }
            Step::Switch { vcpu } => {
                let on = !self.players[vcpu].on;
                self.players[vcpu].on = on;
                self.run(vcpu, Instruction::Caches(on));
                self.agree(Place::Memory);
                if !on {
                    self.agree(Place::Cache);
                }
            }
            Step::SetWay { vcpu } => {
                self.run(vcpu, Instruction::SetWay);
                if self.players[vcpu].on {
                    self.agree(Place::Memory);
                    self.agree(Place::Cache);
                }
            }
            Step::Reset { vcpu } => {
                // Its number is free when it is gone.
                self.players.remove(vcpu);
                let new = self.vcpu(vcpu);
                self.players.insert(vcpu, new);
            }
            Step::Migrate { page } => {
                if self.machine.space().migrate(self.hva(page)).unwrap() {
                    self.pages[page].0 = Place::Both;
                }
            }
            Step::Reclaim { page } => {
                if self.machine.space().reclaim(self.hva(page)) {
                    self.pages[page].0 = Place::Both;
                }
            }
            Step::MoveSlot => {
                self.set_slot(0);
                self.set_slot(self.memory.size());
                self.agree(Place::Memory);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_vcpu_finds_what_was_written_last_wherever_that_is_promised(
        steps in prop::collection::vec(step(), 1..120),
        huge in any::<bool>(),
    ) {
        let mut world = World::new(if huge { Backing::HugePages } else { Backing::Pages });
        for (number, step) in (1..).zip(steps) {
            world.does(step, number);
        }
        let written = world.machine.cache().lines().flushed;
        prop_assert!(written <= 64 * 120, "no more is flushed than was written");
    }
}
