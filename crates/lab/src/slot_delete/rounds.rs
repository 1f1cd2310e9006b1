//! A VM whose guests run, while a slot is deleted and created again a few times.

use std::sync::Arc;
use std::thread::{Builder, ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

use anyhow::Context;
use mayfly_machine::Machine;
use mayfly_platform::Op;
use mayfly_platform::address::Gfn;
use mayfly_record::nanoseconds;

use super::design::{Design, Slot};
use super::guest::{Guest, Progress};
use super::watch::{self, Log, RootLoad};
use crate::params::{Size, Zap};
use crate::patience::{ended, two_more, until};

/// Pages that a vCPU goes over, at most: of the memory that stays, and of the slot that is deleted.
const PAGES: (u64, u64) = (32, 8);

/// The GiB of guest memory that the deleted slot begins in: behind all that memory can be.
const DELETED_AT: u64 = Size::MAX.bytes() >> 30;

const STACK: usize = 256 << 10;

/// What is done to a VM.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) vcpus: u32,
    /// How often the slot is deleted and created again.
    pub(super) deletions: u32,
    /// The guest's memory that stays. The slot that is deleted has a fourth of that.
    pub(super) memory: Size,
}

impl Shape {
    /// Bytes that stay, and bytes that are deleted.
    fn slots(self) -> (u64, u64) {
        (self.memory.bytes(), self.memory.bytes() / 4)
    }

    /// Bytes of memory that are zapped in each deletion.
    pub(super) fn mapped(self, zap: Zap) -> u64 {
        let (stays, deleted) = self.slots();
        if zap == Zap::AllRoots { stays + deleted } else { deleted }
    }
}

/// What came of one VM. Times in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) delete: Vec<u64>,
    pub(super) create: Vec<u64>,
    pub(super) stall: Vec<u64>,
    pub(super) loads: Vec<RootLoad>,
    pub(super) slices: Vec<u64>,
    pub(super) reads: u64,
    pub(super) mismatches: u64,
    /// Words of deleted memory that changed.
    pub(super) late_writes: u64,
    /// The most roots that the guests of one moment ran on.
    pub(super) most_roots: usize,
    /// Of TLBs, from the beginning of a deletion until nothing is left to do of it.
    pub(super) invalidations: u64,
    /// Frames of tables that were not given back.
    pub(super) leaked: u64,
}

/// The two slots of a VM.
struct Memory {
    stays: Slot,
    deleted: Slot,
    vcpus: u64,
}

/// Has the VM's slot deleted and created again, and ends the VM.
pub(super) fn measure<D: Design>(
    design: D,
    machine: &Machine,
    shape: Shape,
) -> anyhow::Result<Measured> {
    let (stays, deleted) = shape.slots();
    let memory = Memory {
        stays: Slot::new(machine, 0, 0, stays)?,
        deleted: Slot::new(machine, 1, DELETED_AT, deleted)?,
        vcpus: shape.vcpus.into(),
    };
    // Memory of guests is taken at once; what changes from here on is tables.
    let before = machine.hardware().arena().in_use();
    drop(watch::collect());
    design.create_slot(&memory.stays)?;
    design.create_slot(&memory.deleted)?;
    let progress: Vec<Arc<Progress>> = (0..shape.vcpus).map(|_| Arc::default()).collect();
    let mut measured = Measured::default();
    scope(|scope| {
        let vcpus: Vec<_> = progress
            .iter()
            .zip(0..)
            .map(|(progress, id)| {
                let guest = Guest::new(machine.hardware(), memory.pages(id), Arc::clone(progress));
                let design = &design;
                let mut vcpu = design.create_vcpu()?;
                Builder::new()
                    .name("vcpu".into())
                    .stack_size(STACK)
                    .spawn_scoped(scope, move || run(design, &mut vcpu, guest))
                    .context("starting a vCPU's thread")
            })
            .collect::<anyhow::Result<_>>()
            .inspect_err(|_| design.stop())?;
        let ran = (0..shape.deletions)
            .try_for_each(|_| deletion(&design, machine, &memory, &progress, &mut measured));
        design.stop();
        let joined: Vec<_> = vcpus.into_iter().map(ScopedJoinHandle::join).collect();
        for vcpu in joined {
            let Ended { reads, mismatches, log } = ended(vcpu)?;
            measured.reads += reads;
            measured.mismatches += mismatches;
            measured.loads.extend(log.loads);
        }
        ran
    })?;
    measured.slices.extend(watch::collect().slices);
    measured.slices.extend(design.destroy()?.slices);
    measured.leaked = machine.hardware().arena().in_use().saturating_sub(before);
    Ok(measured)
}

