//! The median against what varies: vCPUs, or the size of memory.

use std::collections::BTreeMap;

use maud::{Markup, html};
use mayfly_record::{BASELINE, ResultRow, Unit, units};

use super::axis::Axis;
use super::runs::Runs;
use crate::group::{IN_BYTES, listed};

/// Parameters that something may grow with.
const VARIED: [&str; 2] = ["vcpus", "memory"];

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 32.0;

/// How many ways of drawing a line the style has: any, and Mayfly's.
const DRAWINGS: usize = 8;
const OWN_DRAWINGS: usize = 4;

/// The medians of one variant at each number of what varies, by it.
type Lines = BTreeMap<String, Line>;

#[derive(Default)]
struct Line {
    is_baseline: bool,
    points: BTreeMap<u64, u64>,
}

/// The pictures of one metric against each parameter that varies.
pub(super) fn figures(
    runs: &Runs<'_>,
    rows: &[&ResultRow],
    shared: &[&str],
    metric: &str,
) -> Markup {
    html! {
        @for param in VARIED {
            @let (lines, unit) = lines(runs, rows, shared, metric, param);
            @if lines.values().any(|line| line.points.len() > 1) {
                (figure(&lines, &unit, metric, param))
            }
        }
    }
}

fn lines(
    runs: &Runs<'_>,
    rows: &[&ResultRow],
    shared: &[&str],
    metric: &str,
    param: &str,
) -> (Lines, Unit) {
    let mut lines = Lines::new();
    let mut unit = Unit::default();
    for row in rows {
        let at = row.params.get(param).and_then(serde_json::Value::as_u64);
        let Some((summary, at)) = row.metrics.get(metric).zip(at) else { continue };
        let others = row
            .params
            .iter()
            .map(|(name, value)| (name.as_str(), value))
            .filter(|(name, _)| *name != param && !shared.contains(name))
            .collect();
        let name = [runs.label(row), listed(&others)];
        let name = name.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        let line = lines.entry(name).or_default();
        line.is_baseline = row.variant == BASELINE;
        line.points.insert(at, summary.p50);
        unit = summary.unit.clone();
    }
    lines.retain(|_, line| line.points.len() > 1);
    (lines, unit)
}

fn figure(lines: &Lines, unit: &Unit, metric: &str, param: &str) -> Markup {
    let xs: Vec<u64> = lines.values().flat_map(|line| line.points.keys().copied()).collect();
    let (low, high) =
        (xs.iter().min().copied().unwrap_or(1), xs.iter().max().copied().unwrap_or(1));
    let ys = Axis::of(lines.values().flat_map(|line| line.points.values().copied()));
    let x = |number: u64| {
        let log = |number: u64| (number.max(1) as f64).log2();
        let share = (log(number) - log(low)) / (log(high) - log(low)).max(f64::MIN_POSITIVE);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    };
    let y = |number: u64| TOP + (1.0 - ys.at(number)) * (HEIGHT - TOP - BOTTOM);
    let mut marks = xs;
    marks.sort_unstable();
    marks.dedup();
    let title = format!("{metric}, p50, against {param}");
    let bytes = IN_BYTES.contains(&param);
    html! {
        figure.scaling {
            figcaption { code { (metric) } ", p50, against " code { (param) } }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img"
                aria-label=(format!("{title}: the numbers are in the tables below")) {
                title { (title) }
                @for (at, text) in ys.ticks(unit) {
                    @let y = TOP + (1.0 - at) * (HEIGHT - TOP - BOTTOM);
                    line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(tenths(y)) y2=(tenths(y)) {}
                    text x=(LEFT - 6.0) y=(tenths(y + 4.0)) text-anchor="end" { (text) }
                }
                @for mark in marks {
                    text x=(tenths(x(mark))) y=(HEIGHT - 10.0) text-anchor="middle" {
                        @if bytes { (units::bytes(mark)) } @else { (mark) }
                    }
                }
                @for (line, class) in lines.values().zip(drawings(lines)) {
                    polyline class=(&class) points=(points(line, x, y)) {}
                    @for (at, p50) in &line.points {
                        circle class=(&class) cx=(tenths(x(*at))) cy=(tenths(y(*p50))) r="3.5" {}
                    }
                }
            }
            ul.legend {
                @for (name, class) in lines.keys().zip(drawings(lines)) {
                    li {
                        svg viewBox="0 0 28 10" aria-hidden="true" focusable="false" {
                            polyline class=(class) points="0,5 28,5" {}
                        }
                        (name)
                    }
                }
            }
        }
    }
}

fn points(line: &Line, x: impl Fn(u64) -> f64, y: impl Fn(u64) -> f64) -> String {
    let point = |(at, p50): (&u64, &u64)| format!("{:.1},{:.1}", x(*at), y(*p50));
    line.points.iter().map(point).collect::<Vec<_>>().join(" ")
}

fn tenths(number: f64) -> String {
    format!("{number:.1}")
}

/// The classes that tell a line from others: by colour, and by dashes where colours come again or cannot be seen. Mayfly's
/// have one colour, whatever they ran with.
fn drawings(lines: &Lines) -> impl Iterator<Item = String> {
    let (mut own, mut others) = (0, 0);
    lines.values().map(move |line| {
        let (kind, number, drawings) = if line.is_baseline {
            ("own", &mut own, OWN_DRAWINGS)
        } else {
            ("line", &mut others, DRAWINGS)
        };
        let class = format!("line {kind}{}", *number % drawings);
        *number += 1;
        class
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_lines_of_a_picture_look_alike() {
        let line = |name: usize| {
            let line = Line { is_baseline: name.is_multiple_of(3), ..Line::default() };
            (format!("{name:02}"), line)
        };
        let lines: Lines = (0..OWN_DRAWINGS + DRAWINGS).map(line).collect();
        let classes: BTreeSet<String> = drawings(&lines).collect();
        assert_eq!(classes.len(), OWN_DRAWINGS + DRAWINGS);
        let style = include_str!("style.css");
        for class in classes.iter().filter_map(|class| class.strip_prefix("line ")) {
            assert!(style.contains(&format!(".{class} {{ stroke: ")), "{class}");
        }
        assert_eq!(style.matches("stroke-dasharray: ").count(), 3 + 7, "but of the first of each");
    }
}
