//! The running kernel's KVM.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use anyhow::ensure;
use mayfly_kvm::{DirtyRing, Exit, GuestMemory, Kvm, MemoryFlags, Payload, Vcpu, Vm};
use mayfly_platform::address::PAGE_SIZE;
use mayfly_record::{Host, ResultRow, nanoseconds};
use rustix::thread::{Pid, gettid};

use super::design::Dirty;
use super::metrics::{self, LONGEST_PASS};
use super::names::{INITIALLY_SET, MANUAL_PROTECT, RING};
use super::rounds::{CYCLE, Call, HARVESTS, Measured, Shape, threads, timed};
use crate::crew;
use crate::idle::idle;
use crate::mapping::Mapping;
use crate::parking::{Parking, until_parked};
use crate::patience::{LOOK, ended, two_more, until};
use crate::room::Room;
use crate::start::Start;
use crate::work::{self, Meter};

/// vCPUs beyond which a row is skipped.
pub(super) const MOST: u32 = 16;

/// The port that ends the guest's pass.
const PORT: u16 = 0x10;

/// Where the slot is that is logged; and where it ends at most, below what every guest's own tables map.
const SLOT: (u32, u64) = (1, 1 << 30);
const REACH: u64 = 3 << 30;

const LOGGED: MemoryFlags = MemoryFlags { read_only: false, log_dirty: true };

/// Words that are cleared at a time: those of 64 MiB.
const CLEARED: usize = 256;

/// Entries of a vCPU's ring: the most that KVM allows.
const ENTRIES: u32 = 1 << 16;

/// How writes are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logging {
    /// A bitmap that is read and cleared by one call.
    Protect,
    /// A bitmap that is cleared by a call of its own, of which every bit is set at first or none.
    Manual {
        initially_set: bool,
    },
    Ring,
}

impl Logging {
    fn of(variant: &str) -> Self {
        match variant {
            MANUAL_PROTECT => Self::Manual { initially_set: false },
            INITIALLY_SET => Self::Manual { initially_set: true },
            RING => Self::Ring,
            _ => Self::Protect,
        }
    }

    fn ready(self, vm: &Vm) -> Result<(), mayfly_kvm::Error> {
        match self {
            Self::Protect => Ok(()),
            Self::Manual { initially_set } => vm.protect_manually(initially_set),
            Self::Ring => vm.log_in_rings(ENTRIES),
        }
    }
}

/// Why there is no such VM, if there is none.
pub(super) fn why_not(variant: &str, shape: Shape) -> anyhow::Result<Option<String>> {
    if shape.vcpus > MOST {
        return Ok(Some(format!("more than {MOST} vCPUs are not run on KVM")));
    }
    if let Some(why) = Room::gather().why_not(shape.memory, Mapping::Pages, REACH - SLOT.1) {
        return Ok(Some(why));
    }
    let ready = Logging::of(variant).ready(&Vm::create(&Kvm::open()?)?);
    Ok(ready.err().map(|error| format!("this kernel's KVM has no such log: {error}")))
}

/// Which MMU the figures of this host's KVM are of.
pub(super) fn mmu(host: &Host) -> &'static str {
    match (host.arch.as_str(), host.kvm_tdp_mmu) {
        ("x86_64", Some(true)) => "x86's TDP MMU",
        ("x86_64", Some(false)) => "x86's shadow paging, or the code that shares it: no TDP MMU",
        ("x86_64", None) => "x86's, and the kernel does not tell whether by the TDP MMU",
        _ => "stage 2",
    }
}

/// What others see of a vCPU.
#[derive(Default)]
struct Progress {
    passes: AtomicU64,
    /// The longest pass, in nanoseconds.
    longest: AtomicU64,
    parking: Parking,
    /// What the kernel calls its thread.
    thread: OnceLock<Pid>,
}

impl Progress {
    fn passes(&self) -> u64 {
        self.passes.load(Ordering::Acquire)
    }
}

