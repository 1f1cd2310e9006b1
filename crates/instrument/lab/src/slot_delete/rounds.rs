//! A VM whose guests run, while a slot is deleted and created again a few times.

use std::sync::Arc;
use std::thread::{Builder, ScopedJoinHandle, scope};
use std::time::Instant;

use anyhow::Context;
use mayfly_machine::Machine;
use mayfly_platform::Op;
use mayfly_platform::address::Gfn;
use mayfly_record::nanoseconds;
use rustix::thread::{Pid, gettid};

use super::design::{Design, Left, Slot};
use super::guest::{Guest, Progress};
use super::refault::Refaulted;
use super::watch::{self, Log, RootLoad, Watch};
use crate::params::Size;
use crate::parking::until_parked;
use crate::patience::{LOOK, Look, all_run, ended, two_more, until};
use crate::start::Starts;
use crate::work::{Interrupts, Meter, Spent, ThreadRole, Threads, cpu_here};

/// Pages that a vCPU goes over, at most: of the memory that stays, and of the slot that is deleted.
const PAGES: (u64, u64) = (32, 8);

/// The GiB of guest memory that the deleted slot begins in: behind all that memory can be.
const DELETED_AT: u64 = Size::MAX.bytes() >> 30;

/// What begins from what a VM has, in records.
const DELETION: &str = "deletion";
const PARKED_DELETION: &str = "deletion with vCPUs parked";

const STACK: usize = 256 << 10;

/// What is done to a VM.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) vcpus: u32,
    /// How often the slot is deleted and created again while all vCPUs run; once more while every other one is parked.
    pub(super) deletions: u32,
    /// Whether each vCPU has a processor, and so have whoever deletes the slot and the worker.
    pub(super) has_clock: bool,
    /// The guest's memory that stays. The slot that is deleted has a fourth of that.
    pub(super) memory: Size,
}

impl Shape {
    /// Bytes that stay, and bytes that are deleted.
    fn slots(self) -> (u64, u64) {
        (self.memory.bytes(), self.memory.bytes() / 4)
    }

    /// How often the slot is deleted.
    pub(super) fn all_deletions(self) -> u32 {
        self.deletions + u32::from(self.vcpus > 1)
    }
}

/// What came of one VM. Times in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) starts: Starts,
    /// While all vCPUs ran.
    pub(super) deleted: Vec<Deleted>,
    /// While every other one was parked.
    pub(super) parked: Vec<Deleted>,
    pub(super) create: Vec<u64>,
    pub(super) stall: Vec<u64>,
    pub(super) loads: Vec<RootLoad>,
    pub(super) refaults: Vec<Refaulted>,
    pub(super) slices: Vec<u64>,
    /// In the deletions while all vCPUs ran, until what they left was free.
    pub(super) spent: Spent,
    /// What root loads took of their processors in these.
    pub(super) loads_cpu: u64,
    /// What a table that is the longest to go through takes on this host, found out apart.
    pub(super) table: u64,
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

impl Measured {
    /// What a deletion took of all, in nanoseconds: of the caller as long as it called, of vCPUs to load their roots, and
    /// of the threads that do the rest.
    pub(super) fn deletion_cpu(&self) -> u64 {
        let called: u64 = self.deleted.iter().map(|one| one.cpu).sum();
        let rest = [ThreadRole::Worker, ThreadRole::Reclaimer].into_iter();
        let rest: u64 = rest.filter_map(|role| self.spent.of(role)).map(|used| used.cpu).sum();
        (called + self.loads_cpu + rest) / self.deleted.len().max(1) as u64
    }
}

/// A deletion of the slot. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deleted {
    /// Until the call returns.
    pub(super) wall: u64,
    /// What the call takes of its processor.
    pub(super) cpu: u64,
    /// From the beginning of the call until all tables are free that it has left without use; nothing where a vCPU that
    /// is parked holds some.
    pub(super) until_freed: Option<u64>,
    /// The most frames of tables meanwhile.
    pub(super) most_tables: u64,
    /// Frames that vCPUs hold which are parked.
    pub(super) held: u64,
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
    watch: &Watch,
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
                let (stay, go) = memory.pages(id);
                let guest = Guest::new(machine.hardware(), stay, go, Arc::clone(progress));
                let design = &design;
                let mut vcpu = design.create_vcpu()?;
                Builder::new()
                    .name("vcpu".into())
                    .stack_size(STACK)
                    .spawn_scoped(scope, move || {
                        progress.thread.get_or_init(gettid);
                        run(design, &mut vcpu, guest)
                    })
                    .context("starting a vCPU's thread")
            })
            .collect::<anyhow::Result<_>>()
            .inspect_err(|_| stop(&design, &progress))?;
        let running =
            Running { design: &design, machine, watch, memory: &memory, vcpus: &progress };
        // The first vCPU that runs makes the root, without which there is nothing to map memory in.
        let ran = all_run(&progress, Progress::steps).and_then(|()| {
            (0..shape.all_deletions())
                .try_for_each(|number| running.deletion(number == shape.deletions, &mut measured))
        });
        stop(&design, &progress);
        let joined: Vec<_> = vcpus.into_iter().map(ScopedJoinHandle::join).collect();
        for vcpu in joined {
            let Ended { reads, mismatches, refaults, log } = ended(vcpu)?;
            measured.refaults.extend(refaults);
            measured.reads += reads;
            measured.mismatches += mismatches;
            let counted = log.loads.iter().take(shape.deletions as usize);
            measured.loads_cpu += counted.map(|load| load.cpu).sum::<u64>();
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
    refaults: Vec<Refaulted>,
    log: Log,
}

