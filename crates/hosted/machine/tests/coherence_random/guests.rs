//! VMs, and what their guests may find in their memory.

use mayfly_machine::address_space::Backing;
use mayfly_machine::scenario::TableFormat;
use mayfly_machine::{Cpu, HostMemory, Machine, MachineVcpu, MachineVm, Program, VmOptions};
use mayfly_memslot::{Gpa, Hva};
use mayfly_stage2::Slice;
use mayfly_vm::{Caches, Exit, SlotZap};

use crate::steps::{Nature, PAGES, SLOT, SLOTS, STRIDE, VCPUS};

/// Where the last value of a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Both,
    Memory,
    Cache,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) place: Place,
    pub(crate) value: u64,
    /// A guest may have it, or what is around it, mapped; so that nobody cleans it when it is found the next time.
    pub(crate) mapped: bool,
    pub(crate) read_only: bool,
    /// Has been written since its log was last harvested.
    pub(crate) logged: bool,
}

pub(crate) struct Slot {
    pub(crate) memory: HostMemory,
    /// In strides.
    pub(crate) base: Option<u64>,
    pub(crate) logs: bool,
    pub(crate) pages: [Page; PAGES],
}

pub(crate) struct Player {
    pub(crate) vcpu: MachineVcpu<TableFormat>,
    pub(crate) cpu: Cpu<TableFormat>,
    pub(crate) on: bool,
}

pub(crate) struct Guests {
    pub(crate) players: Vec<Option<Player>>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) vm: MachineVm<TableFormat>,
}

impl Page {
    /// Nobody has it mapped any more: who finds it next has it cleaned.
    pub(crate) fn is_gone(&mut self) {
        (self.place, self.mapped) = (Place::Both, false);
    }

    pub(crate) fn agrees(&mut self, from: Place) {
        if self.place == from {
            self.place = Place::Both;
        }
    }
}

impl Slot {
    pub(crate) fn new(machine: &Machine<TableFormat>, huge: bool) -> Self {
        let backing = if huge { Backing::HugePages } else { Backing::Pages };
        let memory = machine.map_backed(SLOT, backing).unwrap();
        let page =
            Page { place: Place::Both, value: 0, mapped: false, read_only: false, logged: false };
        Self { memory, base: None, logs: false, pages: [page; PAGES] }
    }

    pub(crate) fn offset(page: usize) -> u64 {
        page as u64 * STRIDE
    }

    pub(crate) fn hva(&self, page: usize) -> Hva {
        Hva::new(self.memory.hva().get() + Self::offset(page))
    }

    pub(crate) fn gpa(&self, page: usize) -> Option<Gpa> {
        Some(Gpa::new(self.base? * STRIDE + Self::offset(page)))
    }

    /// As much as may be mapped when `page` is.
    pub(crate) fn maps_around(&mut self, page: usize) {
        let first = page / 2 * 2;
        self.pages[first..first + 2].iter_mut().for_each(|page| page.mapped = true);
    }
}

impl Player {
    /// As it comes out of reset.
    pub(crate) fn new(
        machine: &Machine<TableFormat>,
        vm: &MachineVm<TableFormat>,
        id: usize,
    ) -> Self {
        let vcpu = vm.create_vcpu(id as u32).unwrap();
        let mut cpu = machine.cpu(Vec::new());
        cpu.turn_caches_off();
        Self { vcpu, cpu, on: false }
    }

    /// What it reads, and writes to.
    pub(crate) fn side(&self) -> Place {
        if self.on { Place::Cache } else { Place::Memory }
    }

    pub(crate) fn run(&mut self, program: Program) {
        self.cpu.load(program);
        assert_eq!(self.vcpu.run(&mut self.cpu), Exit::Halt);
        assert_eq!(self.cpu.first_mismatch(), None);
    }
}

impl Guests {
    pub(crate) fn new(machine: &Machine<TableFormat>, nature: Nature) -> Self {
        let options = VmOptions {
            caches: Caches::Tracked,
            slot_zap: if nature.all_roots { SlotZap::AllRoots } else { SlotZap::Range },
            coherent_swap: nature.coherent_swap,
            slice: Slice { entries: nature.slice, ..Slice::default() },
            ..VmOptions::default()
        };
        let vm = machine.create_vm_with(options).unwrap();
        let slots = (0..SLOTS).map(|slot| Slot::new(machine, nature.huge && slot == 0)).collect();
        let players = (0..VCPUS).map(|id| Some(Player::new(machine, &vm, id))).collect();
        Self { players, slots, vm }
    }
}
