//! VMs of the running kernel's KVM whose vCPUs come up as those of the software machine do.
//!
//! The guest is arm64's.

use std::time::{Duration, Instant};

use anyhow::bail;
use mayfly_kvm::{CacheSwitch, Exit, Kvm, MemoryFlags, Vcpu, Vm};
use mayfly_machine::cache::Lines;
use mayfly_platform::address::PAGE_SIZE;
use mayfly_record::{Limits, ResultRow, Samples};

use crate::experiment::Request;
use crate::mapping::Mapping;
use crate::params::Size;
use crate::room::Room;
use crate::start::{Start, Starts};
use crate::work::{self, Meter, Spent, Threads};

use super::bring_up::{BOOT, SECONDARY, Shape};
use super::names::{LINES, REAL, VCPUS};
use super::rows::{BEGINS, BRING_UP, SECONDARY as SECONDARY_TIME, SET_UP};

/// What of that there is no room for.
pub(super) fn left_out(request: &Request<'_>) -> Vec<String> {
    let mut left_out = Vec::new();
    for memory in sizes(request) {
        for mapping in Mapping::ALL {
            for vcpus in request.params.vcpus_or(&VCPUS) {
                left_out.extend(why_not(Shape { vcpus, memory, mapping, lines: Lines::Real }));
            }
        }
    }
    left_out
}

/// The sizes that are run.
pub(super) fn sizes(request: &Request<'_>) -> Vec<Size> {
    request.params.memory_or(&[default_size(Limits::gather().available())])
}

/// What runs where nothing was asked for: as with the machine, but no more than half of what the host has.
pub(super) fn default_size(available: Option<u64>) -> Size {
    let block = Size::UNIT.bytes();
    let half = available.map_or(u64::MAX, |available| available / 2 / block);
    Size::blocks(half.clamp(1, REAL.bytes() / block))
}

/// The first address past what is written with caches off.
fn early_end(shape: Shape) -> u64 {
    CacheSwitch::FREE + shape.written()
}

/// Why a VM is not run, if it is not.
pub(super) fn why_not(shape: Shape) -> Option<String> {
    let Shape { vcpus, memory, mapping, .. } = shape;
    if early_end(shape) > memory.bytes() {
        return Some(format!("{vcpus} vCPUs write more than {memory} before their caches are on"));
    }
    Room::gather().why_not(memory, mapping, CacheSwitch::REACH)
}

/// VMs of one shape, one after the other, and what came of them; or why there are none.
pub(super) struct Ups {
    kvm: Kvm,
    shape: Shape,
    times: Times,
    why_not: Option<String>,
}

impl Ups {
    pub(super) fn new(shape: Shape) -> anyhow::Result<Self> {
        let (kvm, why_not) = (Kvm::open()?, why_not(shape));
        Ok(Self { kvm, shape, times: Times::default(), why_not })
    }

    /// One more, if there are any.
    pub(super) fn bring_up(&mut self) -> anyhow::Result<()> {
        if self.why_not.is_some() {
            return Ok(());
        }
        self.times.bring_up(&self.kvm, self.shape)
    }

    /// Fills the row with what came of them.
    pub(super) fn report(self, row: ResultRow) -> ResultRow {
        // Their lines are the processor's, so that they stand beside the machine's that are, too.
        let row = row.param(LINES, "real");
        if let Some(why) = self.why_not {
            return row.skipped(why);
        }
        let Times { starts, bring_up, secondary, set_up, spent, reads, right } = self.times;
        work::report(starts.report(row), &spent)
            .metric(BRING_UP, &bring_up)
            .metric(SECONDARY_TIME, &secondary)
            .metric(SET_UP, &set_up)
            .uncompared(SET_UP)
            .check("guest_reads", right == reads, format!("{reads} reads, {} wrong", reads - right))
    }
}

/// What VMs took, and what their guests have read.
#[derive(Default)]
struct Times {
    starts: Starts,
    bring_up: Samples,
    secondary: Samples,
    set_up: Samples,
    spent: Vec<Spent>,
    reads: u64,
    right: u64,
}

impl Times {
    /// Brings a VM up, one vCPU after the other, and ends it.
    fn bring_up(&mut self, kvm: &Kvm, shape: Shape) -> anyhow::Result<()> {
        let memory = shape.mapping.guest_memory(usize::try_from(shape.memory.bytes())?)?;
        CacheSwitch::install(&memory)?;
        let doorbell = CacheSwitch::doorbell(&memory);
        let vm = Vm::create(kvm)?;
        vm.set_memory_region(0, 0, &memory, MemoryFlags::default())?;
        let mut vcpus = Vec::new();
        let mut early = CacheSwitch::FREE;
        for id in 0..shape.vcpus {
            let end = early + if id == 0 { BOOT } else { SECONDARY };
            let later = early_end(shape)..if id == 0 { shape.memory.bytes() } else { 0 };
            let mut vcpu = vm.create_vcpu(id)?;
            vcpu.load_cache_switch(&CacheSwitch { early: early..end, later, doorbell })?;
            vcpus.push(vcpu);
            early = end;
        }
        let (slots, count) = (vm.memory_regions() as u64, vcpus.len() as u64);
        self.starts.note(BEGINS, Start { slots, vcpus: count, ..Start::default() });
        let mut all = Duration::ZERO;
        let mut spent = Spent::default();
        for (id, vcpu) in vcpus.iter_mut().enumerate() {
            let meter = Meter::begin(Threads::default());
            let begun = Instant::now();
            let right = run(vcpu, doorbell)?;
            let time = begun.elapsed();
            all += time;
            spent += &meter.end();
            self.reads += if id == 0 { BOOT } else { SECONDARY } / PAGE_SIZE;
            self.right += u64::from(right);
            if id > 0 {
                self.secondary.record(time);
                continue;
            }
            // All of the memory is mapped before the others come.
            let begun = Instant::now();
            run(vcpu, doorbell)?;
            self.set_up.record(begun.elapsed());
        }
        self.bring_up.record(all);
        for samples in [&mut self.bring_up, &mut self.secondary, &mut self.set_up] {
            samples.end_round();
        }
        work::kvm(&vm, &vcpus, &mut spent);
        self.spent.push(spent);
        vm.destroy(vcpus);
        Ok(())
    }
}

/// Runs until the guest is done, and gives the number of pages that it has read as it wrote them.
fn run(vcpu: &mut Vcpu, doorbell: u64) -> anyhow::Result<u32> {
    match vcpu.run_to_exit()? {
        Exit::MmioWrite { gpa, value } if gpa == doorbell && value != u32::MAX => Ok(value),
        exit => bail!("the guest came out with {exit:?}"),
    }
}
