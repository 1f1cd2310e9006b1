//! One figure: the median of several runs' values, and their range.

use mayfly_record::{ResultRow, Unit};

use crate::statistic::Statistic;

/// Stands where nothing was measured.
pub(crate) const NONE: &str = "–";

/// A figure for a person: the median of the runs' values, and their range.
pub(crate) fn told(rows: &[&ResultRow], names: &[&str], statistic: Statistic) -> String {
    for name in names {
        let values: Vec<(u64, Unit)> =
            rows.iter().filter_map(|row| value(row, name, statistic)).collect();
        // What some runs have and others have not is no figure of all of them.
        if values.len() == rows.len()
            && let Some((_, unit)) = values.first()
        {
            let mut numbers: Vec<u64> = values.iter().map(|(number, _)| *number).collect();
            numbers.sort_unstable();
            let text = ranged(&numbers, unit);
            let modelled = if name.starts_with("modelled_") { ", modelled" } else { "" };
            return text + modelled;
        }
    }
    NONE.to_owned()
}

fn ranged(sorted: &[u64], unit: &Unit) -> String {
    let show = |number: u64| unit.shown(number).replace(" us", " µs");
    let [middle, low, high] =
        [sorted[(sorted.len() - 1) / 2], sorted[0], sorted[sorted.len() - 1]].map(show);
    if low == high { middle } else { format!("{middle} ({low} to {high})") }
}

/// What [`told`] writes, without its range.
pub(crate) fn without_range(told: &str) -> String {
    match told.split_once(" (").and_then(|(middle, rest)| Some((middle, rest.split_once(')')?.1))) {
        Some((middle, modelled)) => format!("{middle}{modelled}"),
        None => told.to_owned(),
    }
}

/// How many samples a row has of what a figure is made of.
pub(crate) fn samples(row: &ResultRow, names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| row.metrics.get(*name)).map(|summary| summary.count)
}

fn value(row: &ResultRow, name: &str, statistic: Statistic) -> Option<(u64, Unit)> {
    let Some(summary) = row.metrics.get(name) else {
        return row.counters.get(name).map(|count| (*count, Unit::Count));
    };
    let number = match statistic {
        Statistic::Median => summary.p50,
        Statistic::P99 => summary.p99?,
        Statistic::Longest => summary.max,
    };
    Some((number, summary.unit.clone()))
}

/// Whether a text is one that [`told`] writes.
pub(crate) fn is_one(text: &str) -> bool {
    let text = text.strip_suffix(", modelled").unwrap_or(text);
    if text == NONE {
        return true;
    }
    let (middle, range) = match text.split_once(" (") {
        Some((middle, range)) => match range.strip_suffix(')').and_then(|of| of.split_once(" to "))
        {
            Some((low, high)) => (middle, vec![low, high]),
            None => return false,
        },
        None => (text, Vec::new()),
    };
    [middle].into_iter().chain(range).all(is_number)
}

/// Digits, with a unit of time or without.
fn is_number(text: &str) -> bool {
    let number = text.split_once(' ').map_or(Some(text), |(number, unit)| {
        ["ns", "µs", "ms", "s"].contains(&unit).then_some(number)
    });
    let is_digit = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    number.is_some_and(|number| {
        number.starts_with(|c: char| c.is_ascii_digit()) && number.chars().all(is_digit)
    })
}

#[cfg(test)]
mod tests {
    use mayfly_record::{Backend, Samples};

    use super::*;

    fn row(ns: u64) -> ResultRow {
        let mut samples = Samples::default();
        samples.record_ns(ns);
        ResultRow::new("e", Backend::Kvm, "kernel")
            .metric("m", &samples)
            .metric("modelled_m", &samples)
            .counter("c", ns)
    }

    #[test]
    fn a_figure_is_the_median_of_the_runs_and_their_range() {
        let rows: Vec<ResultRow> = [5_100, 4_000, 6_000, 5_000, 4_900].map(row).into();
        let rows: Vec<&ResultRow> = rows.iter().collect();
        let told = |names: &[&str], statistic| super::told(&rows, names, statistic);
        assert_eq!(told(&["m"], Statistic::Median), "5.00 µs (4.00 µs to 6.00 µs)");
        assert_eq!(told(&["no", "m"], Statistic::Longest), "5.00 µs (4.00 µs to 6.00 µs)");
        assert_eq!(
            told(&["modelled_m"], Statistic::Median),
            "5.00 µs (4.00 µs to 6.00 µs), modelled"
        );
        assert_eq!(told(&["c"], Statistic::Median), "5,000 (4,000 to 6,000)");
        assert_eq!(told(&["m"], Statistic::P99), "–", "one sample carries none");
        assert_eq!(super::told(&rows[..1], &["c"], Statistic::Median), "5,100");
        assert_eq!(super::told(&[], &["c"], Statistic::Median), "–");
        for names in [&["m"][..], &["c"], &["modelled_m"], &["no"]] {
            assert!(is_one(&told(names, Statistic::Median)), "{names:?}");
        }
    }

    #[test]
    fn a_figure_is_quoted_without_its_range_and_with_what_says_that_it_is_modelled() {
        for (told, quoted) in [
            ("5.00 µs (4.00 µs to 6.00 µs)", "5.00 µs"),
            ("6.16 s (6.06 s to 6.46 s), modelled", "6.16 s, modelled"),
            ("12,160", "12,160"),
            (NONE, NONE),
        ] {
            assert_eq!(without_range(told), quoted);
        }
    }

    #[test]
    fn what_was_typed_by_hand_is_told_from_a_figure() {
        for text in ["", "fast", "5 ms (about)", "5.00 ms (4 to)", "~5 ms", "5 mss", "**5 ms**"] {
            assert!(!is_one(text), "{text}");
        }
    }
}
