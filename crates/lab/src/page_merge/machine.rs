//! The variants on the software machine, and what is to be said of them.

use anyhow::Context;
use mayfly_record::{Backend, ResultRow, Samples, Unit};
use mayfly_stage2::{Arm, Ept, Format};

use super::names::{
    BATCHED, BREAK, CHANGE_PTE, FULL_SCAN, INVALIDATE, MERGE, NAME, WINDOW_FAULTS, WRITE_FAULT, row,
};
use super::rounds::{CHARGED, Measured, measure};
use super::shape::Shape;
use crate::experiment::{Request, Variant};
use crate::progress::Progress;

/// Pages that are merged together where the variant is to merge many.
const BATCH: u32 = 64;

/// The rows of one shape, in both formats.
pub(super) fn rows(
    designs: &[&'static str],
    shape: Shape,
    request: &Request<'_>,
    progress: &mut dyn Progress,
) -> anyhow::Result<Vec<ResultRow>> {
    let mut rows = in_format::<Ept>(designs, shape, request, progress)?;
    rows.extend(in_format::<Arm<48>>(designs, shape, request, progress)?);
    Ok(rows)
}

fn in_format<F: Format>(
    designs: &[&'static str],
    shape: Shape,
    request: &Request<'_>,
    progress: &mut dyn Progress,
) -> anyhow::Result<Vec<ResultRow>> {
    let title = format!("{NAME}, {} VMs, {}", shape.vms, F::NAME);
    progress.begin(&title, u64::from(shape.rounds) * designs.len() as u64);
    let mut measured = Vec::new();
    for variant in designs {
        let shape = batched(variant, shape);
        let done = measure::<F>(variant, shape, &mut || progress.step());
        measured.push((*variant, done.with_context(|| format!("{variant}, {}", F::NAME))?));
    }
    progress.finish();
    let oversubscribed = (shape.vms * shape.vcpus) as usize >= request.host.cpus;
    let rows = measured.iter().map(|(variant, done)| {
        let shape = batched(variant, shape);
        let row = row(Backend::Machine, variant, shape).param("format", F::NAME);
        let mut row = report(row, done);
        if *variant == Variant::BASELINE {
            row = checked(row, done, &measured);
        }
        // The time on the clock is then the scheduler's as well: TLBs are waited for.
        if oversubscribed {
            [MERGE, BREAK, WRITE_FAULT, FULL_SCAN].into_iter().fold(row, ResultRow::uncompared)
        } else {
            row
        }
    });
    Ok(rows.collect())
}

/// The shape that a variant runs in.
fn batched(variant: &str, shape: Shape) -> Shape {
    let pages_a_change =
        if variant == BATCHED { BATCH.max(shape.pages_a_change) } else { shape.pages_a_change };
    Shape { pages_a_change, ..shape }
}

/// What every variant is asked.
fn report(row: ResultRow, measured: &Measured) -> ResultRow {
    let Measured { log, tally, .. } = measured;
    let samples = |unit, values: &[u64]| Samples::of(unit, values.iter().copied());
    let [said, counted] = measured.shared;
    let row = measured
        .scans
        .report(row)
        .metric(MERGE, &samples(Unit::Nanoseconds, &log.merges))
        .metric(BREAK, &samples(Unit::Nanoseconds, &log.breaks))
        .metric(WRITE_FAULT, &samples(Unit::Nanoseconds, &tally.writes))
        .metric(WINDOW_FAULTS, &samples(Unit::Count, &log.faults))
        .counter("pages_merged", measured.merged)
        .counter("pages_broken", measured.broken)
        .counter("pages_shared", said.frames)
        .counter("pages_sharing", said.sharing)
        .counter("ksm_zero_pages", said.zero)
        .counter("guest_faults", tally.faults)
        .counter("window_faults", tally.slow)
        .counter("window_faults_frozen", tally.frozen)
        .counter("window_writes", tally.breaking)
        .counter("tlb_addresses", measured.tlbs.addresses)
        .counter("tlb_refills", measured.tlbs.refills);
    CHARGED
        .iter()
        .zip(measured.charged)
        .fold(row, |row, ((name, _), count)| row.counter(name, count))
        .check(
            "guest_checks",
            tally.reads > 0 && tally.mismatches == 0,
            format!("{} of {} reads were wrong", tally.mismatches, tally.reads),
        )
        .check(
            "counters_balance",
            measured.unbalanced == 0,
            format!(
                "shared, sharing, zero: {}; counted page by page {}; in the pattern {}",
                said, counted, measured.expected
            ),
        )
        .check(
            "frames_given_back",
            measured.leaked == 0,
            format!("{} frames were not", measured.leaked),
        )
}

/// What Mayfly is asked beside.
fn checked(row: ResultRow, measured: &Measured, all: &[(&'static str, Measured)]) -> ResultRow {
    let slow = measured.tally.slow;
    let changes = measured.log.faults.len();
    let row = row.check(
        "no_faults_in_a_window",
        slow == 0,
        format!("{slow} in {changes} changes, but for writes that cause a break"),
    );
    let of = |name| all.iter().find(|(variant, _)| *variant == name).map(|(_, done)| done);
    let (Some(change_pte), Some(invalidate)) = (of(CHANGE_PTE), of(INVALIDATE)) else {
        return row;
    };
    if measured.expected.sharing == 0 {
        // With one VM nothing is merged but zeroes: there is nothing to compare.
        return row;
    }
    let order = |name| [measured, change_pte, invalidate].map(|done| done.charged(name));
    let in_order = ["entries_written", "tables_freed"].into_iter().fold(row, |row, name| {
        let [ours, theirs, most] = order(name);
        row.check(
            &format!("{name}_in_order"),
            ours <= theirs && theirs <= most,
            format!("{ours} <= {CHANGE_PTE}: {theirs} <= {INVALIDATE}: {most}"),
        )
    });
    let [ours, theirs, most] = order("tlb_invalidations");
    let in_order = in_order.check(
        "tlb_invalidations_fewest",
        ours <= theirs.min(most),
        format!("{ours} <= {CHANGE_PTE}: {theirs}, {INVALIDATE}: {most}"),
    );
    let [ours, most] = [measured, invalidate].map(|done| done.tlbs.refills);
    in_order.check("tlb_refills_fewer", ours <= most, format!("{ours} <= {INVALIDATE}: {most}"))
}
