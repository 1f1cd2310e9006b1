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

/// Runs a variant, and fills its row.
pub(super) fn run(
    row: ResultRow,
    variant: &str,
    zap: Zap,
    shape: Shape,
    step: &mut dyn FnMut(),
) -> anyhow::Result<ResultRow> {
    let machine = Machine::new().context("starting the machine")?;
    machine.hardware().set_rigour(Rigour::empty());
    let watch = Arc::new(Watch::new(Arc::clone(machine.hardware()), shape.vcpus));
    let slot_zap = match zap {
        Zap::AllRoots => SlotZap::AllRoots,
        Zap::Range => SlotZap::Range,
    };
    if variant == Variant::BASELINE {
        let measured = measure(Mayfly::new(&machine, &watch, slot_zap)?, &machine, shape, step)?;
        return Ok(bounded(unhindered(report(row, &measured), &measured), &measured, zap, shape));
    }
    let locking = if variant == WRITE_LOCKED { Locking::Write } else { Locking::Read };
    let design = TdpMmu::new(&machine, &watch, locking, slot_zap, shape.rounds);
    Ok(report(row, &measure(design, &machine, shape, step)?))
}

/// What every design is asked.
fn report(row: ResultRow, measured: &Measured) -> ResultRow {
    let loads = |unit, of: fn(&RootLoad) -> u64| Samples::of(unit, measured.loads.iter().map(of));
    let Measured { reads, mismatches, late_writes, most_roots, leaked, .. } = *measured;
    row.metric(metrics::ROOT_LOAD, &loads(Unit::Nanoseconds, |load| load.wall))
        .metric(metrics::ROOT_LOAD_WAIT, &loads(Unit::Nanoseconds, |load| load.wait))
        .metric(metrics::ROOT_LOAD_AHEAD, &loads(Unit::Count, |load| load.ahead))
        .metric(metrics::ROOT_LOAD_CPU, &loads(Unit::Nanoseconds, |load| load.cpu))
        .metric(metrics::DELETE, &measured.delete)
        .metric(metrics::CREATE, &measured.create)
        .metric(
            metrics::ZAP_SLICE,
            &Samples::of(Unit::Nanoseconds, measured.slices.iter().copied()),
        )
        // Their longest are what matters: what a piece of the usual length is, is each design's own.
        .uncompared(metrics::ZAP_SLICE)
        .metric(metrics::GUEST_STALL, &measured.stall)
        .counter("root_load_waits", root_load_waits(measured))
        .counter("tlb_invalidations", measured.invalidations)
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

fn root_load_waits(measured: &Measured) -> u64 {
    measured.loads.iter().map(|load| load.waits).sum()
}

/// No root load enters the platform's wait.
pub(super) fn unhindered(row: ResultRow, measured: &Measured) -> ResultRow {
    let waits = root_load_waits(measured);
    row.check(
        "root_loads_wait_for_nobody",
        waits == 0,
        format!("{waits} waits in {} root loads", measured.loads.len()),
    )
}

/// No slice goes over its time by more than a table.
///
/// The table is the one that is longest to go through: that of 512 tables, for 1 GiB. What it takes is taken from the
/// slices themselves, all of them over all of the memory that they were for: a processor that is slow, or shared, is so
/// for both.
fn bounded(row: ResultRow, measured: &Measured, zap: Zap, shape: Shape) -> ResultRow {
    let budget = nanoseconds(Slice::default().time);
    let total: u64 = measured.slices.iter().sum();
    let mapped = shape.mapped(zap) * u64::from(shape.rounds);
    let table = total.saturating_mul(1 << 20) / (mapped >> 10);
    let over = measured.slices.iter().filter(|&&slice| slice > budget + table).count() as u64;
    let longest = measured.slices.iter().max().copied().unwrap_or(0);
    row.counter("slices_over", over).check(
        "slices_bounded",
        over == 0,
        format!(
            "{over} of {} slices took more than {} and a table ({}); the longest {}",
            measured.slices.len(),
            duration(budget),
            duration(table),
            duration(longest)
        ),
    )
}
