//! Refuses rows that did not begin as those that they are compared with.
//!
//! Reports compare the rows of one backend that ran with the same parameters, each with Mayfly's. A row is refused if
//! - it does not say what its work began from;
//! - the same work began from several states;
//! - some work began from another state than in Mayfly's row, or, if there is none, in the first row.
//!
//! A row that is refused keeps no figure, and its check [`CHECK`] says why. A row without figures is not looked at.

use mayfly_record::{BASELINE, ResultRow, State};

use crate::turns::SEED;

/// The check's name.
pub(crate) const CHECK: &str = "begins_alike";

/// The rows of one experiment, those that are refused without their figures.
pub(crate) fn held_alike(rows: &[ResultRow]) -> Vec<ResultRow> {
    let checked = |row: &ResultRow| {
        let row = row.clone();
        if row.metrics.is_empty() {
            return row;
        }
        match judge(&row, rows) {
            Ok(seen) => row.check(CHECK, true, seen),
            Err(why) => row.without_figures().check(CHECK, false, format!("refused: {why}")),
        }
    };
    rows.iter().map(checked).collect()
}

/// What the row began from, in one line; or why it is refused.
fn judge(row: &ResultRow, rows: &[ResultRow]) -> Result<String, String> {
    if row.start.is_empty() {
        return Err("the row does not say what its work began from".to_owned());
    }
    let beside = || rows.iter().filter(|other| are_compared(row, other) && !other.start.is_empty());
    let reference = beside().find(|other| other.variant == BASELINE).or_else(|| beside().next());
    let mut seen = Vec::new();
    for (work, states) in &row.start {
        let told: Vec<String> = states.iter().map(tell).collect();
        let [state] = &told[..] else {
            return Err(format!("{work} began from {}", told.join(", and from ")));
        };
        if let Some(other) = reference.filter(|other| other.variant != row.variant)
            && let Some(expected) = other.start.get(work).filter(|expected| *expected != states)
        {
            let expected: Vec<String> = expected.iter().map(tell).collect();
            let (expected, variant) = (expected.join(", and from "), &other.variant);
            return Err(format!("{work} began from {state}; that of {variant} from {expected}"));
        }
        seen.push(format!("{work}: {state}"));
    }
    Ok(seen.join("; "))
}

/// Whether a report sets the rows beside each other: the seed is chance.
fn are_compared(row: &ResultRow, other: &ResultRow) -> bool {
    let params = |row: &ResultRow| {
        let mut params = row.params.clone();
        params.remove(SEED);
        params
    };
    row.experiment == other.experiment
        && row.backend == other.backend
        && !other.metrics.is_empty()
        && params(row) == params(other)
}

fn tell(state: &State) -> String {
    let all: Vec<String> = state.iter().map(|(name, count)| format!("{name} {count}")).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use mayfly_record::{Backend, Samples, Unit};

    use super::*;

    fn row(variant: &str, vcpus: u32) -> ResultRow {
        ResultRow::new("any", Backend::Machine, variant)
            .param("vcpus", vcpus)
            .param(SEED, variant.len() as u64)
            .metric("time", &Samples::of(Unit::Nanoseconds, [7]))
    }

    fn with(tables: u64) -> State {
        [("tables".to_owned(), tables), ("slots".to_owned(), 2)].into()
    }

    /// Which of the rows keep their figures, and what the check says of the others.
    fn judged(rows: &[ResultRow]) -> (Vec<bool>, Vec<String>) {
        let rows = held_alike(rows);
        let keep = rows.iter().map(|row| !row.metrics.is_empty() && !row.samples.is_empty());
        let failed = rows.iter().flat_map(|row| &row.checks).filter(|check| !check.ok);
        (keep.collect(), failed.map(|check| check.detail.clone()).collect())
    }

    #[test]
    fn rows_that_begin_alike_keep_their_figures_and_say_from_what() {
        let rows =
            [row("old", 1).began("deletion", with(8)), row(BASELINE, 1).began("deletion", with(8))];
        assert_eq!(judged(&rows), (vec![true, true], vec![]));
        let checks = &held_alike(&rows)[0].checks;
        assert_eq!((checks[0].name.as_str(), checks[0].ok), (CHECK, true));
        assert_eq!(checks[0].detail, "deletion: slots 2, tables 8");
    }

    #[test]
    fn a_row_that_begins_with_less_than_mayflys_is_refused() {
        let rows = [
            row("old", 1).began("deletion", with(7)),
            row("older", 1).began("deletion", with(652)),
            row(BASELINE, 1).began("deletion", with(652)),
        ];
        let (keep, failed) = judged(&rows);
        assert_eq!(keep, [false, true, true]);
        assert_eq!(
            failed,
            [
                "refused: deletion began from slots 2, tables 7; that of mayfly from slots 2, tables 652"
            ]
        );
        assert!(held_alike(&rows)[0].uncompared.is_empty());
    }

    #[test]
    fn without_mayfly_the_first_row_is_what_the_others_are_held_against() {
        let rows = [row("old", 1).began("end", with(9)), row("older", 1).began("end", with(8))];
        assert_eq!(judged(&rows).0, [true, false]);
    }

    #[test]
    fn a_row_that_says_nothing_or_begins_once_so_and_once_otherwise_is_refused() {
        let twice = row(BASELINE, 1).began("end", with(8)).began("end", with(9));
        let (keep, failed) = judged(&[row("old", 1), twice, row("older", 1).began("end", with(8))]);
        assert_eq!(keep, [false, false, false]);
        assert!(failed[0].contains("does not say"), "{failed:?}");
        assert!(failed[1].contains("tables 8, and from slots 2, tables 9"), "{failed:?}");
        assert!(failed[2].contains("that of mayfly from"), "{failed:?}");
    }

    #[test]
    fn other_parameters_other_work_and_other_backends_are_not_compared() {
        let kvm = ResultRow { backend: Backend::Kvm, ..row("kernel", 1) };
        let rows = [
            row(BASELINE, 1).began("end", with(8)),
            row("old", 2).began("end", with(9)),
            row("short", 1).began("close", with(1)),
            kvm.began("end", with(3)),
            ResultRow::new("any", Backend::Machine, "checks alone"),
        ];
        let (keep, failed) = judged(&rows);
        assert_eq!((keep, failed.len()), (vec![true, true, true, true, false], 0));
    }
}
