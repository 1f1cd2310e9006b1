//! The running kernel's KVM.

use std::time::{Duration, Instant};

use anyhow::ensure;
use mayfly_kvm::{Exit, Kvm, MemoryFlags, Payload, Vm};
use mayfly_record::{ResultRow, Samples};

use crate::experiment::Request;
use crate::mapping::Mapping;
use crate::params::Size;
use crate::room::Room;
use crate::start::{Start, Starts};
use crate::work::{self, Spent, ThreadRole, Used};

use super::names::SIZES;
use super::rows::END;

/// The port that ends the guest's pass.
const PORT: u16 = 0x10;

/// What runs where nothing was asked for.
const DEFAULT: Size = SIZES[0];

/// VMs of one size and mapping, one after the other, and what came of them.
pub(super) struct Lives {
    kvm: Kvm,
    size: usize,
    mapping: Mapping,
    fault: Samples,
    destroy: Samples,
    munmap: Samples,
    starts: Starts,
    spent: Vec<Spent>,
    /// Pages that no guest has written.
    wrong: usize,
}

impl Lives {
    pub(super) fn new(size: Size, mapping: Mapping) -> anyhow::Result<Self> {
        let [fault, destroy, munmap] = <[Samples; 3]>::default();
        let (kvm, size) = (Kvm::open()?, usize::try_from(size.bytes())?);
        let (starts, spent) = (Starts::default(), Vec::new());
        Ok(Self { kvm, size, mapping, fault, destroy, munmap, starts, spent, wrong: 0 })
    }

    /// One more.
    pub(super) fn live(&mut self) -> anyhow::Result<()> {
        let life = live(&self.kvm, self.size, self.mapping)?;
        let times = [life.fault, life.destroy, life.munmap];
        for (samples, time) in
            [&mut self.fault, &mut self.destroy, &mut self.munmap].into_iter().zip(times)
        {
            samples.record(time);
            samples.end_round();
        }
        self.starts.note(END, life.start);
        self.wrong += life.untouched;
        self.spent.push(life.spent);
        Ok(())
    }

    /// Fills the row with what came of them.
    pub(super) fn report(&self, row: ResultRow) -> ResultRow {
        let wrong = self.wrong;
        work::report(self.starts.report(row), &self.spent)
            .metric("fault", &self.fault)
            .metric("destroy", &self.destroy)
            .metric("munmap", &self.munmap)
            .check(
                "guest_writes",
                wrong == 0,
                format!("{wrong} pages were not written by the guest"),
            )
    }
}

/// A VM's end, and what was wrong before.
struct Life {
    /// What the VM had when it ended.
    start: Start,
    /// The guest's writes, for each page of 4 KiB.
    fault: Duration,
    destroy: Duration,
    munmap: Duration,
    /// On both.
    spent: Spent,
    /// Pages that the guest has not written.
    untouched: usize,
}

/// Has a guest write to every page of its memory, and ends it.
fn live(kvm: &Kvm, size: usize, mapping: Mapping) -> anyhow::Result<Life> {
    let memory = mapping.guest_memory(size)?;
    Payload::install(&memory)?;
    let vm = Vm::create(kvm)?;
    vm.set_memory_region(0, 0, &memory, MemoryFlags::default())?;
    let mut vcpu = vm.create_vcpu(0)?;
    vcpu.load(&Payload { touch: Payload::FREE..size as u64, doorbell: None, port: PORT })?;
    let start = Instant::now();
    let exit = vcpu.run_to_exit()?;
    let pages = (size - usize::try_from(Payload::FREE)?) / 0x1000;
    let fault = start.elapsed() / u32::try_from(pages)?.max(1);
    ensure!(exit == Exit::PortWrite { port: PORT, value: 1 }, "the guest came out with {exit:?}");
    let mut untouched = 0;
    for page in (usize::try_from(Payload::FREE)?..size).step_by(0x1000) {
        untouched += usize::from(memory.read_u64(page)? != 1);
    }
    drop(memory);

    let start = Start { slots: vm.memory_regions() as u64, vcpus: 1, ..Start::default() };
    let mut spent = Spent::default();
    let caller = Used::here();
    let begun = Instant::now();
    let memory = vm.destroy(vec![vcpu]);
    let destroy = begun.elapsed();
    ensure!(memory.len() == 1, "the VM had one slot");
    let begun = Instant::now();
    drop(memory);
    let munmap = begun.elapsed();
    spent.add(ThreadRole::Caller, Used::here() - caller);
    Ok(Life { start, fault, destroy, munmap, spent, untouched })
}

/// Why a VM of this size and mapping is not run, if it is not.
pub(super) fn why_not(size: Size, mapping: Mapping, request: &Request<'_>) -> Option<String> {
    why_not_in(Room::gather(), size, mapping, !request.params.memory.is_empty())
}

fn why_not_in(room: Room, size: Size, mapping: Mapping, asked: bool) -> Option<String> {
    if size > DEFAULT && !asked {
        return Some(format!("VMs of {size}; they run only if --{} names this size", Size::PARAM));
    }
    room.why_not(size, mapping, Payload::REACH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_vm_runs_only_where_it_was_asked_for() {
        let why = |size: &str, asked| {
            why_not_in(Room::unlimited(), size.parse().unwrap(), Mapping::Blocks, asked)
        };
        assert_eq!(why("1GiB", false), None);
        assert!(why("16GiB", false).unwrap().contains("--memory"));
        assert_eq!(why("16GiB", true), None);
    }
}
