//! The variants on the software machine, and what is to be said of them.

use anyhow::Context;
use mayfly_record::{Backend, ResultRow, Samples, Unit};
use mayfly_stage2::{Arm, Ept, Format};

use super::names::{
    BATCHED, BREAK, CHANGE_PTE, ENTRIES_WRITTEN, FAULT_CPU, FORMAT, FULL_SCAN, GUEST_FAULTS,
    INVALIDATE, MERGE, NAME, NOTIFIER_CPU, TABLES_FREED, TLB_ADDRESSES, TLB_INVALIDATIONS,
    TLB_REFILLS, VM_CPU, WINDOW_FAULTS, WRITE_FAULT, row,
};
use super::rounds::{CHARGED, Measured, measure};
use super::scans::Scans;
use super::shape::Shape;
use crate::experiment::{Request, Variant};
use crate::progress::Progress;
use crate::start::Starts;
use crate::turns::{SEED, seed, turns};
use crate::work;

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
    let mut measured: Vec<_> = designs.iter().map(|variant| (*variant, Vec::new())).collect();
    for index in turns(shape.rounds, designs.len(), seed(request)) {
        let (variant, rounds) = &mut measured[index];
        let done = measure::<F>(variant, batched(variant, shape), 1);
        rounds.push(done.with_context(|| format!("{variant}, {}", F::NAME))?);
        progress.step();
    }
    progress.finish();
    let oversubscribed = (shape.vms * shape.vcpus) as usize >= request.host.cpus;
    let rows = measured.iter().map(|(variant, rounds)| {
        let shape = batched(variant, shape);
        let row =
            row(Backend::Machine, variant, shape).param(FORMAT, F::NAME).param(SEED, seed(request));
        let mut row = report(row, rounds);
        if *variant == Variant::BASELINE {
            row = checked(row, rounds, &measured);
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

/// What every variant is asked: `rounds` are its VMs, which there were one round after the other.
fn report(row: ResultRow, rounds: &[Measured]) -> ResultRow {
    let each = |unit, of: fn(&Measured) -> &[u64]| {
        Samples::by_round(unit, rounds.iter().map(|round| of(round).iter().copied()))
    };
    let count = |of: &dyn Fn(&Measured) -> u64| {
        Samples::by_round(Unit::Count, rounds.iter().map(|round| [of(round)]))
    };
    let sum = |of: fn(&Measured) -> u64| rounds.iter().map(of).sum::<u64>();
    let cpu = |of: &dyn Fn(&Measured) -> u64| {
        Samples::by_round(Unit::Nanoseconds, rounds.iter().map(|round| [of(round)]))
    };
    let row = Starts::of_all(rounds.iter().map(|round| &round.starts)).report(row);
    let row = work::report(row, rounds.iter().map(|round| &round.spent))
        .metric(VM_CPU, &cpu(&|round| round.tally.faults_cpu + round.log.cpu))
        .metric(FAULT_CPU, &cpu(&|round| round.tally.faults_cpu))
        .metric(NOTIFIER_CPU, &cpu(&|round| round.log.cpu));
    let row = Scans::report(row, rounds.iter().map(|round| &round.scans))
        .metric(MERGE, &each(Unit::Nanoseconds, |round| &round.log.merges))
        .metric(BREAK, &each(Unit::Nanoseconds, |round| &round.log.breaks))
        .metric(WRITE_FAULT, &each(Unit::Nanoseconds, |round| &round.tally.writes))
        .metric(GUEST_FAULTS, &count(&|round| round.tally.faults))
        .metric(WINDOW_FAULTS, &count(&|round| round.tally.slow))
        .metric(TLB_ADDRESSES, &count(&|round| round.tlbs.addresses))
        .metric(TLB_REFILLS, &count(&|round| round.tlbs.refills));
    let row = CHARGED
        .iter()
        .fold(row, |row, (name, _)| row.metric(name, &count(&|round| round.charged(name))));
    let (reads, mismatches) = (sum(|round| round.tally.reads), sum(|round| round.tally.mismatches));
    let (unbalanced, leaked) = (sum(|round| round.unbalanced), sum(|round| round.leaked));
    let row = row
        .counter("pages_merged", sum(|round| round.merged))
        .counter("pages_broken", sum(|round| round.broken))
        .counter("window_faults_frozen", sum(|round| round.tally.frozen))
        .counter("window_writes", sum(|round| round.tally.breaking))
        .check(
            "guest_checks",
            reads > 0 && mismatches == 0,
            format!("{mismatches} of {reads} reads were wrong"),
        )
        .check("frames_given_back", leaked == 0, format!("{leaked} frames were not"));
    // All rounds are alike; of those that are not, one is shown.
    let Some(round) = rounds.iter().max_by_key(|round| round.unbalanced) else { return row };
    let [said, counted] = round.shared;
    row.counter("pages_shared", said.frames)
        .counter("pages_sharing", said.sharing)
        .counter("ksm_zero_pages", said.zero)
        .check(
            "counters_balance",
            unbalanced == 0,
            format!(
                "shared, sharing, zero: {said}; counted page by page {counted}; in the pattern {}",
                round.expected
            ),
        )
}

/// What Mayfly is asked beside.
fn checked(
    row: ResultRow,
    rounds: &[Measured],
    all: &[(&'static str, Vec<Measured>)],
) -> ResultRow {
    let sum =
        |rounds: &[Measured], of: &dyn Fn(&Measured) -> u64| -> u64 { rounds.iter().map(of).sum() };
    let slow = sum(rounds, &|round| round.tally.slow);
    let changes = sum(rounds, &|round| round.log.windows);
    let row = row.check(
        "no_faults_in_a_window",
        slow == 0,
        format!("{slow} in {changes} changes, but for writes that cause a break"),
    );
    let of = |name| all.iter().find(|(variant, _)| *variant == name).map(|(_, done)| &done[..]);
    let (Some(change_pte), Some(invalidate)) = (of(CHANGE_PTE), of(INVALIDATE)) else {
        return row;
    };
    if rounds.iter().any(|round| round.expected.sharing == 0) {
        // With one VM nothing is merged but zeroes: there is nothing to compare.
        return row;
    }
    let order = |name: &str| {
        [rounds, change_pte, invalidate].map(|done| sum(done, &|round| round.charged(name)))
    };
    let in_order = [ENTRIES_WRITTEN, TABLES_FREED].into_iter().fold(row, |row, name| {
        let [ours, theirs, most] = order(name);
        row.check(
            &format!("{name}_in_order"),
            ours <= theirs && theirs <= most,
            format!("{ours} <= {CHANGE_PTE}: {theirs} <= {INVALIDATE}: {most}"),
        )
    });
    let counts = |rounds: &[Measured], of: &dyn Fn(&Measured) -> u64| -> Vec<u64> {
        rounds.iter().map(of).collect()
    };
    let invalidations = |done| counts(done, &|round: &Measured| round.charged(TLB_INVALIDATIONS));
    let refills = |done| counts(done, &|round: &Measured| round.tlbs.refills);
    let in_order = not_above(
        in_order,
        "tlb_invalidations_fewest",
        &invalidations(rounds),
        &[(CHANGE_PTE, invalidations(change_pte)), (INVALIDATE, invalidations(invalidate))],
    );
    not_above(in_order, "tlb_refills_fewer", &refills(rounds), &[(INVALIDATE, refills(invalidate))])
}

/// Rounds below which counts that depend on who runs when are not held against each other. Of so many, all of one variant
/// are above all of another by chance once in 924 times, if there is no difference.
const FEWEST: usize = 6;

/// Adds the check that `ours`, round by round, are not above those of others, which they are if each is above each of
/// theirs. How often a guest comes between two changes is the scheduler's, so that single rounds, and sums of few, come
/// out either way on a loaded host; where there are few rounds, there is no check.
fn not_above(
    row: ResultRow,
    name: &str,
    ours: &[u64],
    others: &[(&'static str, Vec<u64>)],
) -> ResultRow {
    if others.iter().any(|(_, theirs)| theirs.len().min(ours.len()) < FEWEST) {
        return row;
    }
    let least = ours.iter().min().copied().unwrap_or_default();
    let most = |theirs: &[u64]| theirs.iter().max().copied().unwrap_or_default();
    let beside: Vec<String> =
        others.iter().map(|(name, theirs)| format!("{name}: {}", most(theirs))).collect();
    row.check(
        name,
        others.iter().all(|(_, theirs)| least <= most(theirs)),
        format!("a round's least, {least}, <= the most of {}", beside.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use mayfly_record::Backend;

    use super::*;

    fn verdict(ours: &[u64], theirs: &[u64]) -> Option<bool> {
        let row = ResultRow::new("page-merge", Backend::Machine, "mayfly");
        let row = not_above(row, "fewer", ours, &[(INVALIDATE, theirs.to_vec())]);
        row.checks.first().map(|check| check.ok)
    }

    #[test]
    fn counts_that_the_scheduler_moves_are_judged_by_rounds_that_do_not_overlap() {
        let theirs = [900, 1000, 1100, 950, 1050, 1000];
        // Fewer, or more in some rounds, or in sum: what a loaded host makes of it.
        assert_eq!(verdict(&[500; 6], &theirs), Some(true));
        assert_eq!(verdict(&[1090, 1500, 1500, 1500, 1500, 1500], &theirs), Some(true));
        // More in each round than in any of theirs.
        assert_eq!(verdict(&[1101; 6], &theirs), Some(false));
        assert_eq!(verdict(&[2000, 1900, 2100, 1800, 2200, 2000], &theirs), Some(false));
    }

    #[test]
    fn of_few_rounds_nothing_is_said() {
        assert_eq!(verdict(&[2000; 5], &[1000; 6]), None);
        assert_eq!(verdict(&[2000; 6], &[1000; 2]), None);
        assert_eq!(verdict(&[], &[]), None);
    }
}
