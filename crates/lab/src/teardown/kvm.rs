//! The running kernel's KVM.

use std::time::{Duration, Instant};

use anyhow::ensure;
use mayfly_kvm::{Exit, Kvm, MemoryFlags, Payload, Vm};
use mayfly_record::{ResultRow, Samples};

use crate::experiment::Request;
use crate::mapping::Mapping;
use crate::params::Size;
use crate::progress::Progress;
use crate::room::Room;
use crate::work::{self, Spent, ThreadRole, Used};

use super::names::{NAME, SIZES, rounds};

/// The port that ends the guest's pass.
const PORT: u16 = 0x10;

/// What runs where nothing was asked for.
const DEFAULT: Size = SIZES[0];

/// The row of one size and mapping.
pub(super) fn run(
    row: ResultRow,
    size: Size,
    mapping: Mapping,
    request: &Request<'_>,
    progress: &mut dyn Progress,
) -> anyhow::Result<ResultRow> {
    if let Some(why) = why_not(size, !request.params.memory.is_empty(), mapping, Room::gather()) {
        return Ok(row.skipped(why));
    }
    let kvm = Kvm::open()?;
    let rounds = rounds(request);
    progress.begin(&format!("{NAME} on KVM, {size} in {}", mapping.name()), rounds.into());
    let [mut fault, mut destroy, mut munmap] = <[Samples; 3]>::default();
    let (mut wrong, mut spent) = (0, Vec::new());
    for _ in 0..rounds {
        let life = live(&kvm, usize::try_from(size.bytes())?, mapping)?;
        let times = [life.fault, life.destroy, life.munmap];
        for (samples, time) in [&mut fault, &mut destroy, &mut munmap].into_iter().zip(times) {
            samples.record(time);
            samples.end_round();
        }
        wrong += life.untouched;
        spent.push(life.spent);
        progress.step();
    }
    progress.finish();
    let row = work::report(row, &spent).metric("fault", &fault);
    Ok(row.metric("destroy", &destroy).metric("munmap", &munmap).check(
        "guest_writes",
        wrong == 0,
        format!("{wrong} pages were not written by the guest"),
    ))
}

/// A VM's end, and what was wrong before.
struct Life {
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

    let mut spent = Spent::default();
    let caller = Used::here();
    let start = Instant::now();
    let memory = vm.destroy(vec![vcpu]);
    let destroy = start.elapsed();
    ensure!(memory.len() == 1, "the VM had one slot");
    let start = Instant::now();
    drop(memory);
    let munmap = start.elapsed();
    spent.add(ThreadRole::Caller, Used::here() - caller);
    Ok(Life { fault, destroy, munmap, spent, untouched })
}

/// Why this size is not run, if it is not.
fn why_not(size: Size, asked: bool, mapping: Mapping, room: Room) -> Option<String> {
    if size > DEFAULT && !asked {
        return Some(format!("{size} is run where --{} asks for it", Size::PARAM));
    }
    room.why_not(size, mapping, Payload::REACH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_vm_runs_only_where_it_was_asked_for() {
        let why = |size: &str, asked| {
            why_not(size.parse().unwrap(), asked, Mapping::Blocks, Room::unlimited())
        };
        assert_eq!(why("1GiB", false), None);
        assert!(why("16GiB", false).unwrap().contains("--memory"));
        assert_eq!(why("16GiB", true), None);
    }
}
