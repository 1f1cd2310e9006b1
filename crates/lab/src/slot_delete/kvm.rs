//! The running kernel's KVM.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use mayfly_kvm::{Exit, GuestMemory, Kvm, MemoryFlags, Payload, Vcpu, Vm};
use mayfly_platform::address::PAGE_SIZE;
use mayfly_record::{ResultRow, Samples, nanoseconds};

use crate::idle::idle;
use crate::params::{Size, Zap};
use crate::patience::ended;

use super::metrics;
use super::rounds::{Shape, all_run};

/// vCPUs beyond which a row is skipped.
const MOST: u32 = 16;

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
    /// Nanoseconds.
    stall: AtomicU64,
}

impl Progress {
    fn passes(&self) -> u64 {
        self.passes.load(Ordering::Acquire)
    }
}

/// Runs the rounds on KVM, and fills the row.
pub(super) fn run(
    mut row: ResultRow,
    zap: Zap,
    shape: Shape,
    step: &mut dyn FnMut(),
) -> anyhow::Result<ResultRow> {
    // Its guests are the same whatever the machine's have.
    row.params.remove(Size::PARAM);
    if shape.vcpus > MOST {
        return Ok(row.skipped(format!("more than {MOST} vCPUs are not run on KVM")));
    }
    let vm = Vm::create(&Kvm::open()?)?;
    if zap == Zap::Range
        && let Err(error) = vm.zap_deleted_slots_alone()
    {
        return Ok(row.skipped(format!("this kernel zaps all roots only: {error}")));
    }
    let memory =
        GuestMemory::map_populated((FIRST + u64::from(MOST) * PAGES * PAGE_SIZE) as usize)?;
    let slot = GuestMemory::map_populated(SIZE)?;
    Payload::install(&memory)?;
    vm.create_irqchip()?;
    vm.set_memory_region(0, 0, &memory, MemoryFlags::default())?;
    vm.set_memory_region(SLOT.0, SLOT.1, &slot, MemoryFlags::default())?;
    let mut vcpus = Vec::new();
    for id in 0..shape.vcpus {
        let mut vcpu = vm.create_vcpu(id)?;
        let touch = pages(id);
        let doorbell = Some(SLOT.1 + u64::from(id) * PAGE_SIZE);
        vcpu.load(&Payload { touch, doorbell, port: PORT })?;
        vcpus.push(vcpu);
    }

    let progress: Vec<Arc<Progress>> = vcpus.iter().map(|_| Arc::default()).collect();
    let (mut delete, mut create, mut stall) =
        (Samples::default(), Samples::default(), Samples::default());
    let ends = AtomicBool::new(false);
    let idle = idle(shape.vcpus);
    let (vcpus, passes): (Vec<_>, Vec<_>) = scope(|scope| {
        let running: Vec<_> = vcpus
            .into_iter()
            .zip(&progress)
            .map(|(vcpu, progress)| scope.spawn(|| go(vcpu, progress, &ends, idle)))
            .collect();
        let ran = (0..shape.rounds).try_for_each(|_| -> anyhow::Result<()> {
            all_run(&progress, Progress::passes)?;
            for progress in &progress {
                progress.stall.store(0, Ordering::Relaxed);
            }
            let start = Instant::now();
            vm.delete_memory_region(SLOT.0)?;
            delete.record(start.elapsed());
            all_run(&progress, Progress::passes)?;
            let start = Instant::now();
            vm.set_memory_region(SLOT.0, SLOT.1, &slot, MemoryFlags::default())?;
            create.record(start.elapsed());
            for progress in &progress {
                stall.record_ns(progress.stall.swap(0, Ordering::Relaxed));
            }
            step();
            Ok(())
        });
        ends.store(true, Ordering::Relaxed);
        let joined: Vec<_> = running.into_iter().map(ScopedJoinHandle::join).collect();
        // A vCPU that has ended is why the others were waited for in vain.
        let ended = joined.into_iter().map(ended).collect::<anyhow::Result<Vec<_>>>()?;
        ran?;
        anyhow::Ok(ended.into_iter().unzip())
    })?;
    let mut wrong = 0;
    for (id, &passes) in (0..).zip(&passes) {
        for gpa in pages(id).step_by(PAGE_SIZE as usize) {
            wrong += u64::from(memory.read_u64(gpa as usize)? != u64::from(passes));
        }
    }
    vm.destroy(vcpus);
    Ok(row
        .metric(metrics::DELETE, &delete)
        .metric(metrics::CREATE, &create)
        .metric(metrics::GUEST_STALL, &stall)
        .check("writes_kept", wrong == 0, format!("{wrong} pages were not as last written")))
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
    let mut last = 0;
    while !ends.load(Ordering::Relaxed) {
        let start = Instant::now();
        last = loop {
            // Its doorbell is memory while the slot is there, and an exit while it is not.
            if let Exit::PortWrite { value, .. } = vcpu.run_to_exit()? {
                break value;
            }
        };
        progress.stall.fetch_max(nanoseconds(start.elapsed()), Ordering::Relaxed);
        progress.passes.fetch_add(1, Ordering::Release);
        if !rest.is_zero() {
            sleep(rest);
        }
    }
    Ok((vcpu, last))
}
