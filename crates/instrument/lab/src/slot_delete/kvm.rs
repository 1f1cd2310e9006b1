//! The running kernel's KVM.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use mayfly_kvm::{Exit, GuestMemory, Kvm, MemoryFlags, Payload, Vcpu, Vm};
use mayfly_platform::address::PAGE_SIZE;
use mayfly_record::{ResultRow, Samples, Unit, nanoseconds};
use rustix::thread::{Pid, gettid};

use crate::crew;
use crate::idle::idle;
use crate::params::Zap;
use crate::patience::{all_run, ended};
use crate::start::{Start, Starts};

use super::metrics;
use super::rounds::Shape;
use crate::work::{self, Meter, Spent, ThreadRole, Threads, cpu_here};

/// vCPUs beyond which a row is skipped.
pub(super) const MOST: u32 = 16;

/// The port that ends the guest's pass.
const PORT: u16 = 0x10;

/// Where the slot is that is deleted.
const SLOT: (u32, u64) = (1, 0xc000_0000);

/// What a guest has: where its code and tables are, and behind them its pages.
const FIRST: u64 = 1 << 20;

/// Pages that a vCPU writes to in a pass.
const PAGES: u64 = 32;

/// Bytes of the slot.
const SIZE: usize = 2 << 20;

/// What others see of a vCPU.
#[derive(Default)]
struct Progress {
    passes: AtomicU64,
    /// The longest pass, in nanoseconds.
    longest: AtomicU64,
    /// What the kernel calls its thread.
    thread: OnceLock<Pid>,
}

impl Progress {
    fn passes(&self) -> u64 {
        self.passes.load(Ordering::Acquire)
    }
}

/// What came of one VM. Times in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Measured {
    starts: Starts,
    delete: Vec<u64>,
    delete_cpu: Vec<u64>,
    create: Vec<u64>,
    pass: Vec<u64>,
    spent: Spent,
    /// Pages that were not as last written.
    wrong: u64,
}

/// Why there is no such VM, if there is none.
pub(super) fn why_not(zap: Zap, shape: Shape) -> anyhow::Result<Option<String>> {
    if shape.vcpus > MOST {
        return Ok(Some(format!("more than {MOST} vCPUs are not run on KVM")));
    }
    if zap == Zap::AllRoots {
        let always = "this architecture's KVM zaps what the slot had mapped, always";
        return Ok((!Vm::ZAPS_ALL_ROOTS).then(|| always.to_owned()));
    }
    let alone = Vm::create(&Kvm::open()?)?.zap_deleted_slots_alone();
    Ok(alone.err().map(|error| format!("this kernel zaps all roots only: {error}")))
}

/// Has a VM's slot deleted and created again, and ends the VM.
pub(super) fn run(zap: Zap, shape: Shape) -> anyhow::Result<Measured> {
    let vm = Vm::create(&Kvm::open()?)?;
    if zap == Zap::Range {
        vm.zap_deleted_slots_alone()?;
    }
    let memory =
        GuestMemory::map_populated((FIRST + u64::from(MOST) * PAGES * PAGE_SIZE) as usize)?;
    let slot = GuestMemory::map_populated(SIZE)?;
    Payload::install(&memory)?;
    vm.set_memory_region(0, 0, &memory, MemoryFlags::default())?;
    vm.set_memory_region(SLOT.0, SLOT.1, &slot, MemoryFlags::default())?;
    vm.create_irqchip()?;
    let mut vcpus = Vec::new();
    for id in 0..shape.vcpus {
        let mut vcpu = vm.create_vcpu(id)?;
        let touch = pages(id);
        let doorbell = Some(SLOT.1 + u64::from(id) * PAGE_SIZE);
        vcpu.load(&Payload { touch, doorbell, port: PORT })?;
        vcpus.push(vcpu);
    }
    vm.finish_irqchip()?;

    let progress: Vec<Arc<Progress>> = vcpus.iter().map(|_| Arc::default()).collect();
    let mut measured = Measured::default();
    let ends = AtomicBool::new(false);
    let idle = idle(shape.vcpus);
    let (vcpus, passes): (Vec<_>, Vec<_>) = scope(|scope| {
        let (all, ends) = (vcpus.into_iter().zip(&progress), &ends);
        let all = all.map(|(vcpu, progress)| move || go(vcpu, progress, ends, idle));
        let running = crew::start(scope, all, ends)?;
        let ran =
            (0..shape.deletions).try_for_each(|_| deletion(&vm, &slot, &progress, &mut measured));
        ends.store(true, Ordering::Relaxed);
        let joined: Vec<_> = running.into_iter().map(ScopedJoinHandle::join).collect();
        // A vCPU that has ended is why the others were waited for in vain.
        let ended = joined.into_iter().map(ended).collect::<anyhow::Result<Vec<_>>>()?;
        ran?;
        anyhow::Ok(ended.into_iter().unzip())
    })?;
    for (id, &passes) in (0..).zip(&passes) {
        for gpa in pages(id).step_by(PAGE_SIZE as usize) {
            measured.wrong += u64::from(memory.read_u64(gpa as usize)? != u64::from(passes));
        }
    }
    work::kvm(&vm, &vcpus, &mut measured.spent);
    vm.destroy(vcpus);
    Ok(measured)
}

