//! The designs on the software machine, and what is to be said of them.

use std::sync::Arc;

use anyhow::Context;
use mayfly_machine::{Machine, Rigour};
use mayfly_platform::address::{Hpa, PAGE_SHIFT};
use mayfly_platform::frames::{Frames, WORDS};
use mayfly_platform::sync::Ordering;
use mayfly_record::{ResultRow, Samples, Unit, nanoseconds, units::duration};
use mayfly_stage2::Slice;
use mayfly_vm::SlotZap;

use crate::before::tdp_mmu::{Locking, TdpMmu, Waiting};
use crate::experiment::Variant;
use crate::params::Zap;
use crate::start::Starts;
use crate::work::{self, cpu_here};

use super::mayfly::Mayfly;
use super::metrics;
use super::names::WRITE_LOCKED;
use super::refault::Refaulted;
use super::rounds::{Deleted, Measured, Shape, measure};
use super::watch::{RootLoad, Watch};

/// How often the cost of a table is looked at.
const TABLE_PASSES: usize = 5;

/// Runs a VM of a variant, on a machine of its own.
pub(super) fn run(variant: &str, zap: Zap, shape: Shape) -> anyhow::Result<Measured> {
    let machine = Machine::new().context("starting the machine")?;
    machine.hardware().set_rigour(Rigour::empty());
    let watch = Arc::new(Watch::new(Arc::clone(machine.hardware()), shape.vcpus));
    let table = cost_of_a_table(&watch)?;
    let slot_zap = match zap {
        Zap::AllRoots => SlotZap::AllRoots,
        Zap::Range => SlotZap::Range,
    };
    let measured = if variant == Variant::BASELINE {
        measure(Mayfly::new(&machine, &watch, slot_zap)?, &machine, &watch, shape)?
    } else {
        let locking = if variant == WRITE_LOCKED { Locking::Write } else { Locking::Read };
        let waiting = if shape.has_clock { Waiting::Spinning } else { Waiting::Asleep };
        let deletions = shape.all_deletions();
        let design = TdpMmu::new(&machine, &watch, (locking, waiting), slot_zap, deletions);
        measure(design, &machine, &watch, shape)?
    };
    Ok(Measured { table, ..measured })
}

/// What it takes of a processor to go through the table that is the longest to: that of 512 tables, each of which is
/// found, taken out and freed. Found out on the same machine before there is a VM.
fn cost_of_a_table(watch: &Watch) -> anyhow::Result<u64> {
    let mut passes = Vec::new();
    for _ in 0..TABLE_PASSES {
        let tables = (0..WORDS).map(|_| watch.allocate(0)).collect::<Result<Vec<_>, _>>()?;
        let start = cpu_here();
        for table in tables {
            let word = watch.hardware().arena().word(Hpa::new(table.get() << PAGE_SHIFT));
            word.swap(0, Ordering::AcqRel);
            // SAFETY: it was allocated above, and nobody else knows of it.
            unsafe { watch.free(table, 0) };
        }
        passes.push(cpu_here() - start);
    }
    passes.sort_unstable();
    Ok(passes[passes.len() / 2])
}

/// Fills a variant's row with what came of its VMs.
pub(super) fn row(row: ResultRow, variant: &str, vms: &[Measured]) -> ResultRow {
    let row = report(row, vms);
    if variant == Variant::BASELINE { bounded(unhindered(row, vms), vms) } else { row }
}

