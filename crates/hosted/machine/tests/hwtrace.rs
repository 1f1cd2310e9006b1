//! Faults that are planted in what hardware sees of a VM's life, and that the checker has to find: where, and which rule
//! is broken. What is recorded is a life that breaks none; each fault is one edit of it, such as a mistake of the core's,
//! or of an embedder's, would make.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use mayfly_hwtrace::{Checker, Event, Options, Record, Rule, Scope};
use mayfly_machine::address_space::Backing;
use mayfly_machine::cache::Lines;
use mayfly_machine::{HostMemory, Instruction, Machine, MachineVm, VmOptions};
use mayfly_memslot::{Flags, Gpa, PAGE_SIZE, Region, SlotId};
use mayfly_platform::cache::CacheCapabilities;
use mayfly_stage2::{Arm, Ept, Format};
use mayfly_vm::Caches;

/// 2 MiB.
const BLOCK: u64 = 1 << 21;

const OPTIONS: Options = Options { caches_maintained: true };

/// What was recorded: who did what, one after another.
type Life = Vec<(u32, Event)>;

/// Two VMs, one after the other, each with a block of memory that becomes pages, and is unmapped.
fn life<F: Format>() -> Life {
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

/// The rules that a life breaks, and at which of its events.
fn broken(life: &Life) -> Vec<(usize, Rule)> {
    let mut checker = Checker::new(OPTIONS);
    for (at, (cpu, event)) in (0u64..).zip(life) {
        let record = Record { begin: 2 * at, end: 2 * at + 1, cpu: *cpu, event: event.clone() };
        checker.take(at, &record);
    }
    checker.finish().iter().map(|broken| (broken.line as usize, broken.rule)).collect()
}

/// A life, and how to edit it.
#[derive(Clone)]
struct Edit(Life);

impl Edit {
    /// The first event of that kind from `from` on.
    fn find(&self, from: usize, is_it: impl Fn(&Event) -> bool) -> usize {
        let found = self.0[from..].iter().position(|(_, event)| is_it(event));
        from + found.expect("the life has such an event")
    }

    /// Where the block becomes absent, for pages to come in its place.
    fn block_breaks(&self) -> usize {
        let is_block = |bits: u64| bits & 3 == 1;
        self.find(0, |event| match *event {
            Event::Entry { old, new, .. } => is_block(old) && new & 1 == 0,
            _ => false,
        })
    }

    fn tlbi_after(&self, from: usize) -> usize {
        self.find(from, |event| matches!(event, Event::Tlbi { .. }))
    }

    fn sync_after(&self, from: usize) -> usize {
        self.find(from, |event| matches!(event, Event::Sync { .. }))
    }

    /// Where the pages, or their table, are zapped: the last to be so before the memory is freed.
    fn memory_freed(&self) -> usize {
        self.find(0, |event| matches!(event, Event::Free { order: 9, .. }))
    }

    /// The last invalidation before `before`, and its completion.
    fn invalidation_before(&self, before: usize) -> (usize, usize) {
        let is_tlbi = |(_, event): &(u32, Event)| matches!(event, Event::Tlbi { .. });
        let tlbi = self.0[..before].iter().rposition(is_tlbi).expect("there is one");
        (tlbi, self.sync_after(tlbi))
    }

    fn remove(&mut self, at: usize) -> (u32, Event) {
        self.0.remove(at)
    }

    /// Has the event at `from` before the one at `to`.
    fn hasten(&mut self, from: usize, to: usize) {
        let event = self.0.remove(from);
        self.0.insert(to, event);
    }
}

/// A fault, as it is planted, and the rule that it breaks.
type Fault = (&'static str, fn(&mut Edit), Rule);

const FAULTS: [Fault; 20] = [
    (
        "a block becomes a table at once",
        |life| {
            let at = life.block_breaks();
            let Event::Entry { old: block, .. } = life.remove(at).1 else { unreachable!() };
            let make = life.find(at, |event| matches!(event, Event::Entry { old: 8, .. }));
            let Event::Entry { old, .. } = &mut life.0[make].1 else { unreachable!() };
            *old = block;
        },
        Rule::BreakBeforeMake,
    ),
    (
        "the table comes before the invalidation is complete",
        |life| {
            let at = life.block_breaks();
            let sync = life.sync_after(at);
            let make = life.find(sync, |event| matches!(event, Event::Entry { old: 8, .. }));
            life.hasten(make, sync);
        },
        Rule::BreakBeforeMake,
    ),
    (
        "the invalidation was issued before the block was absent",
        |life| {
            let at = life.block_breaks();
            let tlbi = life.tlbi_after(at);
            life.hasten(tlbi, at);
        },
        Rule::BreakBeforeMake,
    ),
    (
        "the invalidation is of another VMID",
        |life| {
            let at = life.tlbi_after(life.block_breaks());
            let Event::Tlbi { vmid, .. } = &mut life.0[at].1 else { unreachable!() };
            *vmid += 1;
        },
        Rule::BreakBeforeMake,
    ),
    (
        "the invalidation is of leaves of another size",
        |life| {
            let at = life.tlbi_after(life.block_breaks());
            let Event::Tlbi { scope: Scope::Range { stride, .. }, .. } = &mut life.0[at].1 else {
                unreachable!()
            };
            *stride = 1;
        },
        Rule::BreakBeforeMake,
    ),
    (
        "the invalidation names what lies beside",
        |life| {
            let at = life.tlbi_after(life.block_breaks());
            let Event::Tlbi { scope: Scope::Range { first, end, .. }, .. } = &mut life.0[at].1
            else {
                unreachable!()
            };
            (*first, *end) = (*first + 512, *end + 512);
        },
        Rule::BreakBeforeMake,
    ),
    (
        "somebody else's invalidation is waited for",
        |life| {
            let at = life.sync_after(life.block_breaks());
            life.0[at].0 += 1000;
        },
        Rule::BreakBeforeMake,
    ),
    (
        "memory is unmapped, and no TLB is told",
        |life| {
            let (tlbi, sync) = life.invalidation_before(life.memory_freed());
            life.remove(sync);
            life.remove(tlbi);
        },
        Rule::FrameFreed,
    ),
    (
        "memory is unmapped, and walk caches are spared",
        |life| {
            let (tlbi, _) = life.invalidation_before(life.memory_freed());
            let Event::Tlbi { scope: Scope::Range { reach, .. }, .. } = &mut life.0[tlbi].1 else {
                unreachable!()
            };
            *reach = mayfly_hwtrace::Reach::Sizes;
        },
        Rule::TableFreed,
    ),
    (
        "a guest goes on with what was unmapped",
        |life| {
            let access = life.find(0, |event| matches!(event, Event::Access { .. }));
            let access = life.0[access].clone();
            let enter =
                life.find(life.memory_freed(), |event| matches!(event, Event::Enter { .. }));
            life.0.insert(enter + 1, access);
        },
        Rule::StaleAccess,
    ),
    (
        "a root's VMID is given on, and no TLB is told",
        |life| {
            let give = life.find(0, |event| matches!(event, Event::VmidGive { .. }));
            let take = life.find(give, |event| matches!(event, Event::VmidTake { .. }));
            let Event::VmidTake { vmid, .. } = life.0[take].1 else { unreachable!() };
            let is_of = |(_, event): &(u32, Event)| matches!(event, Event::Tlbi { vmid: of, .. } if *of == vmid);
            let tlbi = life.0[..take].iter().rposition(is_of).unwrap();
            let sync = life.sync_after(tlbi);
            life.remove(sync);
            life.remove(tlbi);
        },
        Rule::VmidReused,
    ),
    (
        "a root is entered under a VMID that it did not take",
        |life| {
            let give = life.find(0, |event| matches!(event, Event::VmidGive { .. }));
            let take = life.find(give, |event| matches!(event, Event::VmidTake { .. }));
            life.remove(take);
        },
        Rule::VmidNotTaken,
    ),
    (
        "a VMID is given back under a guest",
        |life| {
            let give = life.find(0, |event| matches!(event, Event::VmidGive { .. }));
            let leaves = |(_, event): &(u32, Event)| matches!(event, Event::Leave { .. });
            let leave = life.0[..give].iter().rposition(leaves).unwrap();
            life.hasten(give, leave);
        },
        Rule::VmidNotTaken,
    ),
    (
        "no barrier comes before the guest",
        |life| {
            let entry = life.find(0, |event| matches!(event, Event::Entry { .. }));
            let enter = life.find(entry, |event| matches!(event, Event::Enter { .. }));
            assert!(matches!(life.remove(enter - 1).1, Event::Barrier { .. }));
        },
        Rule::NoBarrier,
    ),
    (
        "no barrier comes before the invalidation",
        |life| {
            let tlbi = life.tlbi_after(life.block_breaks());
            assert!(matches!(life.remove(tlbi - 1).1, Event::Barrier { .. }));
        },
        Rule::NoBarrier,
    ),
    (
        "a frame is mapped that was not cleaned",
        |life| {
            let clean = life.find(0, |event| matches!(event, Event::Clean { .. }));
            life.remove(clean);
        },
        Rule::NotCleaned,
    ),
    (
        "a table is written when it is free",
        |life| {
            let is_fill = |event: &Event| matches!(event, Event::Fill { .. });
            let fill = life.find(0, is_fill);
            let Event::Fill { table, value, .. } = life.0[fill].1 else { unreachable!() };
            let free = life
                .find(fill, |event| matches!(event, Event::Free { frame, .. } if *frame == table));
            let late = Event::Entry { table, index: 0, old: value, new: 0 };
            let cpu = life.0[free].0;
            life.0.insert(free + 1, (cpu, late));
        },
        Rule::WriteAfterFree,
    ),
    (
        "a root goes under a guest",
        |life| {
            let gone = life.find(0, |event| matches!(event, Event::RootGone { .. }));
            let Event::RootGone { top } = life.0[gone].1 else { unreachable!() };
            let enters = |(_, event): &(u32, Event)| matches!(event, Event::Enter { top: of, .. } if *of == top);
            let enter = life.0[..gone].iter().rposition(enters).unwrap();
            life.hasten(gone, enter + 1);
        },
        Rule::RootGone,
    ),
    (
        "an entry leads to a table that another leads to",
        |life| {
            let make = life
                .find(life.block_breaks(), |event| matches!(event, Event::Entry { old: 8, .. }));
            let (cpu, Event::Entry { table, index, new, .. }) = life.0[make].clone() else {
                unreachable!()
            };
            let again = Event::Entry { table, index: index + 1, old: 0, new };
            life.0.insert(make + 1, (cpu, again));
        },
        Rule::TableTwice,
    ),
    (
        "an entry is written, and nobody is told",
        |life| {
            let at = life.block_breaks();
            life.remove(at);
        },
        Rule::LostWrite,
    ),
];

#[test]
fn a_life_breaks_no_rule() {
    let (arm, ept) = (life::<Arm<40>>(), life::<Ept>());
    assert!(arm.len() > 100 && ept.len() > 100);
    assert_eq!((broken(&arm), broken(&ept)), (vec![], vec![]));
}

#[test]
fn every_fault_that_is_planted_is_found_by_its_rule() {
    let recorded = Edit(life::<Arm<40>>());
    let mut found: Vec<Rule> = Vec::new();
    for (name, plant, rule) in FAULTS {
        let mut life = recorded.clone();
        plant(&mut life);
        let broken = broken(&life.0);
        let rules: Vec<Rule> = broken.iter().map(|(_, rule)| *rule).collect();
        assert!(rules.contains(&rule), "{name}: {broken:?}");
        found.push(rule);
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), Rule::ALL.len(), "every rule is broken by some fault");
}