/// Has every vCPU return, parked or not.
fn stop(design: &impl Design, vcpus: &[Arc<Progress>]) {
    for (progress, id) in vcpus.iter().zip(0..) {
        progress.parking.let_go();
        design.kick(id);
    }
}

fn run<D: Design>(design: &D, vcpu: &mut D::Vcpu, mut guest: Guest) -> anyhow::Result<Ended> {
    design.run(vcpu, &mut guest)?;
    let Guest { reads, mismatches, refault, .. } = guest;
    Ok(Ended { reads, mismatches, refaults: refault.done, log: watch::collect() })
}

/// A VM whose vCPUs run.
struct Running<'a, D> {
    design: &'a D,
    machine: &'a Machine,
    watch: &'a Watch,
    memory: &'a Memory,
    vcpus: &'a [Arc<Progress>],
}

impl<D: Design> Running<'_, D> {
    /// Deletes the slot and creates it again; while every other vCPU is parked, if they are to be.
    fn deletion(&self, parks: bool, measured: &mut Measured) -> anyhow::Result<()> {
        let Self { design, machine, watch, memory, vcpus } = *self;
        design.populate(&memory.stays)?;
        design.populate(&memory.deleted)?;
        measured.starts.note(if parks { PARKED_DELETION } else { DELETION }, design.start());
        all_run(vcpus, Progress::steps)?;
        if parks {
            self.park()?;
        }
        for progress in vcpus {
            progress.take_stall();
        }

        let invalidations = || machine.hardware().charged(Op::TlbInvalidation);
        let invalidated = invalidations();
        watch.take_most_tables();
        let meter = Meter::begin(self.threads());
        let interrupts = Interrupts::of(machine);
        let (start, cpu) = (Instant::now(), cpu_here());
        design.delete_slot(&memory.deleted)?;
        let (wall, cpu) = (nanoseconds(start.elapsed()), cpu_here() - cpu);
        let left = memory.words();
        let (until_freed, held) = self.wait_until_freed(start)?;
        let mut spent = meter.end();
        Interrupts::of(machine).since(interrupts, &mut spent);
        let most_tables = watch.take_most_tables();
        let deleted = Deleted { wall, cpu, until_freed, most_tables, held };
        measured.invalidations += invalidations() - invalidated;

        for progress in vcpus {
            progress.parking.let_go();
        }
        all_run(vcpus, Progress::steps)?;
        let mut roots: Vec<u64> = vcpus.iter().map(|progress| progress.top()).collect();
        roots.sort_unstable();
        roots.dedup();
        measured.most_roots = measured.most_roots.max(roots.len());
        self.wait_until_whole()?;
        let found = memory.words();
        measured.late_writes +=
            left.iter().zip(&found).filter(|(left, found)| left != found).count() as u64;

        let start = Instant::now();
        design.create_slot(&memory.deleted)?;
        let create = nanoseconds(start.elapsed());
        if parks {
            measured.parked.push(deleted);
        } else {
            measured.deleted.push(deleted);
            measured.spent += &spent;
            measured.create.push(create);
            measured.stall.extend(vcpus.iter().map(|progress| progress.take_stall()));
        }
        Ok(())
    }

    fn threads(&self) -> Threads {
        let vcpus = self.vcpus.iter().filter_map(|progress| progress.thread.get());
        let add = |threads: Threads, vcpu: &Pid| threads.and(ThreadRole::Vcpu, *vcpu);
        vcpus.fold(self.design.threads(), add)
    }

    /// Waits until every guest has on its root what it needs: nobody else is to map it.
    fn wait_until_whole(&self) -> anyhow::Result<()> {
        until(LOOK, "all guests have their memory mapped again", || {
            let whole = self.vcpus.iter().filter(|progress| progress.is_whole()).count();
            let are_all = whole == self.vcpus.len();
            Ok(if are_all { Look::Break(()) } else { Look::Continue(whole as u64) })
        })
    }

    /// Parks every other vCPU.
    fn park(&self) -> anyhow::Result<()> {
        let asked = || self.vcpus.iter().zip(0..).skip(1).step_by(2);
        for (progress, id) in asked() {
            progress.parking.ask();
            self.design.kick(id);
        }
        until_parked(|| asked().map(|(progress, _)| &progress.parking), || Ok(()))
    }

    /// Waits until all tables are free that were left without use at `start` or later, or none but vCPUs that are parked
    /// keep them from being so. Returns how long that took from `start` on, and what these hold.
    fn wait_until_freed(&self, start: Instant) -> anyhow::Result<(Option<u64>, u64)> {
        let run = self.vcpus.iter().filter(|progress| !progress.parking.is_asked());
        let run: Vec<Arc<Progress>> = run.cloned().collect();
        let all_have = two_more(&run, Progress::steps);
        let mut until_freed = None;
        let mut held = 0;
        until(LOOK, "all unused tables are free", || {
            let Left { awaited, held: by_vcpus } = self.design.left();
            held = by_vcpus;
            if awaited + held == 0 {
                until_freed = Some(nanoseconds(start.elapsed()));
                return Ok(Look::Break(()));
            }
            let have_run = all_have();
            let is_parked = run.len() < self.vcpus.len();
            Ok(match have_run {
                Look::Break(()) if awaited == 0 && is_parked => Look::Break(()),
                Look::Break(()) => Look::Continue(u64::MAX - awaited - held),
                Look::Continue(steps) => Look::Continue(steps),
            })
        })?;
        Ok((until_freed, held))
    }
}

impl Memory {
    /// The pages of vCPU `id`: those that stay, and those that do not.
    fn pages(&self, id: u64) -> (impl Iterator<Item = Gfn>, impl Iterator<Item = Gfn>) {
        (self.share(&self.stays, PAGES.0, id), self.share(&self.deleted, PAGES.1, id))
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
