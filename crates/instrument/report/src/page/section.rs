//! One experiment.

use maud::{Markup, html};
use mayfly_record::{Description, MetricDescription};

use super::runs::Runs;
use super::{distribution, numbers, scaling};
use crate::group::Grouping;
use crate::{metrics, passes};

/// What an experiment comes to, its pictures, and its numbers.
pub(super) fn section(runs: &Runs<'_>, name: &str) -> Markup {
    let described = |of: &Description| of.name == name;
    let known = runs.0.iter().flat_map(|record| &record.experiments).find(|of| described(of));
    let (skipped, measured): (Vec<_>, Vec<_>) =
        runs.rows(name).into_iter().partition(|row| row.skipped.is_some());
    let declared = metrics::declared(known);
    let metrics = metrics::measured(declared, &measured);
    let headlines = metrics::headlines(declared, &metrics);
    let mut grouping = Grouping::of(measured.clone());
    for group in &mut grouping.groups {
        runs.put_side_by_side(&mut group.rows);
    }
    html! {
        section id=(name) {
            h2 { (name) }
            @if let Some(known) = known { p { (known.summary) } }
            @for (letter, record) in runs.lettered() {
                @for known in record.experiments.iter().filter(|of| described(of) && !of.answer.is_empty()) {
                    @if !letter.is_empty() { h3 { "Record " (letter) } }
                    ul.answer {
                        @for line in &known.answer { li { (line) } }
                        @if let Some(line) = passes::told(known, record.goal) { li { (line) } }
                    }
                }
            }
            @for line in grouping.shared_params() { p.params { (line) } }
            @for metric in headlines {
                (distribution::figure(runs, &grouping.groups, metric, meaning(declared, metric)))
                (scaling::figures(runs, &measured, &grouping.shared_names(), metric))
            }
            @if !grouping.groups.is_empty() { h3 { "All figures" } }
            @for group in &grouping.groups { (numbers::tables(runs, group, &metrics)) }
            @if !metrics.is_empty() {
                dl.legend {
                    @for metric in &metrics {
                        dt { code { (metric) } }
                        dd { (meaning(declared, metric)) }
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

/// What a metric is, in a line; nothing, if the record does not say.
fn meaning<'a>(declared: &'a [MetricDescription], name: &str) -> &'a str {
    let metric = declared.iter().find(|metric| metric.name == name);
    metric.map_or("", |metric| &metric.summary)
}