fn deletion(
    vm: &Vm,
    slot: &GuestMemory,
    progress: &[Arc<Progress>],
    measured: &mut Measured,
) -> anyhow::Result<()> {
    all_run(progress, Progress::passes)?;
    for progress in progress {
        progress.longest.store(0, Ordering::Relaxed);
    }
    let (slots, vcpus) = (vm.memory_regions() as u64, progress.len() as u64);
    measured.starts.note("deletion", Start { slots, vcpus, ..Start::default() });
    let add = |threads: Threads, vcpu: &Pid| threads.and(ThreadRole::Vcpu, *vcpu);
    let vcpus = progress.iter().filter_map(|progress| progress.thread.get());
    let meter = Meter::begin(vcpus.fold(Threads::default(), add));
    let (start, cpu) = (Instant::now(), cpu_here());
    vm.delete_memory_region(SLOT.0)?;
    measured.delete.push(nanoseconds(start.elapsed()));
    measured.delete_cpu.push(cpu_here() - cpu);
    measured.spent += &meter.end();
    all_run(progress, Progress::passes)?;
    let start = Instant::now();
    vm.set_memory_region(SLOT.0, SLOT.1, slot, MemoryFlags::default())?;
    measured.create.push(nanoseconds(start.elapsed()));
    let longest = progress.iter().map(|progress| progress.longest.swap(0, Ordering::Relaxed));
    measured.pass.extend(longest);
    Ok(())
}

/// Fills the row with what came of its VMs.
pub(super) fn report(row: ResultRow, vms: &[Measured]) -> ResultRow {
    let times = |of: fn(&Measured) -> &Vec<u64>| {
        Samples::by_round(Unit::Nanoseconds, vms.iter().map(|vm| of(vm).iter().copied()))
    };
    let row = Starts::of_all(vms.iter().map(|vm| &vm.starts)).report(row);
    let wrong: u64 = vms.iter().map(|vm| vm.wrong).sum();
    work::report(row, vms.iter().map(|vm| &vm.spent))
        .metric(metrics::SPARSE_DELETE, &times(|vm| &vm.delete))
        .metric(metrics::SPARSE_DELETE_CPU, &times(|vm| &vm.delete_cpu))
        .metric(metrics::SPARSE_CREATE, &times(|vm| &vm.create))
        .metric(metrics::LONGEST_PASS, &times(|vm| &vm.pass))
        .check("writes_kept", wrong == 0, format!("{wrong} pages were not as last written"))
}

/// The addresses of the pages of vCPU `id`.
fn pages(id: u32) -> Range<u64> {
    let first = FIRST + u64::from(id) * PAGES * PAGE_SIZE;
    first..first + PAGES * PAGE_SIZE
}

/// Runs a vCPU until it is to stop, with a rest after each pass. Returns it, and the last pass.
fn go(
    mut vcpu: Vcpu,
    progress: &Progress,
    ends: &AtomicBool,
    rest: Duration,
) -> anyhow::Result<(Vcpu, u32)> {
    progress.thread.get_or_init(gettid);
    let mut last = 0;
    while !ends.load(Ordering::Relaxed) {
        let start = Instant::now();
        last = loop {
            // Its doorbell is memory while the slot is there, and an exit while it is not.
            if let Exit::PortWrite { value, .. } = vcpu.run_to_exit()? {
                break value;
            }
        };
        progress.longest.fetch_max(nanoseconds(start.elapsed()), Ordering::Relaxed);
        progress.passes.fetch_add(1, Ordering::Release);
        if !rest.is_zero() {
            sleep(rest);
        }
    }
    Ok((vcpu, last))
}