/// Goes through a cycle of a VM, and ends it.
pub(super) fn run(variant: &str, shape: Shape) -> anyhow::Result<Measured> {
    let logging = Logging::of(variant);
    let vm = Vm::create(&Kvm::open()?)?;
    logging.ready(&vm)?;
    let code = GuestMemory::map(Payload::FREE as usize)?;
    Payload::install(&code)?;
    let memory = Mapping::Blocks.guest_memory(usize::try_from(shape.memory.bytes())?)?;
    vm.set_memory_region(0, 0, &code, MemoryFlags::default())?;
    vm.set_memory_region(SLOT.0, SLOT.1, &memory, MemoryFlags::default())?;
    vm.create_irqchip()?;
    let (mut vcpus, mut rings) = (Vec::new(), Vec::new());
    for id in 0..shape.vcpus {
        let mut vcpu = vm.create_vcpu(id)?;
        vcpu.load(&Payload { touch: touched(shape, id), doorbell: None, port: PORT })?;
        if logging == Logging::Ring {
            rings.push(DirtyRing::map(&vcpu, ENTRIES)?);
        }
        vcpus.push(vcpu);
    }
    vm.finish_irqchip()?;

    let progress: Vec<Arc<Progress>> = vcpus.iter().map(|_| Arc::default()).collect();
    let (ends, idle) = (AtomicBool::new(false), idle(shape.vcpus));
    let pages = shape.memory.bytes() / PAGE_SIZE;
    let written = touched(shape, shape.vcpus - 1).end - SLOT.1;
    let mut cycle = Cycle {
        logging,
        vm: &vm,
        memory: &memory,
        rings,
        vcpus: &progress,
        copy: vec![0; (written / PAGE_SIZE) as usize],
        dirty: Dirty::of(pages),
        measured: Measured::default(),
    };
    let (ended_vcpus, ran) = scope(|scope| {
        let (all, ends) = (vcpus.into_iter().zip(&progress), &ends);
        let all = all.map(|(vcpu, progress)| move || go(vcpu, progress, ends, idle));
        let running = crew::start(scope, all, ends)?;
        let ran = cycle.run();
        ends.store(true, Ordering::Relaxed);
        for vcpu in &progress {
            vcpu.parking.let_go();
        }
        let joined: Vec<_> = running.into_iter().map(ScopedJoinHandle::join).collect();
        let ended = joined.into_iter().map(ended).collect::<anyhow::Result<Vec<_>>>()?;
        anyhow::Ok((ended, ran))
    })?;
    ran?;
    let Cycle { mut measured, rings, .. } = cycle;
    work::kvm(&vm, &ended_vcpus, &mut measured.spent);
    drop(rings);
    vm.destroy(ended_vcpus);
    Ok(measured)
}

/// The addresses of the pages that vCPU `id` writes: those of all vCPUs follow each other, from the slot's first on.
fn touched(shape: Shape, id: u32) -> Range<u64> {
    let pages = shape.memory.bytes() / PAGE_SIZE * u64::from(shape.written) / 100;
    let own = (pages / u64::from(shape.vcpus)).max(1) * PAGE_SIZE;
    let first = SLOT.1 + u64::from(id) * own;
    first..first + own
}

/// Runs a vCPU until it is to stop, with a rest after each pass. Returns it.
fn go(
    mut vcpu: Vcpu,
    progress: &Progress,
    ends: &AtomicBool,
    rest: Duration,
) -> anyhow::Result<Vcpu> {
    progress.thread.get_or_init(gettid);
    while !ends.load(Ordering::Relaxed) {
        let start = Instant::now();
        while !matches!(vcpu.run_to_exit()?, Exit::PortWrite { .. }) {
            // Its ring is full: whoever harvests makes room.
            sleep(LOOK);
        }
        progress.longest.fetch_max(nanoseconds(start.elapsed()), Ordering::Relaxed);
        progress.passes.fetch_add(1, Ordering::Release);
        progress.parking.park();
        if !rest.is_zero() {
            sleep(rest);
        }
    }
    Ok(vcpu)
}

/// A VM whose vCPUs run, and what a VMM that copies it has of it.
struct Cycle<'a> {
    logging: Logging,
    vm: &'a Vm,
    memory: &'a GuestMemory,
    rings: Vec<DirtyRing>,
    vcpus: &'a [Arc<Progress>],
    /// Of the pages that are written, the first of the slot.
    copy: Vec<u64>,
    dirty: Dirty,
    measured: Measured,
}

