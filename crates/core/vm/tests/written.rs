//! Whatever vCPUs, the host and a dirty log do: what is flushed, and when, is exactly what was written past the caches
//! since it was last.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod common;

use std::collections::BTreeSet;

use mayfly_memslot::{Flags, PAGE_SIZE, Region, SlotId};
use mayfly_stage2::Level;
use mayfly_vm::{
    CacheCapabilities, CacheOp, Caches, Config, Exit, InstructionCaches, Reason, SlotZap,
};
use proptest::prelude::*;

use common::{Kept, Setup, TestVcpu, TestVm, Toggle, hva, read, region, write};

/// Blocks of the guest's memory, the first at guest frame 0.
const BLOCKS: u64 = 2;
const BLOCK: u64 = Level::MIB2.pages();

#[derive(Clone, Copy, Debug)]
enum Step {
    Read(usize, u64),
    Write(usize, u64),
    Caches(usize, CacheOp),
    /// The host takes so many pages from there on away, and gives them back.
    TakeAway(u64, u64, Reason),
    /// All of the guest's memory becomes something else at once.
    GoOver,
    Harvest,
    Age,
}

fn page() -> impl Strategy<Value = u64> {
    // Few pages, so that things meet, at the ends of blocks.
    prop::sample::select(vec![0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1])
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop::sample::select(vec![CacheOp::On, CacheOp::Off, CacheOp::SetWay]);
    let reason = prop::sample::select(vec![
        Reason::Unmap,
        Reason::Migrate,
        Reason::Reclaim { coherent: true },
        Reason::Protect,
        Reason::Merge,
    ]);
    prop_oneof![
        2 => (0..2_usize, page()).prop_map(|(vcpu, page)| Step::Read(vcpu, page)),
        4 => (0..2_usize, page()).prop_map(|(vcpu, page)| Step::Write(vcpu, page)),
        2 => (0..2_usize, op).prop_map(|(vcpu, op)| Step::Caches(vcpu, op)),
        1 => (page(), 1..4_u64, reason).prop_map(|(page, count, reason)| {
            Step::TakeAway(page, count.min(BLOCKS * BLOCK - page), reason)
        }),
        1 => Just(Step::GoOver),
        1 => Just(Step::Harvest),
        1 => Just(Step::Age),
    ]
}

struct World {
    setup: Setup,
    vm: TestVm,
    vcpus: [TestVcpu; 2],
    logs: bool,
    on: [bool; 2],
    /// Pages written past the caches, and not flushed since.
    written: BTreeSet<u64>,
}

impl World {
    fn new(blocks: bool, logs: bool) -> Self {
        let setup = Setup::new(SlotZap::Range);
        setup.caches.set_capabilities(CacheCapabilities {
            instructions: InstructionCaches::Coherent,
            ..Default::default()
        });
        if blocks {
            setup.memory.set_level(Level::MIB2);
        }
        let vm = TestVm::create(Config { caches: Caches::Tracked, ..setup.config() }).unwrap();
        let vcpus = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
        let flags = if logs { Flags::LOG_DIRTY_PAGES } else { Flags::empty() };
        vm.set_memory_region(&Region { flags, ..region(0, 0, BLOCKS * BLOCK) }).unwrap();
        Self { setup, vm, vcpus, logs, on: [false; 2], written: BTreeSet::new() }
    }

    /// Does `step`. Returns what is to be flushed by it.
    fn step(&mut self, step: Step) -> BTreeSet<u64> {
        match step {
            Step::Read(vcpu, page) => {
                read(&mut self.vcpus[vcpu], page * PAGE_SIZE, 1);
            }
            Step::Write(vcpu, page) => {
                write(&mut self.vcpus[vcpu], page * PAGE_SIZE, &[1]);
                if !self.on[vcpu] {
                    self.written.insert(page);
                }
            }
            Step::Caches(vcpu, op) => {
                assert_eq!(self.vcpus[vcpu].run(&mut Toggle::new(Some(op))), Exit::Halt);
                let on = &mut self.on[vcpu];
                let flushes = *on != (op == CacheOp::On);
                match op {
                    CacheOp::On => *on = true,
                    CacheOp::Off => *on = false,
                    CacheOp::SetWay => {}
                }
                if flushes {
                    return std::mem::take(&mut self.written);
                }
            }
            Step::TakeAway(page, count, reason) => {
                drop(self.vm.invalidate_start(hva(0, page * PAGE_SIZE), count * PAGE_SIZE, reason));
                let gone = page..page + count;
                let (flushed, left) = self.written.iter().partition(|&&page| gone.contains(&page));
                self.written = left;
                return flushed;
            }
            Step::GoOver => {
                drop(self.vm.invalidate_all());
                return std::mem::take(&mut self.written);
            }
            Step::Harvest if self.logs => {
                let mut bits = [0; (BLOCKS * BLOCK / 64) as usize];
                self.vm.harvest_dirty(SlotId::main(0), 0, &mut bits).unwrap();
                // Whoever harvests is about to read what was written, which the log knows all of.
                return std::mem::take(&mut self.written);
            }
            Step::Harvest => {}
            Step::Age => {
                self.vm.age(hva(0, 0), BLOCKS * BLOCK * PAGE_SIZE);
            }
        }
        BTreeSet::new()
    }

    /// Pages that were flushed since the last time, each once.
    fn flushed(&self) -> Vec<u64> {
        let first = hva(0, 0).get() / PAGE_SIZE;
        let kept = self.setup.caches.take().into_iter();
        let runs = kept.filter_map(|kept| match kept {
            Kept::Flushed(pfn, count) => Some((pfn.get() - first, count)),
            _ => None,
        });
        let mut pages: Vec<_> = runs.flat_map(|(page, count)| page..page + count).collect();
        pages.sort_unstable();
        pages
    }
}

proptest! {
    #[test]
    fn what_is_flushed_is_what_was_written_past_the_caches_and_each_page_once(
        blocks: bool,
        logs: bool,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(blocks, logs);
        for (number, step) in steps.into_iter().enumerate() {
            let expected: Vec<_> = world.step(step).into_iter().collect();
            prop_assert_eq!(world.flushed(), expected, "step {}: {:?}", number, step);
        }
    }
}