/// What a vCPU's thread has to tell when it ends.
struct Ended {
    reads: u64,
    mismatches: u64,
    log: Log,
}

fn run<D: Design>(design: &D, vcpu: &mut D::Vcpu, mut guest: Guest) -> anyhow::Result<Ended> {
    design.run(vcpu, &mut guest)?;
    Ok(Ended { reads: guest.reads, mismatches: guest.mismatches, log: watch::collect() })
}

fn deletion(
    design: &impl Design,
    machine: &Machine,
    memory: &Memory,
    progress: &[Arc<Progress>],
    measured: &mut Measured,
) -> anyhow::Result<()> {
    design.populate(&memory.stays)?;
    design.populate(&memory.deleted)?;
    all_run(progress, Progress::steps)?;
    for progress in progress {
        progress.take_stall();
    }

    let invalidations = || machine.hardware().charged(Op::TlbInvalidation);
    let invalidated = invalidations();
    let start = Instant::now();
    design.delete_slot(&memory.deleted)?;
    measured.delete.push(nanoseconds(start.elapsed()));

    let left = memory.words();
    all_run(progress, Progress::steps)?;
    let mut roots: Vec<u64> = progress.iter().map(|progress| progress.top()).collect();
    roots.sort_unstable();
    roots.dedup();
    measured.most_roots = measured.most_roots.max(roots.len());
    let found = memory.words();
    measured.late_writes +=
        left.iter().zip(&found).filter(|(left, found)| left != found).count() as u64;

    let start = Instant::now();
    design.create_slot(&memory.deleted)?;
    measured.create.push(nanoseconds(start.elapsed()));
    measured.stall.extend(progress.iter().map(|progress| progress.take_stall()));
    design.settle();
    measured.invalidations += invalidations() - invalidated;
    Ok(())
}

/// Waits until every guest has done, from its beginning to its end, one of what `count` counts.
pub(super) fn all_run<P>(progress: &[Arc<P>], count: impl Fn(&P) -> u64) -> anyhow::Result<()> {
    let all_have = two_more(progress, count);
    until(Duration::from_micros(50), "all vCPUs have run", || Ok(all_have()))
}

impl Memory {
    /// The pages of vCPU `id`.
    fn pages(&self, id: u64) -> impl Iterator<Item = Gfn> {
        self.share(&self.stays, PAGES.0, id).chain(self.share(&self.deleted, PAGES.1, id))
    }

    /// The pages of `slot` that are vCPU `id`'s, `most` of them if there are enough.
    fn share(&self, slot: &Slot, most: u64, id: u64) -> impl Iterator<Item = Gfn> {
        let count = most.min(slot.pages() / self.vcpus);
        let first = slot.base.get() + id * count;
        (first..first + count).map(Gfn::new)
    }

    /// What the host finds in the pages that are deleted, of all vCPUs.
    fn words(&self) -> Vec<u64> {
        (0..self.vcpus)
            .flat_map(|id| self.share(&self.deleted, PAGES.1, id))
            .map(|gfn| self.deleted.memory.read_u64(self.deleted.offset(gfn)))
            .collect()
    }
}