impl Cycle<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        self.all_run()?;
        self.take_longest();
        let vcpus = self.vcpus.len() as u64;
        // That of the guest's code, and that with the log. What KVM has mapped is not seen from outside.
        self.measured.starts.note(CYCLE, Start { slots: 2, vcpus, ..Start::default() });
        let meter = Meter::begin(threads(self.vcpus.iter().filter_map(|vcpu| vcpu.thread.get())));
        let set = |flags| Ok(self.vm.set_memory_region(SLOT.0, SLOT.1, self.memory, flags)?);
        let start = timed(|| set(LOGGED))?;
        self.measured.start.push(start);
        if self.logging == (Logging::Manual { initially_set: true }) {
            self.harvest(true)?;
        } else {
            for page in 0..self.copy.len() {
                self.copy[page] = self.word(page as u64)?;
            }
        }
        for _ in 0..HARVESTS {
            self.all_run()?;
            self.harvest(true)?;
        }
        self.all_run()?;
        self.measured.passes = self.take_longest();
        self.park()?;
        self.harvest(false)?;
        for page in 0..self.copy.len() {
            self.measured.lost += u64::from(self.word(page as u64)? != self.copy[page]);
        }
        self.measured.compared += self.copy.len() as u64;
        for vcpu in self.vcpus {
            vcpu.parking.let_go();
        }
        self.all_run()?;
        let set = |flags| Ok(self.vm.set_memory_region(SLOT.0, SLOT.1, self.memory, flags)?);
        let stop = timed(|| set(MemoryFlags::default()))?;
        self.measured.stop.push(stop);
        self.measured.spent = meter.end();
        self.all_run()
    }

    /// The first word of a page of the slot.
    fn word(&self, page: u64) -> anyhow::Result<u64> {
        Ok(self.memory.read_u64((page * PAGE_SIZE) as usize)?)
    }

    fn take_longest(&self) -> Vec<u64> {
        self.vcpus.iter().map(|vcpu| vcpu.longest.swap(0, Ordering::Relaxed)).collect()
    }

    fn all_run(&mut self) -> anyhow::Result<()> {
        let all_have = two_more(self.vcpus, Progress::passes);
        until(LOOK, "all vCPUs have written", || {
            let look = all_have();
            if look.is_continue() {
                self.empty_full_rings()?;
            }
            Ok(look)
        })
    }

    fn park(&mut self) -> anyhow::Result<()> {
        for vcpu in self.vcpus {
            vcpu.parking.ask();
        }
        until_parked(|| self.vcpus.iter().map(|vcpu| &vcpu.parking), || self.empty_full_rings())
    }

    /// A ring that is full is emptied while the guests run, and its pages are in the next harvest.
    fn empty_full_rings(&mut self) -> anyhow::Result<()> {
        if self.rings.iter().any(DirtyRing::is_full) {
            collect(&mut self.rings, &mut self.dirty)?;
            self.vm.reset_dirty_rings()?;
        }
        Ok(())
    }

    /// Harvests, and copies what was written; it is part of the cycle if it `counts`.
    fn harvest(&mut self, counts: bool) -> anyhow::Result<()> {
        let Self { logging, vm, rings, dirty, .. } = self;
        let mut clear: Option<Call> = None;
        let harvest = match logging {
            Logging::Ring => {
                let harvest = timed(|| collect(rings, dirty))?;
                clear = Some(timed(|| Ok(vm.reset_dirty_rings()?))?);
                harvest
            }
            Logging::Protect => timed(|| Ok(vm.dirty_log(SLOT.0, &mut dirty.words)?))?,
            Logging::Manual { .. } => {
                let harvest = timed(|| Ok(vm.dirty_log(SLOT.0, &mut dirty.words)?))?;
                clear = Some(timed(|| clear_parts(vm, &mut dirty.words))?);
                harvest
            }
        };
        if counts {
            self.measured.harvest.push(harvest);
            self.measured.clear.extend(clear);
        }
        for page in self.dirty.pages() {
            self.measured.harvested += u64::from(counts);
            if let Some(copy) = self.copy.get_mut(page as usize) {
                *copy = self.memory.read_u64((page * PAGE_SIZE) as usize)?;
            }
        }
        self.dirty.empty();
        Ok(())
    }
}

fn collect(rings: &mut [DirtyRing], dirty: &mut Dirty) -> anyhow::Result<()> {
    for ring in rings {
        let mut beyond = 0;
        ring.collect(|slot, page| match u32::try_from(page / 64) {
            Ok(word) if slot == SLOT.0 && (word as usize) < dirty.words.len() => {
                dirty.list(word, 1 << (page % 64));
            }
            _ => beyond += 1,
        });
        ensure!(beyond == 0, "{beyond} entries of a ring were of no page of the slot");
    }
    Ok(())
}

fn clear_parts(vm: &Vm, words: &mut [u64]) -> anyhow::Result<()> {
    for (words, part) in words.chunks_mut(CLEARED).zip(0..) {
        if words.iter().any(|&word| word != 0) {
            vm.clear_dirty_log(SLOT.0, part * CLEARED as u64 * 64, words)?;
        }
    }
    Ok(())
}

/// Fills a variant's row with what came of its VMs.
pub(super) fn row(row: ResultRow, vms: &[Measured], has_clock: bool, host: &Host) -> ResultRow {
    let sum = |of: fn(&Measured) -> u64| vms.iter().map(of).sum::<u64>();
    let (lost, compared) = (sum(|vm| vm.lost), sum(|vm| vm.compared));
    let row = metrics::report(row, vms, has_clock)
        .finding("mmu", mmu(host))
        .counter("pages_harvested", sum(|vm| vm.harvested))
        .check(
            "no_write_lost",
            compared > 0 && lost == 0,
            format!("{lost} of {compared} pages were copied before their last write"),
        );
    if has_clock || !row.metrics.contains_key(LONGEST_PASS) {
        return row;
    }
    row.uncompared(LONGEST_PASS)
}
