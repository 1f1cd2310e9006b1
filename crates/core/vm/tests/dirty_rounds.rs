//! Whatever vCPUs, the host and whoever harvests do, one after the other: a log has the pages that were written since
//! their marks were last taken, and no others, and no page is writable that has no mark.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod common;

use std::collections::BTreeSet;

use mayfly_memslot::{DirtyWord, Flags, PAGE_SIZE, Region, SlotId};
use mayfly_stage2::{Level, Permissions};
use mayfly_vm::{Reason, SlotZap};
use proptest::prelude::*;

use common::{Setup, TestVcpu, TestVm, hva, read, region, translation, write};

/// Blocks of the guest's memory, the first at guest frame 0.
const BLOCKS: u64 = 3;
const BLOCK: u64 = Level::MIB2.pages();
const PAGES: u64 = BLOCKS * BLOCK;
const WORDS: usize = (PAGES / 64) as usize;
const SLOT: SlotId = SlotId::main(0);

#[derive(Clone, Debug)]
enum Step {
    Read(usize, u64),
    Write(usize, u64),
    /// A list of so many words at a time, until the log has been gone through.
    HarvestMarked(usize),
    /// So many words, from one on.
    Harvest(usize, usize),
    /// Of one word, some.
    Clear(usize, u64),
    ReadLog,
    /// Switches the log on, or off; then blocks come back where it has had marks, or everywhere, or nowhere.
    Switch(Back),
    Split,
    /// The host takes so many pages from there on away, and gives them back.
    TakeAway(u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Back {
    Written,
    All,
    None,
}

fn page() -> impl Strategy<Value = u64> {
    // Few pages, so that things meet, at the ends of words and of blocks; and now and then any.
    let few = [0, 1, 63, 64, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, PAGES - 1];
    prop_oneof![3 => prop::sample::select(few.to_vec()), 1 => 0..PAGES]
}

fn step() -> impl Strategy<Value = Step> {
    let back = prop::sample::select(vec![Back::Written, Back::All, Back::None]);
    prop_oneof![
        2 => (0..2_usize, page()).prop_map(|(vcpu, page)| Step::Read(vcpu, page)),
        8 => (0..2_usize, page()).prop_map(|(vcpu, page)| Step::Write(vcpu, page)),
        3 => (1..9_usize).prop_map(Step::HarvestMarked),
        1 => (0..WORDS + 2, 0..WORDS).prop_map(|(first, count)| Step::Harvest(first, count)),
        1 => (0..WORDS + 1, any::<u64>()).prop_map(|(word, marks)| Step::Clear(word, marks)),
        1 => Just(Step::ReadLog),
        2 => back.prop_map(Step::Switch),
        1 => Just(Step::Split),
        1 => (page(), 1..600_u64).prop_map(|(page, count)| {
            Step::TakeAway(page, count.min(PAGES - page))
        }),
    ]
}

struct World {
    vm: TestVm,
    vcpus: [TestVcpu; 2],
    logs: bool,
    /// Pages written since their mark was taken, or the log was switched on.
    marked: BTreeSet<u64>,
    /// Whether blocks may be pages where no log says so.
    is_split: bool,
}

fn pages(word: usize, marks: u64) -> impl Iterator<Item = u64> {
    (0..64).filter(move |bit| marks >> bit & 1 == 1).map(move |bit| 64 * word as u64 + bit)
}

impl World {
    fn new() -> Self {
        let setup = Setup::new(SlotZap::Range);
        setup.memory.set_level(Level::MIB2);
        let vm = setup.vm();
        let vcpus = [0, 1].map(|id| vm.create_vcpu(id).unwrap());
        vm.set_memory_region(&region(0, 0, PAGES)).unwrap();
        Self { vm, vcpus, logs: false, marked: BTreeSet::new(), is_split: false }
    }

    /// Takes out of the model what is there of `pages`.
    fn take(&mut self, pages: impl Fn(&u64) -> bool) -> Vec<u64> {
        let (taken, left) = self.marked.iter().copied().partition(pages);
        self.marked = left;
        let taken: BTreeSet<u64> = taken;
        taken.into_iter().collect()
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Read(vcpu, page) => {
                read(&mut self.vcpus[vcpu], page * PAGE_SIZE, 1);
            }
            Step::Write(vcpu, page) => {
                write(&mut self.vcpus[vcpu], page * PAGE_SIZE, &[1]);
                if self.logs {
                    self.marked.insert(page);
                }
            }
            Step::HarvestMarked(length) if self.logs => {
                let (mut from, mut found) = (0, Vec::new());
                loop {
                    let mut into = vec![DirtyWord::default(); length];
                    let count = self.vm.harvest_marked(SLOT, &mut from, &mut into).unwrap();
                    found.extend(into[..count].iter().flat_map(|one| pages(one.word, one.marks)));
                    if count < length {
                        break;
                    }
                }
                assert_eq!(found, self.take(|_| true));
            }
            Step::Harvest(first, count) if self.logs => {
                let mut words = vec![!0; count];
                self.vm.harvest_dirty(SLOT, first, &mut words).unwrap();
                let found: Vec<u64> =
                    (first..).zip(words).flat_map(|(word, marks)| pages(word, marks)).collect();
                let range = 64 * first as u64..64 * (first + count) as u64;
                assert_eq!(found, self.take(|page| range.contains(page)));
            }
            Step::Clear(word, which) if self.logs => {
                let mut words = [which];
                self.vm.clear_dirty(SLOT, word, &mut words).unwrap();
                let found: Vec<u64> = pages(word, words[0]).collect();
                let is_meant =
                    |page: &u64| page / 64 == word as u64 && which >> (page % 64) & 1 == 1;
                assert_eq!(found, self.take(is_meant));
            }
            Step::ReadLog if self.logs => {
                let mut words = [0; WORDS];
                self.vm.read_dirty(SLOT, 0, &mut words).unwrap();
                let found = (0..).zip(words).flat_map(|(word, marks)| pages(word, marks));
                assert!(found.eq(self.marked.iter().copied()));
            }
            Step::Switch(back) => self.switch(back),
            Step::Split => {
                self.vm.split_blocks(SLOT).unwrap();
                self.is_split = true;
            }
            Step::TakeAway(page, count) => {
                let (from, bytes) = (hva(0, page * PAGE_SIZE), count * PAGE_SIZE);
                drop(self.vm.invalidate_start(from, bytes, Reason::Migrate));
            }
            _ => {}
        }
    }

    fn switch(&mut self, back: Back) {
        self.logs = !self.logs;
        let flags = if self.logs { Flags::LOG_DIRTY_PAGES } else { Flags::empty() };
        let before = self.vm.replace_memory_region(&Region { flags, ..region(0, 0, PAGES) });
        let before = before.unwrap().unwrap();
        if self.logs {
            self.marked.clear();
            return;
        }
        let log = before.dirty().unwrap();
        let mut into = [DirtyWord::default(); WORDS];
        let was_split = self.is_split;
        match back {
            Back::Written => {
                self.vm.collapse_written(SLOT, log).unwrap();
            }
            Back::All => {
                self.vm.collapse_pages(SLOT).unwrap();
                self.is_split = false;
            }
            Back::None => self.is_split = true,
        }
        let count = log.harvest_marked(&mut 0, &mut into);
        let left = into[..count].iter().flat_map(|one| pages(one.word, one.marks));
        assert!(left.eq(std::mem::take(&mut self.marked)), "it is final");
        if back == Back::All || back == Back::Written && !was_split {
            for block in 0..BLOCKS {
                let found = translation(&mut self.vcpus[0], block * BLOCK + 7);
                assert!(found.is_none_or(|(level, _)| level == Level::MIB2), "block {block}");
            }
        }
    }

    /// No page is writable that a harvest would not have.
    fn check(&mut self) {
        if !self.logs {
            return;
        }
        for page in [0, 1, 2, 63, 64, 100, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, PAGES - 1] {
            let found = translation(&mut self.vcpus[1], page);
            let is_writable =
                found.is_some_and(|(_, leaf)| leaf.permissions.contains(Permissions::WRITE));
            assert!(!is_writable || self.marked.contains(&page), "page {page}");
        }
    }
}

proptest! {
    #[test]
    fn a_log_has_what_was_written_since_its_marks_were_taken(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
    }
}
