//! Lives that are drawn: of three VMs at a time, whose memory comes and goes, is logged and is touched, and which give way
//! to others while VMIDs roll over.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use mayfly_hwtrace::Record;
use mayfly_machine::address_space::Backing;
use mayfly_machine::{
    Cpu, HostMemory, Instruction, Machine, MachineVcpu, MachineVm, Processors, VmOptions,
};
use mayfly_memslot::{Flags, Gpa, PAGE_SIZE, Region, SlotId};
use mayfly_stage2::Format;
use mayfly_vm::SlotZap;
use proptest::prelude::*;

/// 2 MiB: a block, or pages where it is logged.
const BLOCK: u64 = 1 << 21;
const VMS: usize = 3;
const CPUS: u32 = 2;
/// Three VMIDs: one for each VM, and none for a root that replaces another, so that they roll over soon.
const VMID_BITS: u32 = 2;

/// What happens to one of the VMs, or is done by it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    vm: usize,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// Its guest writes to this page.
    Touch(u64),
    /// Its memory is written to a log, or not: what is mapped is protected, and a block becomes pages.
    Log(bool),
    /// What is mapped is protected again.
    Harvest,
    /// Blocks become pages.
    Split,
    /// Its slot is deleted.
    Delete,
    /// The host takes its memory away, and it gets other memory, of such pages.
    Replace(Backing),
    /// It ends, and another one takes its place.
    Renew,
}

pub(crate) fn programs() -> impl Strategy<Value = Vec<Step>> {
    let what = prop_oneof![
        8 => (0..BLOCK / PAGE_SIZE).prop_map(What::Touch),
        2 => any::<bool>().prop_map(What::Log),
        1 => Just(What::Harvest),
        1 => Just(What::Split),
        1 => Just(What::Delete),
        1 => Just(What::Replace(Backing::Pages)),
        1 => Just(What::Replace(Backing::HugePages)),
        2 => Just(What::Renew),
    ];
    let step = (0..VMS, what).prop_map(|(vm, what)| Step { vm, what });
    prop::collection::vec(step, 1..60)
}

/// A VM and its vCPU.
struct Living<F: Format> {
    vm: MachineVm<F>,
    vcpu: MachineVcpu<F>,
    cpu: Cpu<F>,
    memory: HostMemory,
    slot_zap: SlotZap,
}

impl<F: Format> Living<F> {
    fn new(machine: &Machine<F>, slot_zap: SlotZap) -> Self {
        let vm = machine.create_vm_with(VmOptions { slot_zap, ..VmOptions::default() }).unwrap();
        let memory = machine.map_backed(BLOCK, Backing::HugePages).unwrap();
        let vcpu = vm.create_vcpu(0).unwrap();
        let living = Self { vm, vcpu, cpu: machine.cpu(Vec::new()), memory, slot_zap };
        living.set(Flags::empty());
        living
    }

    fn set(&self, flags: Flags) {
        let region = self.memory.region(SlotId::main(0), Gpa::new(0));
        self.vm.set_memory_region(&Region { flags, ..region }).unwrap();
    }

    fn delete(&self) {
        let region = self.memory.region(SlotId::main(0), Gpa::new(0));
        // It may be deleted already.
        let _ = self.vm.set_memory_region(&Region { size: 0, ..region });
    }

    fn make(&mut self, machine: &Machine<F>, what: What) {
        let slot = SlotId::main(0);
        match what {
            What::Touch(page) => {
                let gpa = Gpa::new(page * PAGE_SIZE);
                self.cpu.load(vec![Instruction::Touch { gpa, len: 8, value: page }]);
                // Without a slot it comes out.
                let _ = self.vcpu.run(&mut self.cpu);
            }
            What::Log(true) => self.set(Flags::LOG_DIRTY_PAGES),
            What::Log(false) => self.set(Flags::empty()),
            // Those that have no log, or no slot, are left as they are.
            What::Harvest => drop(self.vm.harvest_dirty(slot, 0, &mut [0; 8])),
            What::Split => drop(self.vm.split_blocks(slot)),
            What::Delete => self.delete(),
            What::Replace(backing) => {
                // The slot is there when the old memory goes.
                self.memory = machine.map_backed(BLOCK, backing).unwrap();
                self.delete();
                self.set(Flags::empty());
            }
            What::Renew => {
                let new = Self::new(machine, self.slot_zap);
                std::mem::replace(self, new).end();
            }
        }
    }

    fn end(self) {
        let Self { vm, vcpu, memory, .. } = self;
        drop(vcpu);
        let handle = mayfly_vm::Vm::clone(&vm);
        vm.destroy();
        handle.wait_reclaimed();
        drop(memory);
    }
}

/// What hardware sees of a program.
pub(crate) fn drawn<F: Format>(program: &[Step]) -> Vec<Record> {
    let processors = Processors { vmid_bits: VMID_BITS, ..Processors::shared(CPUS) };
    let machine = Machine::<F>::with_processors(1 << 14, processors).unwrap();
    let records: Arc<Mutex<Vec<Record>>> = Arc::default();
    let sink = Arc::clone(&records);
    machine.hardware().record(Box::new(move |record| {
        sink.lock().unwrap().push(record.clone());
        ControlFlow::Continue(())
    }));
    let zaps = [SlotZap::Range, SlotZap::AllRoots, SlotZap::Range];
    let mut living: [_; VMS] = zaps.map(|slot_zap| Living::new(&machine, slot_zap));
    for Step { vm, what } in program {
        living[*vm].make(&machine, *what);
    }
    living.into_iter().for_each(Living::end);
    drop(machine);
    let mut records = std::mem::take(&mut *records.lock().unwrap());
    records.sort_by_key(|record| record.end);
    records
}
