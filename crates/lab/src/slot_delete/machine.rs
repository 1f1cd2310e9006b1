//! The designs on the software machine, and what is to be said of them.

use std::sync::Arc;

use anyhow::Context;
use mayfly_machine::{Machine, Rigour};
use mayfly_record::{ResultRow, Samples, Unit, nanoseconds, units::duration};
use mayfly_stage2::Slice;
use mayfly_vm::SlotZap;

use crate::before::tdp_mmu::{Locking, TdpMmu};
use crate::experiment::Variant;
use crate::params::Zap;

use super::mayfly::Mayfly;
use super::metrics;
use super::names::WRITE_LOCKED;
use super::rounds::{Measured, Shape, measure};
use super::watch::{RootLoad, Watch};

/// Runs a VM of a variant, on a machine of its own.
pub(super) fn run(variant: &str, zap: Zap, shape: Shape) -> anyhow::Result<Measured> {
    let machine = Machine::new().context("starting the machine")?;
    machine.hardware().set_rigour(Rigour::empty());
    let watch = Arc::new(Watch::new(Arc::clone(machine.hardware()), shape.vcpus));
    let slot_zap = match zap {
        Zap::AllRoots => SlotZap::AllRoots,
        Zap::Range => SlotZap::Range,
    };
    if variant == Variant::BASELINE {
        return measure(Mayfly::new(&machine, &watch, slot_zap)?, &machine, shape);
    }
    let locking = if variant == WRITE_LOCKED { Locking::Write } else { Locking::Read };
    let design = TdpMmu::new(&machine, &watch, locking, slot_zap, shape.deletions);
    measure(design, &machine, shape)
}

/// Fills a variant's row with what came of its VMs.
pub(super) fn row(
    row: ResultRow,
    variant: &str,
    vms: &[Measured],
    zap: Zap,
    shape: Shape,
) -> ResultRow {
    let row = report(row, vms);
    if variant == Variant::BASELINE { bounded(unhindered(row, vms), vms, zap, shape) } else { row }
}

/// What every design is asked.
fn report(row: ResultRow, vms: &[Measured]) -> ResultRow {
    let sum = |of: fn(&Measured) -> u64| vms.iter().map(of).sum::<u64>();
    let times = |of: fn(&Measured) -> &Vec<u64>| {
        Samples::by_round(Unit::Nanoseconds, vms.iter().map(|vm| of(vm).iter().copied()))
    };
    let loads = |unit, of: fn(&RootLoad) -> u64| {
        Samples::by_round(unit, vms.iter().map(|vm| vm.loads.iter().map(of)))
    };
    let (reads, mismatches) = (sum(|vm| vm.reads), sum(|vm| vm.mismatches));
    let (late_writes, leaked) = (sum(|vm| vm.late_writes), sum(|vm| vm.leaked));
    let most_roots = vms.iter().map(|vm| vm.most_roots).max().unwrap_or(0);
    row.metric(metrics::ROOT_LOAD, &loads(Unit::Nanoseconds, |load| load.wall))
        .metric(metrics::ROOT_LOAD_WAIT, &loads(Unit::Nanoseconds, |load| load.wait))
        .metric(metrics::ROOT_LOAD_AHEAD, &loads(Unit::Count, |load| load.ahead))
        .metric(metrics::ROOT_LOAD_CPU, &loads(Unit::Nanoseconds, |load| load.cpu))
        .metric(metrics::DELETE, &times(|vm| &vm.delete))
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

/// No slice goes over its time by more than a table.
///
/// The table is the one that is longest to go through: that of 512 tables, for 1 GiB. What it takes is taken from the
/// slices themselves, all of them over all of the memory that they were for: a processor that is slow, or shared, is so
/// for both.
fn bounded(row: ResultRow, vms: &[Measured], zap: Zap, shape: Shape) -> ResultRow {
    let budget = nanoseconds(Slice::default().time);
    let slices = || vms.iter().flat_map(|vm| &vm.slices).copied();
    let total: u64 = slices().sum();
    let mapped = shape.mapped(zap) * u64::from(shape.deletions) * vms.len() as u64;
    let table = total.saturating_mul(1 << 20) / (mapped >> 10);
    let over = slices().filter(|&slice| slice > budget + table).count() as u64;
    let longest = slices().max().unwrap_or(0);
    row.counter("slices_over", over).check(
        "slices_bounded",
        over == 0,
        format!(
            "{over} of {} slices took more than {} and a table ({}); the longest {}",
            slices().count(),
            duration(budget),
            duration(table),
            duration(longest)
        ),
    )
}
