//! Every number of a group, in a table.

use maud::{Markup, html};
use mayfly_record::{BASELINE, Unit, units};

use super::runs::Runs;
use crate::group::Group;
use crate::value::whole;

/// What was measured, counted, checked and found in one group.
pub(super) fn tables(runs: &Runs<'_>, group: &Group<'_>, metrics: &[&str]) -> Markup {
    html! {
        @if !group.title.is_empty() { h4 { (group.title) } }
        (measured(runs, group, metrics))
        (counted(runs, group))
        (checked(runs, group))
    }
}

fn measured(runs: &Runs<'_>, group: &Group<'_>, metrics: &[&str]) -> Markup {
    let has = |metric: &&&str| group.rows.iter().any(|row| row.metrics.contains_key(**metric));
    if !metrics.iter().any(|metric| has(&metric)) {
        return html! {};
    }
    let optional = |number: Option<u64>, unit: &Unit| {
        number.map_or_else(|| "-".to_owned(), |number| unit.shown(number))
    };
    html! {
        (scrolling("measured", &group.title, &html! {
            table.numbers {
                thead {
                    tr {
                        th scope="col" { "variant" }
                        @for head in ["n", "min", "p50", "95 % interval", "p90", "p99", "max", "mean", "ratio"] {
                            th.number scope="col" { (head) }
                        }
                    }
                }
                @for metric in metrics.iter().filter(has) {
                    tbody {
                        tr.group { th colspan="10" scope="rowgroup" { code { (metric) } } }
                        @for row in &group.rows {
                            @if let Some(summary) = row.metrics.get(*metric) {
                                @let unit = &summary.unit;
                                @let interval = summary.p50_interval.map_or_else(
                                    || "-".to_owned(),
                                    |[low, high]| format!("{} to {}", unit.shown(low), unit.shown(high)),
                                );
                                @let baseline = runs.baseline(group, row).and_then(|of| of.metrics.get(*metric))
                                    .filter(|of| !row.uncompared.contains(*metric) && of.p50 > 0 && of.unit == *unit);
                                tr.baseline[row.variant == BASELINE] {
                                    th scope="row" { (runs.label(row)) }
                                    td.number { (units::grouped(summary.count)) }
                                    td.number { (unit.shown(summary.min)) }
                                    td.number { (unit.shown(summary.p50)) }
                                    td.number { (interval) }
                                    td.number { (optional(summary.p90, unit)) }
                                    td.number { (optional(summary.p99, unit)) }
                                    td.number { (unit.shown(summary.max)) }
                                    td.number { (unit.shown(whole(summary.mean))) }
                                    td.number {
                                        (baseline.map_or_else(String::new, |of| {
                                            units::ratio(summary.p50 as f64 / of.p50 as f64)
                                        }))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }))
    }
}

fn counted(runs: &Runs<'_>, group: &Group<'_>) -> Markup {
    let mut names: Vec<&str> =
        group.rows.iter().flat_map(|row| row.counters.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return html! {};
    }
    html! {
        (scrolling("counted", &group.title, &html! {
            table.numbers {
                thead {
                    tr {
                        th scope="col" { "counted" }
                        @for row in &group.rows { th.number scope="col" { (runs.label(row)) } }
                    }
                }
                tbody {
                    @for name in names {
                        tr {
                            th scope="row" { code { (name) } }
                            @for row in &group.rows {
                                td.number {
                                    (row.counters.get(name).map_or_else(|| "-".to_owned(), |count| units::grouped(*count)))
                                }
                            }
                        }
                    }
                }
            }
        }))
    }
}

/// A table that is wider than a narrow screen: it scrolls by itself, by keys as well, and says so.
fn scrolling(what: &str, of: &str, table: &Markup) -> Markup {
    let name = if of.is_empty() { what.to_owned() } else { format!("{what}: {of}") };
    html! {
        p.hint aria-hidden="true" { "This table is wider than the screen: scroll it sideways." }
        div.wide role="region" aria-label=(name) tabindex="0" { (table) }
    }
}

fn checked(runs: &Runs<'_>, group: &Group<'_>) -> Markup {
    let checks = group.rows.iter().flat_map(|row| row.checks.iter().map(move |check| (row, check)));
    let found =
        group.rows.iter().flat_map(|row| row.findings.iter().map(move |found| (row, found)));
    html! {
        ul.checks {
            @for (row, check) in checks {
                li.failed[!check.ok] {
                    (runs.label(row)) " " code { (check.name) } ": "
                    b { @if check.ok { "ok" } @else { "FAILED" } }
                    @if !check.detail.is_empty() { ", " (check.detail) }
                }
            }
            @for (row, found) in found {
                li { (runs.label(row)) " found " code { (found.name) } ": " (found.detail) }
            }
        }
    }
}
