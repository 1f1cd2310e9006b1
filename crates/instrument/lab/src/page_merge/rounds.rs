//! VMs whose pages become equal and differ again, round after round, while their vCPUs read, write and check.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use mayfly_machine::MachineVcpu;
use mayfly_machine::address_space::{Protection, Resolved};
use mayfly_memslot::Hva;
use mayfly_platform::Op;
use mayfly_platform::address::Pfn;
use mayfly_stage2::{Format, Level};
use mayfly_vm::{Error, Exit, HostFault};
use rustix::thread::{Pid, gettid};

use super::guest::{Guest, Progress, Seat, Tally};
use super::names::{
    ENTRIES_WRITTEN, FAULTS_REFUSED, FROZEN_WAITS, TABLES_FREED, TABLES_KEPT, TLB_INVALIDATIONS,
};
use super::pattern::{Use, count, pages_of};
use super::rig::{Rig, Subject};
use super::scans::Scans;
use super::shape::Shape;
use super::watched::{Log, runs_a_vcpu};
use crate::idle::idle;
use crate::patience::{self, Look, ended, two_more};
use crate::start::{Start, Starts};
use crate::work::{Interrupts, Meter, Spent, ThreadRole, Threads};

/// Pages that are write-protected together.
const PROTECTED: usize = 8;

/// Between two batches of the merger.
const PAUSE: Duration = Duration::from_micros(100);

/// A guest that comes upon memory that is elsewhere, or may not be written, tries again after this.
const RETRY: Duration = Duration::from_micros(100);

/// What begins from what each VM has, in records.
pub(super) const BEGINS: &str = "the round";

/// What the core has charged for.
pub(super) const CHARGED: [(&str, Op); 6] = [
    (TLB_INVALIDATIONS, Op::TlbInvalidation),
    (ENTRIES_WRITTEN, Op::EntriesWritten(0)),
    (TABLES_FREED, Op::TablesFreed(0)),
    (TABLES_KEPT, Op::TablesKept(0)),
    (FROZEN_WAITS, Op::FrozenWait),
    (FAULTS_REFUSED, Op::FaultRefused),
];

/// What came of VMs.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) starts: Starts,
    pub(super) log: Log,
    pub(super) scans: Scans,
    pub(super) tally: Tally,
    pub(super) charged: [u64; CHARGED.len()],
    /// Invalidations by address that those of TLBs took, and what guests' TLBs were filled with again on account of any.
    pub(super) tlbs: Tlbs,
    pub(super) merged: u64,
    pub(super) broken: u64,
    /// What was shared when all was merged: as the merger says it, and as counted page by page.
    pub(super) shared: [Shared; 2],
    /// What should have been.
    pub(super) expected: Shared,
    /// Rounds in which the three were not equal.
    pub(super) unbalanced: u64,
    pub(super) spent: Spent,
    /// Frames that were not given back.
    pub(super) leaked: u64,
}

impl Measured {
    /// What the core has charged for, of [`CHARGED`] that of this name.
    pub(super) fn charged(&self, name: &str) -> u64 {
        let at = CHARGED.iter().position(|(charged, _)| *charged == name);
        self.charged[at.expect("it is charged for")]
    }
}

/// What invalidations took of TLBs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tlbs {
    pub(super) addresses: u64,
    pub(super) refills: u64,
}

/// What is shared, by the merger's names: `pages_shared`, `pages_sharing`, `ksm_zero_pages`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shared {
    pub(super) frames: u64,
    pub(super) sharing: u64,
    pub(super) zero: u64,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.frames, self.sharing, self.zero)
    }
}

