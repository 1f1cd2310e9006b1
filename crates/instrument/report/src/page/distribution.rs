//! How a metric is distributed: a strip for each variant on one logarithmic axis.
//!
//! A strip has the whole range as a line, the middle four fifths as a bar, the median as a mark, and what was measured as
//! dots. The words and numbers beside it are text of the page and not of the picture, so they are legible at any width.

use maud::{Markup, html};
use mayfly_record::{BASELINE, ResultRow, Summary};

use super::axis::Axis;
use super::runs::Runs;
use crate::group::Group;

/// Dots in a strip; of more samples than that, so many are shown, evenly.
const DOTS: usize = 200;

/// The picture of one metric in all groups, if any row has it.
pub(super) fn figure(runs: &Runs<'_>, groups: &[Group<'_>], metric: &str, summary: &str) -> Markup {
    let rows = || groups.iter().flat_map(|group| &group.rows);
    let summaries = || rows().filter_map(|row| row.metrics.get(metric));
    let Some(unit) = summaries().map(|summary| &summary.unit).next() else { return html! {} };
    let axis = Axis::of(summaries().flat_map(|summary| [summary.min, summary.max]));
    html! {
        figure.strips {
            figcaption { code { (metric) } " " (summary) }
            table {
                thead {
                    tr {
                        th scope="col" { "variant" }
                        td.axis {
                            @for (at, text) in axis.ticks(unit) {
                                span style=(format!("left:{:.2}%", at * 100.0)) { (text) }
                            }
                        }
                        th.number scope="col" { "p50" }
                    }
                }
                @for group in groups {
                    @let measured: Vec<(&&ResultRow, &Summary)> = group.rows.iter()
                        .filter_map(|row| Some((row, row.metrics.get(metric)?))).collect();
                    @if !measured.is_empty() {
                        tbody {
                            @if !group.title.is_empty() {
                                tr.group { th colspan="3" scope="rowgroup" { (group.title) } }
                            }
                            @for (row, summary) in measured {
                                tr.baseline[row.variant == BASELINE] {
                                    th scope="row" { (runs.label(row)) }
                                    td.strip { (strip(row, metric, summary, &axis)) }
                                    td.number { (unit.shown(summary.p50)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn strip(row: &ResultRow, metric: &str, summary: &Summary, axis: &Axis) -> Markup {
    let mut samples: Vec<u64> = row.rounds(metric).concat();
    samples.sort_unstable();
    let rank = |percent: usize| {
        samples.get((samples.len() * percent).div_ceil(100).saturating_sub(1)).copied()
    };
    let x = |number: u64| format!("{:.1}", axis.at(number) * 1000.0);
    let width = |from, to| format!("{:.1}", ((axis.at(to) - axis.at(from)) * 1000.0).max(1.0));
    let bar = |class: &str, from, to| {
        html! { rect class=(class) x=(x(from)) width=(width(from, to)) y="0" height="20" {} }
    };
    let middle = rank(10).zip(rank(90)).filter(|_| samples.len() >= 10);
    let step = samples.len().div_ceil(DOTS).max(1);
    html! {
        svg viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            (bar("range", summary.min, summary.max))
            @if let Some((low, high)) = middle { (bar("middle", low, high)) }
            @for sample in samples.iter().step_by(step) {
                rect.dot x=(x(*sample)) width="2" y="7" height="6" {}
            }
            rect.median x=(x(summary.p50)) width="5" y="1" height="18" {}
        }
    }
}
