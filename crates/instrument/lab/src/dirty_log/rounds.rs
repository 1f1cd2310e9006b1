//! A VM whose guests write, while its log is switched on, harvested and switched off.

use std::sync::Arc;
use std::thread::{Builder, ScopedJoinHandle, scope};
use std::time::Instant;

use anyhow::Context;
use mayfly_machine::{Machine, Rigour};
use mayfly_platform::Op;
use mayfly_platform::address::{Gfn, PAGE_SIZE};
use mayfly_record::{Chance, nanoseconds};
use mayfly_stage2::Level;
use rustix::thread::{Pid, gettid};

use super::design::{Design, Dirty, Slot};
use super::guest::{Course, Guest, Phase, Progress, Stalls};
use crate::crew::WHAT;
use crate::idle::idle;
use crate::params::Size;
use crate::parking::until_parked;
use crate::patience::{all_run, ended};
use crate::start::{Start, Starts};
use crate::work::{Meter, Spent, ThreadRole, Threads, cpu_here};

/// Harvests while all vCPUs write; one more when they have stopped.
pub(super) const HARVESTS: u32 = 2;

/// The work that a row's start is told of.
pub(super) const CYCLE: &str = "cycle";

/// Frames that are there for tables: of each block of the memory four, since a design makes a block's table anew in each
/// cycle, and those before it may still await their readers; and some for roots, directories and stocks.
fn provided(memory: Size) -> u64 {
    4 * memory.bytes() / (Level::MIB2.pages() * PAGE_SIZE) + 1024
}

const STACK: usize = 256 << 10;

/// What is done to a VM.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) vcpus: u32,
    pub(super) memory: Size,
    /// Of its pages, how many in a hundred are written.
    pub(super) written: u32,
    /// Where chance begins.
    pub(super) seed: u64,
}

impl Shape {
    /// The pages that are written, in any order: each in a part of its own of the memory, which are equally long.
    pub(super) fn pages(self) -> Vec<u64> {
        let pages = self.memory.bytes() / PAGE_SIZE;
        let count = (pages * u64::from(self.written) / 100).max(u64::from(self.vcpus));
        let mut chance = Chance::new(self.seed);
        let part = |index: u64| pages * index / count;
        let mut all: Vec<u64> = (0..count)
            .map(|index| {
                let (first, next) = (part(index), part(index + 1));
                first + chance.below(u128::from(next - first))
            })
            .collect();
        chance.shuffle(&mut all);
        all
    }
}

/// A call, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Call {
    /// Of the caller's processor.
    pub(super) cpu: u64,
    /// On the clock.
    pub(super) wall: u64,
}

/// What came of one VM. Times in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) start: Vec<Call>,
    pub(super) harvest: Vec<Call>,
    pub(super) clear: Vec<Call>,
    pub(super) stop: Vec<Call>,
    /// Of writes that faulted while the log was on, in order of length.
    pub(super) stalls: Vec<u64>,
    /// Of these, those that began during a call.
    pub(super) called_stalls: Vec<u64>,
    /// Pages in the harvests while vCPUs wrote.
    pub(super) harvested: u64,
    /// Pages that were compared at the end.
    pub(super) compared: u64,
    /// Of these, those whose copy is not what was written last.
    pub(super) lost: u64,
    /// On KVM, each vCPU's longest pass over its pages while there was a log.
    pub(super) passes: Vec<u64>,
    /// Tables below the roots before the start, and after the stop. Tables that are still to be freed are not among them.
    pub(super) tables: [u64; 2],
    pub(super) invalidations: u64,
    /// What the cycle begins from.
    pub(super) starts: Starts,
    /// From before the start until after the stop.
    pub(super) spent: Spent,
    /// Frames of tables that were not given back.
    pub(super) leaked: u64,
}

impl Measured {
    /// The caller's CPU time of all calls.
    pub(super) fn cycle(&self) -> u64 {
        let calls = [&self.start, &self.harvest, &self.clear, &self.stop];
        calls.into_iter().flatten().map(|call| call.cpu).sum()
    }
}