/// Has VMs under one variant go through so many rounds, and ends them.
pub(super) fn measure<F: Format>(
    variant: &str,
    shape: Shape,
    rounds: u32,
) -> anyhow::Result<Measured> {
    let rig = Rig::<F>::new(variant, shape)?;
    let wanted = Arc::new(AtomicU64::new(0));
    let progress: Vec<Arc<Progress>> =
        (0..shape.vms * shape.vcpus).map(|_| Arc::default()).collect();
    let ends = AtomicBool::new(false);
    let mut measured = Measured::default();
    scope(|scope| {
        let dismiss = || {
            ends.store(true, Ordering::Release);
            for Subject { vm, .. } in &rig.vms {
                for id in 0..shape.vcpus {
                    vm.kick(id);
                }
            }
        };
        let mut vcpus = Vec::new();
        let idle = idle(shape.vms * shape.vcpus);
        for (progress, seat) in progress.iter().zip(0_u32..) {
            let (vm, vcpu) = (seat / shape.vcpus, seat % shape.vcpus);
            let subject = &rig.vms[vm as usize];
            let (vcpus_of, pages) = (shape.vcpus as usize, pages_of(shape.memory));
            let guest = Guest::<F>::new(
                rig.machine.hardware(),
                Seat { vm, vcpu: vcpu as usize, vcpus: vcpus_of, pages, idle, clock: rig.clock },
                Arc::clone(&subject.windows),
                Arc::clone(progress),
                Arc::clone(&wanted),
            );
            let ends = &ends;
            let started =
                subject.vm.create_vcpu(vcpu).context("creating a vCPU").and_then(|vcpu| {
                    Builder::new()
                        .name("vcpu".into())
                        .spawn_scoped(scope, move || {
                            runs_a_vcpu();
                            progress.thread.get_or_init(gettid);
                            run(vcpu, guest, ends)
                        })
                        .context("starting a vCPU's thread")
                });
            vcpus.push(started.inspect_err(|_| dismiss())?);
        }
        let run = Running { rig: &rig, wanted: &wanted, progress: &progress, vcpus: &vcpus, shape };
        let ran = run.all_rounds(&mut measured, rounds);
        dismiss();
        for joined in vcpus.into_iter().map(ScopedJoinHandle::join) {
            measured.tally += ended(joined)?;
        }
        ran
    })?;
    measured.leaked = rig.end();
    Ok(measured)
}

/// Runs a vCPU until the end.
fn run<F: Format>(
    mut vcpu: MachineVcpu<F>,
    mut guest: Guest<F>,
    ends: &AtomicBool,
) -> anyhow::Result<Tally> {
    while !ends.load(Ordering::Acquire) {
        match vcpu.run(&mut guest) {
            Exit::Kicked => {}
            Exit::Failed(_, Error::Host(HostFault::NotMapped | HostFault::ReadOnly)) => {
                sleep(RETRY);
            }
            exit => bail!("a vCPU came out with {exit:?}"),
        }
    }
    Ok(guest.into_tally())
}

type Vcpus<'scope> = [ScopedJoinHandle<'scope, anyhow::Result<Tally>>];

/// The VMs while their vCPUs run.
struct Running<'a, 'scope, F: Format> {
    rig: &'a Rig<F>,
    wanted: &'a AtomicU64,
    progress: &'a [Arc<Progress>],
    vcpus: &'a Vcpus<'scope>,
    shape: Shape,
}