/// What every design is asked.
fn report(row: ResultRow, vms: &[Measured]) -> ResultRow {
    let sum = |of: fn(&Measured) -> u64| vms.iter().map(of).sum::<u64>();
    let times = |of: fn(&Measured) -> &Vec<u64>| {
        Samples::by_round(Unit::Nanoseconds, vms.iter().map(|vm| of(vm).iter().copied()))
    };
    let deleted = |unit, of: fn(&Deleted) -> Option<u64>| {
        Samples::by_round(unit, vms.iter().map(|vm| vm.deleted.iter().filter_map(of)))
    };
    let parked = |unit, of: fn(&Deleted) -> Option<u64>| {
        Samples::by_round(unit, vms.iter().map(|vm| vm.parked.iter().filter_map(of)))
    };
    let refaults = |of: fn(&Refaulted) -> u64| {
        Samples::by_round(Unit::Nanoseconds, vms.iter().map(|vm| vm.refaults.iter().map(of)))
    };
    let loads = |unit, of: fn(&RootLoad) -> u64| {
        Samples::by_round(unit, vms.iter().map(|vm| vm.loads.iter().map(of)))
    };
    let (reads, mismatches) = (sum(|vm| vm.reads), sum(|vm| vm.mismatches));
    let (late_writes, leaked) = (sum(|vm| vm.late_writes), sum(|vm| vm.leaked));
    let row = Starts::of_all(vms.iter().map(|vm| &vm.starts)).report(row);
    let most_roots = vms.iter().map(|vm| vm.most_roots).max().unwrap_or(0);
    work::report(row, vms.iter().map(|vm| &vm.spent))
        .metric(metrics::ROOT_LOAD, &loads(Unit::Nanoseconds, |load| load.wall))
        .metric(metrics::ROOT_LOAD_WAIT, &loads(Unit::Nanoseconds, |load| load.wait))
        .metric(metrics::ROOT_LOAD_AHEAD, &loads(Unit::Count, |load| load.ahead))
        .metric(metrics::ROOT_LOAD_CPU, &loads(Unit::Nanoseconds, |load| load.cpu))
        .metric(metrics::DELETE, &deleted(Unit::Nanoseconds, |one| Some(one.wall)))
        .metric(metrics::DELETE_CPU, &deleted(Unit::Nanoseconds, |one| Some(one.cpu)))
        .metric(
            metrics::DELETION_CPU,
            &Samples::by_round(Unit::Nanoseconds, vms.iter().map(|vm| [vm.deletion_cpu()])),
        )
        .metric(metrics::UNTIL_FREED, &deleted(Unit::Nanoseconds, |one| one.until_freed))
        .metric(metrics::UNTIL_FREED_PARKED, &parked(Unit::Nanoseconds, |one| one.until_freed))
        .metric(metrics::PEAK_TABLES, &deleted(Unit::Count, |one| Some(one.most_tables)))
        .metric(metrics::PEAK_TABLES_PARKED, &parked(Unit::Count, |one| Some(one.most_tables)))
        .metric(metrics::HELD_PARKED, &parked(Unit::Count, |one| Some(one.held)))
        .metric(metrics::REFAULT, &refaults(|one| one.wall))
        .metric(metrics::REFAULT_CPU, &refaults(|one| one.cpu))
        .metric(metrics::CREATE, &times(|vm| &vm.create))
        .metric(metrics::ZAP_SLICE, &times(|vm| &vm.slices))
        // Their longest are what matters: what a piece of the usual length is, is each design's own.
        .uncompared(metrics::ZAP_SLICE)
        .metric(metrics::GUEST_STALL, &times(|vm| &vm.stall))
        .counter("root_load_waits", root_load_waits(vms))
        .counter("tlb_invalidations", sum(|vm| vm.invalidations))
        .check(
            "reads_correct",
            mismatches == 0,
            format!("{mismatches} of {reads} reads were wrong"),
        )
        .check(
            "deleted_stays_deleted",
            late_writes == 0,
            format!("{late_writes} words of the deleted slot changed"),
        )
        .check(
            "one_root_per_role",
            most_roots <= 1,
            format!("guests ran on {most_roots} at the same time"),
        )
        .check("tables_given_back", leaked == 0, format!("{leaked} frames were not"))
}

fn root_load_waits(vms: &[Measured]) -> u64 {
    vms.iter().flat_map(|vm| &vm.loads).map(|load| load.waits).sum()
}

/// No root load enters the platform's wait.
pub(super) fn unhindered(row: ResultRow, vms: &[Measured]) -> ResultRow {
    let waits = root_load_waits(vms);
    let loads: usize = vms.iter().map(|vm| vm.loads.len()).sum();
    row.check(
        "root_loads_wait_for_nobody",
        waits == 0,
        format!("{waits} waits in {loads} root loads"),
    )
}

/// No slice goes over its time by more than a table, but one in a hundred, or one of fewer: an interrupt may have come into
/// it.
///
/// The table has four times what it takes to find, take out and free the 512 that are the most to be in one.
pub(super) fn bounded(row: ResultRow, vms: &[Measured]) -> ResultRow {
    let budget = nanoseconds(Slice::default().time);
    let (mut over, mut count, mut longest) = (0, 0, 0);
    for Measured { slices, table, .. } in vms {
        over += slices.iter().filter(|&&slice| slice > budget + 4 * table).count();
        count += slices.len();
        longest = slices.iter().copied().max().unwrap_or(0).max(longest);
    }
    let table = vms.iter().map(|vm| 4 * vm.table).max().unwrap_or(0);
    row.counter("slices_over", over as u64).check(
        "slices_bounded",
        over <= (count / 100).max(1),
        format!(
            "{over} of {count} slices took more than {} and a table (up to {}); the longest {}",
            duration(budget),
            duration(table),
            duration(longest)
        ),
    )
}