/// Makes a machine and a VM of one design, and goes through a cycle.
pub(super) fn measure<D: Design>(
    shape: Shape,
    design: impl FnOnce(&Machine, Arc<Slot>) -> anyhow::Result<D>,
) -> anyhow::Result<Measured> {
    let frames = crate::populate::frames_for(shape.memory)?;
    let machine = Machine::with_frames(frames).context("starting the machine")?;
    machine.hardware().set_rigour(Rigour::empty());
    let pages = shape.pages();
    let host = Arc::new(Slot::new(&machine, shape.memory.bytes())?);
    // The memory of the guest is there by then; what changes from here on is tables. Their frames are there as well: a fault
    // of the host's, at the first write to a frame, would be most of what a table costs.
    host.blocks().try_for_each(|block| block.map(drop))?;
    machine.hardware().arena().provide(provided(shape.memory));
    let before = machine.hardware().arena().in_use();
    let design = design(&machine, Arc::clone(&host))?;
    let course = Arc::new(Course::new(idle(shape.vcpus)));
    let progress: Vec<Arc<Progress>> = (0..shape.vcpus).map(|_| Arc::default()).collect();
    let mut measured = scope(|scope| {
        let all: Vec<_> = progress
            .iter()
            .zip(0..)
            .map(|(progress, id)| {
                let own = pages.iter().skip(id).step_by(shape.vcpus as usize);
                let own: Vec<Gfn> = own.map(|&page| Gfn::new(page)).collect();
                let mut guest = Guest::new(machine.hardware(), own, &course, progress);
                let design = &design;
                let mut vcpu = design.create_vcpu()?;
                Builder::new()
                    .name("vcpu".into())
                    .stack_size(STACK)
                    .spawn_scoped(scope, move || {
                        progress.thread.get_or_init(gettid);
                        design.run(&mut vcpu, &mut guest)?;
                        Ok(guest.stalls)
                    })
                    .context(WHAT)
            })
            .collect::<anyhow::Result<_>>()
            .inspect_err(|_| course.end())?;
        let mut cycle = Cycle {
            design: &design,
            machine: &machine,
            host: &host,
            pages: &pages,
            copy: vec![0; pages.len()],
            places: places(&pages, host.pages()),
            course: &course,
            vcpus: &progress,
            dirty: Dirty::of(host.pages()),
            measured: Measured::default(),
        };
        let ran = cycle.run();
        let mut measured = cycle.measured;
        course.end();
        for vcpu in &progress {
            vcpu.parking.let_go();
        }
        let joined: Vec<_> = all.into_iter().map(ScopedJoinHandle::join).collect();
        for vcpu in joined {
            let Stalls { all, called } = ended(vcpu)?;
            measured.stalls.extend(all);
            measured.called_stalls.extend(called);
        }
        ran.map(|()| measured)
    })?;
    measured.stalls.sort_unstable();
    measured.called_stalls.sort_unstable();
    design.destroy()?;
    measured.leaked = machine.hardware().arena().in_use().saturating_sub(before);
    Ok(measured)
}

/// Where each page of the memory stands in `pages`, if it does.
fn places(pages: &[u64], all: u64) -> Vec<u32> {
    let mut places = vec![u32::MAX; all as usize];
    for (page, place) in pages.iter().zip(0..) {
        places[*page as usize] = place;
    }
    places
}

/// A VM whose vCPUs run, and what a VMM that copies it has of it.
struct Cycle<'a, D> {
    design: &'a D,
    machine: &'a Machine,
    host: &'a Slot,
    /// Those that are written.
    pages: &'a [u64],
    /// What was copied of each.
    copy: Vec<u64>,
    places: Vec<u32>,
    course: &'a Course,
    vcpus: &'a [Arc<Progress>],
    dirty: Dirty,
    measured: Measured,
}