impl<F: Format> Running<'_, '_, F> {
    fn all_rounds(&self, measured: &mut Measured, rounds: u32) -> anyhow::Result<()> {
        measured.expected = self.expected();
        self.sweep()?;
        for Subject { vm, .. } in &self.rig.vms {
            let arena = self.rig.machine.hardware().arena();
            measured.starts.note(BEGINS, Start::of(vm, arena));
        }
        let charged = || CHARGED.map(|(_, op)| self.rig.machine.hardware().charged(op));
        let (before, merged) = (charged(), self.rig.merger.statistics().pages_merged);
        let tlbs = self.tlbs();
        self.take_log();
        let vcpus = self.progress.iter().filter_map(|progress| progress.thread.get());
        let add = |threads: Threads, vcpu: &Pid| threads.and(ThreadRole::Vcpu, *vcpu);
        let meter = Meter::begin(vcpus.fold(self.rig.threads(), add));
        let interrupts = Interrupts::of(&self.rig.machine);
        (0..u64::from(rounds)).try_for_each(|round| self.round(round, measured))?;
        measured.spent = meter.end();
        Interrupts::of(&self.rig.machine).since(interrupts, &mut measured.spent);
        for ((charged, before), sum) in charged().iter().zip(before).zip(&mut measured.charged) {
            *sum = charged - before;
        }
        let Tlbs { addresses, refills } = self.tlbs();
        measured.tlbs =
            Tlbs { addresses: addresses - tlbs.addresses, refills: refills - tlbs.refills };
        measured.merged = self.rig.merger.statistics().pages_merged - merged;
        measured.log = self.take_log();
        measured.broken = measured.log.breaks.len() as u64;
        Ok(())
    }

    fn round(&self, round: u64, measured: &mut Measured) -> anyhow::Result<()> {
        let (start, scans) = (Instant::now(), self.rig.merger.statistics().full_scans);
        self.become_phase(2 * round + 1)?;
        self.merge_until("all equal pages are merged", || {
            let (Shared { sharing, zero, .. }, expected) = (self.shared(), measured.expected);
            let is_merged = sharing >= expected.sharing && zero >= expected.zero;
            if is_merged { Look::Break(()) } else { Look::Continue(sharing + zero) }
        })?;
        measured.scans.note(self.rig.merger.statistics().full_scans - scans, start.elapsed());
        self.sweep()?;

        for vm in &self.rig.vms {
            self.protect(vm)?;
        }
        for vm in &self.rig.vms {
            self.fork(vm)?;
        }
        for vm in &self.rig.vms {
            self.remap(vm)?;
        }
        self.sweep()?;
        self.balance(measured)?;

        self.become_phase(2 * round + 2)?;
        self.sweep()?;
        for vm in &self.rig.vms {
            let table = vm.hvas(0..Level::MIB2.pages() as usize);
            self.rig.machine.space().migrate_range(table).context("migrating")?;
        }
        self.sweep()
    }

    /// Has every page in this phase, and merges meanwhile.
    fn become_phase(&self, phase: u64) -> anyhow::Result<()> {
        self.wanted.store(phase, Ordering::Release);
        // Each takes the phase up with its next sweep.
        let swept = two_more(self.progress, Progress::sweeps);
        self.merge_until("all vCPUs are in the phase", || {
            let are_in = self.progress.iter().all(|progress| progress.phase() >= phase);
            if are_in {
                Look::Break(())
            } else {
                Look::Continue(swept().continue_value().unwrap_or(u64::MAX))
            }
        })
    }

    fn merge_until(&self, what: &str, look: impl Fn() -> Look) -> anyhow::Result<()> {
        self.until(what, || {
            self.rig.merger.scan_batch();
            look()
        })
    }

    /// Waits until every vCPU has gone over all pages, from the first to the last, since this was called.
    fn sweep(&self) -> anyhow::Result<()> {
        self.until("every vCPU has gone over its memory", two_more(self.progress, Progress::sweeps))
    }

    fn until(&self, what: &str, mut look: impl FnMut() -> Look) -> anyhow::Result<()> {
        patience::until(PAUSE, what, || {
            let found = look();
            let is_over = |vcpu: &ScopedJoinHandle<'_, _>| vcpu.is_finished();
            ensure!(found.is_break() || !self.vcpus.iter().any(is_over), "a vCPU has ended");
            Ok(found)
        })
    }

    /// Write-protects all of a VM's memory, part by part, and gives the right to write back.
    fn protect(&self, vm: &Subject<F>) -> anyhow::Result<()> {
        let space = self.rig.machine.space();
        let pages = pages_of(self.shape.memory);
        for first in (0..pages).step_by(PROTECTED) {
            let part = vm.hvas(first..first + PROTECTED);
            space.mprotect(part, Protection::ReadOnly).context("protecting")?;
        }
        space.mprotect(vm.hvas(0..pages), Protection::ReadWrite).context("protecting")
    }

