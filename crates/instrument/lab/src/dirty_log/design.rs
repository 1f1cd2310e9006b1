//! The trait that each design of a dirty log implements for this experiment, and what a harvest gives.

use std::sync::Arc;

use anyhow::Context;
use mayfly_machine::address_space::Backing;
use mayfly_machine::{HostMemory, HostSpace, Machine};
use mayfly_memslot::Hva;
use mayfly_platform::address::{Gfn, PAGE_SHIFT, PAGE_SIZE, Pfn};
use mayfly_stage2::Level;

use super::guest::Guest;
use crate::start::Mapped;

/// The guest's memory: one slot, from guest frame 0 on, in blocks of 2 MiB of the host's.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) memory: HostMemory,
    space: Arc<HostSpace>,
}

impl Slot {
    pub(super) fn new(machine: &Machine, bytes: u64) -> anyhow::Result<Self> {
        let memory = machine.map_backed(bytes, Backing::HugePages).context("mapping memory")?;
        Ok(Self { memory, space: Arc::clone(machine.space()) })
    }

    pub(crate) fn pages(&self) -> u64 {
        self.memory.size() >> PAGE_SHIFT
    }

    /// What the host has behind a page of it: the frame, and the level of the block that it is in. Asks the host, as a
    /// fault does.
    pub(crate) fn resolve(&self, gfn: Gfn) -> anyhow::Result<(Pfn, Level)> {
        let hva = Hva::new(self.memory.hva().get() + gfn.get() * PAGE_SIZE);
        let found = self.space.resolve(hva, true).context("the memory")?;
        Ok((found.pfn, found.level.min(Level::MIB2)))
    }

    /// The first frames of its blocks, each with the host's.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = anyhow::Result<(Gfn, Pfn)>> {
        (0..self.pages()).step_by(Level::MIB2.pages() as usize).map(|page| {
            let (pfn, level) = self.resolve(Gfn::new(page))?;
            anyhow::ensure!(level == Level::MIB2, "the host has no block behind page {page}");
            Ok((Gfn::new(page), pfn))
        })
    }

    /// The first word of a page.
    pub(super) fn word(&self, page: u64) -> u64 {
        self.memory.read_u64(page * PAGE_SIZE)
    }
}

/// Pages of the slot that were written, as a harvest gives them.
#[derive(Debug)]
pub(crate) struct Dirty {
    /// A bit a page.
    pub(crate) words: Vec<u64>,
    /// Which words have bits, where the design says so; otherwise, all have to be looked at.
    pub(crate) listed: Option<Vec<u32>>,
}

impl Dirty {
    pub(super) fn of(pages: u64) -> Self {
        Self { words: vec![0; pages.div_ceil(64) as usize], listed: None }
    }

    /// Adds pages of one word; for a design that lists.
    pub(crate) fn list(&mut self, word: u32, bits: u64) {
        let place = &mut self.words[word as usize];
        if *place == 0 {
            self.listed.get_or_insert_default().push(word);
        }
        *place |= bits;
    }

    /// Has nothing any more, nor a list of it: what is next is another harvest.
    pub(super) fn empty(&mut self) {
        match &mut self.listed {
            Some(listed) => listed.drain(..).for_each(|word| self.words[word as usize] = 0),
            None => self.words.fill(0),
        }
    }

    /// The pages.
    pub(super) fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        let all = self.words.iter().zip(0..).filter(|(word, _)| **word != 0);
        all.flat_map(|(word, index): (&u64, u64)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * index + bit)
        })
    }
}

/// A VM of one design. Its vCPUs run while one thread makes the calls.
pub(crate) trait Design: Send + Sync {
    /// Run by one thread at a time.
    type Vcpu: Send;

    /// Whether taking the marks is a call of its own. Where it is not, [`Design::harvest`] takes them.
    const CLEARS: bool;

    /// Whether the first harvest has every page, written or not.
    const BEGINS_FULL: bool = false;

    /// A new vCPU.
    fn create_vcpu(&self) -> anyhow::Result<Self::Vcpu>;

    /// Runs the vCPU until its guest [does not go on](Guest::rest).
    fn run(&self, vcpu: &mut Self::Vcpu, guest: &mut Guest) -> anyhow::Result<()>;

    /// Switches the log on. What is written after this returned is in the log.
    fn start(&self) -> anyhow::Result<()>;

    /// Says which pages are in the log. `dirty` is empty.
    fn harvest(&self, dirty: &mut Dirty) -> anyhow::Result<()>;

    /// Takes the pages of the harvest out of the log. What is written after this returned is in the log anew.
    fn clear(&self, _dirty: &mut Dirty) -> anyhow::Result<()> {
        Ok(())
    }

    /// Switches the log off, and has blocks again where they were.
    fn stop(&self) -> anyhow::Result<()>;

    /// What its tables map.
    fn mapped(&self) -> Mapped;

    /// Ends the VM, whose vCPUs are gone.
    fn destroy(self) -> anyhow::Result<()>;
}