impl<D: Design> Cycle<'_, D> {
    fn run(&mut self) -> anyhow::Result<()> {
        self.all_run()?;
        let invalidations = || self.machine.hardware().charged(Op::TlbInvalidation);
        let invalidated = invalidations();
        let vcpus = self.vcpus.len() as u64;
        let mapped = self.design.mapped();
        self.measured.tables[0] = mapped.tables;
        let start = Start { mapped: Some(mapped), slots: 1, vcpus, devices: None };
        self.measured.starts.note(CYCLE, start);
        let meter = Meter::begin(threads(self.vcpus.iter().filter_map(|vcpu| vcpu.thread.get())));
        self.course.set(Phase::Called);
        let start = timed(|| self.design.start())?;
        self.course.set(Phase::Logged);
        self.measured.start.push(start);
        if D::BEGINS_FULL {
            // All of it is copied once, part by part as it is cleared.
            self.harvest(true)?;
        } else {
            for place in 0..self.pages.len() {
                self.copy[place] = self.host.word(self.pages[place]);
            }
        }
        for _ in 0..HARVESTS {
            self.all_run()?;
            self.harvest(true)?;
        }
        self.all_run()?;
        self.park()?;
        self.harvest(false)?;
        self.compare();
        self.course.set(Phase::Unlogged);
        for vcpu in self.vcpus {
            vcpu.parking.let_go();
        }
        self.all_run()?;
        let stop = timed(|| self.design.stop())?;
        self.measured.stop.push(stop);
        self.measured.spent = meter.end();
        self.measured.invalidations = invalidations() - invalidated;
        self.all_run()?;
        self.measured.tables[1] = self.design.mapped().tables;
        Ok(())
    }

    /// Waits until every guest has gone over its pages once, from their beginning to their end.
    fn all_run(&self) -> anyhow::Result<()> {
        all_run(self.vcpus, Progress::passes)
    }

    fn park(&self) -> anyhow::Result<()> {
        for vcpu in self.vcpus {
            vcpu.parking.ask();
        }
        until_parked(|| self.vcpus.iter().map(|vcpu| &vcpu.parking), || Ok(()))
    }

    /// Harvests, and copies what was written; it is part of the cycle if it `counts`.
    fn harvest(&mut self, counts: bool) -> anyhow::Result<()> {
        let Self { design, course, dirty, .. } = self;
        dirty.empty();
        if counts {
            course.set(Phase::Called);
        }
        let harvest = timed(|| design.harvest(dirty))?;
        let clear = if D::CLEARS { Some(timed(|| design.clear(dirty))?) } else { None };
        course.set(Phase::Logged);
        if counts {
            self.measured.harvest.push(harvest);
            self.measured.clear.extend(clear);
        }
        for page in self.dirty.pages() {
            self.measured.harvested += u64::from(counts);
            if let Some(copy) = self.copy.get_mut(self.places[page as usize] as usize) {
                *copy = self.host.word(page);
            }
        }
        Ok(())
    }

    /// What was copied is what the guests have left, which are parked.
    fn compare(&mut self) {
        self.measured.compared += self.pages.len() as u64;
        let is_lost = |(page, copy): &(&u64, &u64)| self.host.word(**page) != **copy;
        self.measured.lost += self.pages.iter().zip(&self.copy).filter(is_lost).count() as u64;
    }
}

/// Those of the vCPUs.
pub(super) fn threads<'a>(vcpus: impl Iterator<Item = &'a Pid>) -> Threads {
    vcpus.fold(Threads::default(), |all, vcpu| all.and(ThreadRole::Vcpu, *vcpu))
}

/// Makes a call.
pub(super) fn timed(call: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Call> {
    let (wall, cpu) = (Instant::now(), cpu_here());
    call()?;
    let cpu = cpu_here() - cpu;
    Ok(Call { cpu, wall: nanoseconds(wall.elapsed()) })
}
