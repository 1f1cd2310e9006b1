//! A life of VMs, as hardware sees it, and how to edit it.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use mayfly_hwtrace::{Event, Options, Record};
use mayfly_machine::address_space::Backing;
use mayfly_machine::cache::Lines;
use mayfly_machine::{HostMemory, Instruction, Machine, MachineVm, VmOptions};
use mayfly_memslot::{Flags, Gpa, PAGE_SIZE, Region, SlotId};
use mayfly_platform::cache::CacheCapabilities;
use mayfly_stage2::Format;
use mayfly_vm::Caches;

/// 2 MiB.
const BLOCK: u64 = 1 << 21;

pub(crate) const OPTIONS: Options = Options { caches_maintained: true };

/// What was recorded: who did what, one after another.
pub(crate) type Life = Vec<(u32, Event)>;

/// Two VMs, one after the other, each with a block of memory that becomes pages, and is unmapped.
pub(crate) fn life<F: Format>() -> Life {
    let machine = Machine::<F>::with_caches(1 << 14, Lines::Counted, CacheCapabilities::default());
    let machine = machine.unwrap();
    let records: Arc<Mutex<Vec<Record>>> = Arc::default();
    let sink = Arc::clone(&records);
    machine.hardware().record(Box::new(move |record| {
        sink.lock().unwrap().push(record.clone());
        ControlFlow::Continue(())
    }));
    for _ in 0..2 {
        let options = VmOptions { caches: Caches::Tracked, ..VmOptions::default() };
        let vm = machine.create_vm_with(options).unwrap();
        let memory = machine.map_backed(BLOCK, Backing::HugePages).unwrap();
        live(&machine, vm, memory);
    }
    drop(machine);
    let mut records = std::mem::take(&mut *records.lock().unwrap());
    records.sort_by_key(|record| record.end);
    records.into_iter().map(|record| (record.cpu, record.event)).collect()
}

fn live<F: Format>(machine: &Machine<F>, vm: MachineVm<F>, memory: HostMemory) {
    let slot = Region { flags: Flags::empty(), ..memory.region(SlotId::main(0), Gpa::new(0)) };
    vm.set_memory_region(&slot).unwrap();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let mut cpu = machine.cpu(Vec::new());
    let mut run = |program| {
        cpu.load(program);
        vcpu.run(&mut cpu)
    };
    let touch =
        |page: u64| Instruction::Touch { gpa: Gpa::new(page * PAGE_SIZE), len: 8, value: 1 };
    run(vec![Instruction::Caches(true), touch(3)]);
    // The block is read-only now, and a write takes a page.
    vm.set_memory_region(&Region { flags: Flags::LOG_DIRTY_PAGES, ..slot }).unwrap();
    run(vec![touch(5)]);
    drop(memory);
    // Nothing is there any more.
    run(vec![touch(5)]);
    drop(vcpu);
    let handle = mayfly_vm::Vm::clone(&vm);
    vm.destroy();
    handle.wait_reclaimed();
}

/// A life, and how to edit it.
#[derive(Clone)]
pub(crate) struct Edit(pub(crate) Life);

impl Edit {
    /// The first event of that kind from `from` on.
    pub(crate) fn find(&self, from: usize, is_it: impl Fn(&Event) -> bool) -> Option<usize> {
        let found = self.0[from..].iter().position(|(_, event)| is_it(event));
        found.map(|found| from + found)
    }

    /// Where the block becomes absent, for pages to come in its place.
    pub(crate) fn block_breaks(&self) -> Option<usize> {
        let is_block = |bits: u64| bits & 3 == 1;
        self.find(0, |event| match *event {
            Event::Entry { old, new, .. } => is_block(old) && new & 1 == 0,
            _ => false,
        })
    }

    pub(crate) fn tlbi_after(&self, from: usize) -> Option<usize> {
        self.find(from, |event| matches!(event, Event::Tlbi { .. }))
    }

    pub(crate) fn sync_after(&self, from: usize) -> Option<usize> {
        self.find(from, |event| matches!(event, Event::Sync { .. }))
    }

    /// Where the pages, or their table, are zapped: the last to be so before the memory is freed.
    pub(crate) fn memory_freed(&self) -> Option<usize> {
        self.find(0, |event| matches!(event, Event::Free { order: 9, .. }))
    }

    /// The last invalidation before `before`, and its completion.
    pub(crate) fn invalidation_before(&self, before: usize) -> Option<(usize, usize)> {
        let is_tlbi = |(_, event): &(u32, Event)| matches!(event, Event::Tlbi { .. });
        let tlbi = self.0[..before].iter().rposition(is_tlbi)?;
        Some((tlbi, self.sync_after(tlbi)?))
    }

    pub(crate) fn remove(&mut self, at: usize) -> (u32, Event) {
        self.0.remove(at)
    }

    /// Has the event at `from` before the one at `to`.
    pub(crate) fn hasten(&mut self, from: usize, to: usize) {
        let event = self.0.remove(from);
        self.0.insert(to, event);
    }
}