    /// Has a VM's memory shared with a copy, which sees nothing of what the guest writes until it goes.
    fn fork(&self, vm: &Subject<F>) -> anyhow::Result<()> {
        let space = self.rig.machine.space();
        let range = vm.hvas(0..pages_of(self.shape.memory));
        let copy = space.fork(range.clone()).context("forking")?;
        self.sweep()?;
        let end = copy.get() + (range.end.get() - range.start.get());
        space.munmap(copy..Hva::new(end)).context("unmapping the fork")
    }

    /// Moves the first table's worth of a VM's memory away, and back.
    fn remap(&self, vm: &Subject<F>) -> anyhow::Result<()> {
        let space = self.rig.machine.space();
        let range = vm.hvas(0..Level::MIB2.pages() as usize);
        let moved = space.mremap(range.clone(), None).context("moving memory away")?;
        let end = moved.get() + (range.end.get() - range.start.get());
        let away = moved..Hva::new(end);
        space.mremap(away, Some(range.start)).context("moving memory back")?;
        Ok(())
    }

    fn expected(&self) -> Shared {
        let pages = pages_of(self.shape.memory);
        let (vms, patterned) = (u64::from(self.shape.vms), count(pages, Use::Patterned));
        Shared {
            // A page that is alone has no equal.
            frames: if vms > 1 { patterned } else { 0 },
            sharing: patterned * (vms - 1),
            zero: count(pages, Use::Zero) * vms,
        }
    }

    fn shared(&self) -> Shared {
        let statistics = self.rig.merger.statistics();
        Shared {
            frames: statistics.pages_shared,
            sharing: statistics.pages_sharing,
            zero: statistics.ksm_zero_pages,
        }
    }

    /// Compares what the merger says with what is there.
    fn balance(&self, measured: &mut Measured) -> anyhow::Result<()> {
        measured.shared = [self.shared(), self.recount()?];
        let is_balanced = measured.shared == [measured.expected; 2];
        measured.unbalanced += u64::from(!is_balanced);
        Ok(())
    }

    /// Counts page by page which frames have several pages. Those that are all zeroes are of a kind of their own.
    fn recount(&self) -> anyhow::Result<Shared> {
        let space = self.rig.machine.space();
        let mut frames = HashMap::<Pfn, u64>::new();
        for vm in &self.rig.vms {
            for page in 0..pages_of(self.shape.memory) {
                let Resolved { pfn, .. } = space.resolve(vm.hva(page), false)?;
                *frames.entry(pfn).or_default() += 1;
            }
        }
        frames.retain(|_, pages| *pages > 1);
        let arena = self.rig.machine.hardware().arena();
        let is_zero = |frame: Pfn| arena.words(frame).all(|word| word.load(Ordering::Relaxed) == 0);
        let (zero, others): (Vec<_>, Vec<_>) =
            frames.into_iter().partition(|(frame, _)| is_zero(*frame));
        let pages = |frames: &[(Pfn, u64)]| frames.iter().map(|(_, pages)| pages).sum::<u64>();
        let frames = others.len() as u64;
        Ok(Shared { frames, sharing: pages(&others) - frames, zero: pages(&zero) })
    }

    fn tlbs(&self) -> Tlbs {
        let tlbs = self.rig.machine.hardware().tlbs();
        Tlbs { addresses: tlbs.counts().addresses, refills: tlbs.cpu_counts().refills }
    }

    fn take_log(&self) -> Log {
        let mut all = Log::default();
        for vm in &self.rig.vms {
            let Log { merges, breaks, cpu, windows } = vm.watched.take();
            all.cpu += cpu;
            all.merges.extend(merges);
            all.breaks.extend(breaks);
            all.windows += windows;
        }
        all
    }
}
