//! One experiment.

use maud::{Markup, html};
use mayfly_record::{Description, ResultRow};

use super::{Runs, distribution, numbers, scaling};
use crate::group::Grouping;

/// What an experiment comes to, its pictures, and its numbers.
pub(super) fn section(runs: &Runs<'_>, name: &str) -> Markup {
    let described = |of: &Description| of.name == name;
    let known = runs.0.iter().flat_map(|record| &record.experiments).find(|of| described(of));
    let (skipped, measured): (Vec<_>, Vec<_>) =
        runs.rows(name).into_iter().partition(|row| row.skipped.is_some());
    let metrics = metrics(known, &measured);
    let headlines: Vec<&str> =
        metrics.iter().copied().filter(|name| is_headline(known, name)).collect();
    let pictured = if headlines.is_empty() { &metrics } else { &headlines };
    let grouping = Grouping::of(measured.clone());
    html! {
        section id=(name) {
            h2 { (name) }
            @if let Some(known) = known { p { (known.summary) } }
            @for (letter, record) in runs.lettered() {
                @for known in record.experiments.iter().filter(|of| described(of) && !of.answer.is_empty()) {
                    @if !letter.is_empty() { h3 { "Record " (letter) } }
                    ul.answer { @for line in &known.answer { li { (line) } } }
                }
            }
            @for line in grouping.shared_params() { p.params { (line) } }
            @for metric in pictured {
                (distribution::figure(runs, &grouping.groups, metric, meaning(known, metric)))
                (scaling::figures(runs, &measured, &grouping.shared_names(), metric))
            }
            @if !grouping.groups.is_empty() { h3 { "All figures" } }
            @for group in &grouping.groups { (numbers::tables(runs, group, &metrics)) }
            @if !metrics.is_empty() {
                dl.legend {
                    @for metric in &metrics {
                        dt { code { (metric) } }
                        dd { (meaning(known, metric)) }
                    }
                }
            }
            @for row in skipped {
                p.skipped {
                    "skipped: " (runs.label(row)) ": " (row.skipped.as_deref().unwrap_or_default())
                }
            }
        }
    }
}

/// The metrics that were measured: in the experiment's order, then those it does not name.
fn metrics<'a>(known: Option<&Description>, rows: &[&'a ResultRow]) -> Vec<&'a str> {
    let mut names: Vec<&str> =
        rows.iter().flat_map(|row| row.metrics.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let place = |name: &str| {
        known
            .and_then(|known| known.metrics.iter().position(|metric| metric.name == name))
            .unwrap_or(usize::MAX)
    };
    names.sort_by_key(|name| place(name));
    names
}

fn is_headline(known: Option<&Description>, name: &str) -> bool {
    known.is_some_and(|known| {
        known.metrics.iter().any(|metric| metric.headline && metric.name == name)
    })
}

fn meaning<'a>(known: Option<&'a Description>, name: &str) -> &'a str {
    known
        .and_then(|known| known.metrics.iter().find(|metric| metric.name == name))
        .map_or("", |metric| &metric.summary)
}
