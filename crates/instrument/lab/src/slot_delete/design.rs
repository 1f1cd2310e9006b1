//! The trait that each design of root lists and page tables implements for this experiment.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Context;
use mayfly_machine::address_space::{Backing, Resolved};
use mayfly_machine::{HostMemory, HostSpace, Machine};
use mayfly_memslot::Hva;
use mayfly_platform::address::{Gfn, PAGE_SIZE, Pfn};
use mayfly_stage2::Level;

use super::guest::Guest;
use super::watch::Log;
use crate::start::Start;
use crate::work::Threads;

/// A part of the guest's memory.
///
/// In the host it is contiguous, but a page away from where the guest's blocks would begin: all of it is mapped by
/// pages of 4 KiB.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) id: u16,
    pub(crate) base: Gfn,
    pub(crate) memory: HostMemory,
    space: Arc<HostSpace>,
}

impl Slot {
    /// Memory of `bytes` bytes, for the GiB of guest memory from `gib` on, less the first page.
    pub(crate) fn new(machine: &Machine, id: u16, gib: u64, bytes: u64) -> anyhow::Result<Self> {
        let memory = machine.map_backed(bytes, Backing::Contiguous).context("mapping memory")?;
        let base = Gfn::new(gib * Level::GIB1.pages() + 1);
        Ok(Self { id, base, memory, space: Arc::clone(machine.space()) })
    }

    pub(crate) fn pages(&self) -> u64 {
        self.memory.size() / PAGE_SIZE
    }

    /// Its guest frames.
    pub(crate) fn gfns(&self) -> Range<Gfn> {
        self.base..Gfn::new(self.base.get() + self.pages())
    }

    /// The offset of a page of it in its memory.
    pub(crate) fn offset(&self, gfn: Gfn) -> u64 {
        (gfn.get() - self.base.get()) * PAGE_SIZE
    }

    /// Its guest frames in runs whose host frames follow each other, each run with the first of these.
    pub(crate) fn runs(&self) -> anyhow::Result<Vec<(Range<Gfn>, Pfn)>> {
        (0..self.pages())
            .step_by(Level::GIB1.pages() as usize)
            .map(|page| {
                let first = Gfn::new(self.base.get() + page);
                let last = (first.get() + Level::GIB1.pages()).min(self.gfns().end.get());
                let hva = Hva::new(self.memory.hva().get() + page * PAGE_SIZE);
                let Resolved { pfn, .. } = self.space.resolve(hva, true).context("the memory")?;
                Ok((first..Gfn::new(last), pfn))
            })
            .collect()
    }
}

/// Frames of tables that nobody can find any more, and that are not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// That the design's own threads have yet to free.
    pub(crate) awaited: u64,
    /// That a vCPU holds until it runs again.
    pub(crate) held: u64,
}

/// A VM of one design, called by several threads at once; those that change slots take turns.
pub(crate) trait Design: Send + Sync {
    /// Run by one thread at a time.
    type Vcpu: Send;

    /// A new vCPU, whose number is how many there were.
    fn create_vcpu(&self) -> anyhow::Result<Self::Vcpu>;

    /// Runs the vCPU until it is kicked and its guest does not [park](Guest::park). Where its guest comes upon a hole in
    /// its memory, it goes on behind it.
    fn run(&self, vcpu: &mut Self::Vcpu, guest: &mut Guest) -> anyhow::Result<()>;

    /// Has a vCPU come out, now or as soon as it runs.
    fn kick(&self, vcpu: u32);

    /// Gives the guest a slot.
    fn create_slot(&self, slot: &Slot) -> anyhow::Result<()>;

    /// Takes a slot away. When this returns, no vCPU reads or writes its memory.
    fn delete_slot(&self, slot: &Slot) -> anyhow::Result<()>;

    /// Maps all of a slot by pages, where the root is that vCPUs run on.
    fn populate(&self, slot: &Slot) -> anyhow::Result<()>;

    /// What the VM has.
    fn start(&self) -> Start;

    /// Its threads that are no vCPU's.
    fn threads(&self) -> Threads;

    /// What is left of what was deleted.
    fn left(&self) -> Left;

    /// Ends the VM, whose vCPUs are gone. Returns the books of its own threads, without what that takes.
    fn destroy(self) -> anyhow::Result<Log>;
}
