//! Caches on the machine: what is counted, and what brings a guest out.

use std::sync::Arc;

use mayfly_machine::cache::{LineCounts, Lines, Oracle};
use mayfly_machine::scenario::{ForcedFormat, TableFormat};
use mayfly_machine::{Arena, DataCache, Instruction, Machine, VmOptions};
use mayfly_memslot::{Gpa, SlotId};
use mayfly_platform::cache::{Cache, CacheCapabilities, InstructionCaches};
use mayfly_stage2::Format;
use mayfly_vm::{CacheOp, Caches, Exit};

const NONE: CacheCapabilities =
    CacheCapabilities { instructions: InstructionCaches::Virtual, fgt: false };

#[test]
fn lines_are_counted_by_what_is_done_to_them_and_say_what_they_said_before() {
    for lines in [Lines::Real, Lines::Counted, Lines::Modelled] {
        let arena = Arena::new(64).unwrap().with_oracle(Arc::new(Oracle::new(false)));
        let arena = Arc::new(arena);
        let cache = DataCache::new(Arc::clone(&arena), lines, NONE);
        let first = arena.allocate(2).unwrap();
        let word = arena.word(first.hpa().unwrap());
        word.store(7, std::sync::atomic::Ordering::Relaxed);
        cache.clean(first, 4);
        cache.clean_invalidate(first, 2);
        cache.invalidate_instructions(first, 1);
        cache.invalidate_all_instructions();
        let lines = LineCounts { cleaned: 256, flushed: 128, fetched: 64, emptied: 1 };
        assert_eq!(cache.lines(), lines);
        assert_eq!(word.load(std::sync::atomic::Ordering::Relaxed), 7);
    }
}

/// What a guest comes out with that does all of `ops`.
fn exits<F: Format>(capabilities: CacheCapabilities, ops: &[CacheOp]) -> Vec<CacheOp> {
    let machine: Machine<F> = Machine::with_caches(64, Lines::Counted, capabilities).unwrap();
    let options = VmOptions { caches: Caches::Reported, ..VmOptions::default() };
    let vm = machine.create_vm_with(options).unwrap();
    let instruction = |op: &CacheOp| match op {
        CacheOp::On => Instruction::Caches(true),
        CacheOp::Off => Instruction::Caches(false),
        CacheOp::SetWay => Instruction::SetWay,
    };
    let mut cpu = machine.cpu(ops.iter().map(instruction).collect());
    cpu.turn_caches_off();
    let mut vcpu = vm.create_vcpu(0).unwrap();
    let mut seen = Vec::new();
    loop {
        match vcpu.run(&mut cpu) {
            Exit::Caches(op) => seen.push(op),
            Exit::Halt => return seen,
            exit => panic!("{exit:?}"),
        }
    }
}

#[test]
fn a_guest_comes_out_once_with_each_operation_that_is_trapped() {
    use CacheOp::{Off, On, SetWay};
    let ops = [On, Off, On, SetWay, Off, On, Off];
    // One register is trapped for good.
    assert_eq!(exits::<TableFormat>(CacheCapabilities { fgt: true, ..NONE }, &ops), ops);
    // All of them are, until caches are on, and again after an operation by set and way.
    assert_eq!(exits::<TableFormat>(NONE, &ops), [On, SetWay, Off, On]);
    assert_eq!(exits::<ForcedFormat>(NONE, &ops), []);
}

#[test]
fn a_usual_machine_maintains_nothing_when_it_maps_memory() {
    let machine = Machine::new().unwrap();
    for caches in [Caches::Coherent, Caches::Reported, Caches::Tracked] {
        let vm = machine.create_vm_with(VmOptions { caches, ..VmOptions::default() }).unwrap();
        let memory = machine.map(1 << 20).unwrap();
        let region = memory.region(SlotId::main(0), Gpa::new(0));
        vm.set_memory_region(&region).unwrap();
        let touch = Instruction::Touch { gpa: region.gpa, len: region.size, value: 1 };
        let exit = vm.create_vcpu(0).unwrap().run(&mut machine.cpu(vec![touch]));
        assert_eq!(exit, Exit::Halt);
    }
    assert_eq!(machine.cache().lines(), LineCounts::default());
}
