//! The timeline as a picture: the phases, the waits, and a row a thread.

use std::collections::HashMap;

use maud::{Markup, html};
use mayfly_record::units::{duration, rounded};

use crate::life::runs_vcpu;
use crate::listing::told;
use crate::record::{Call, Sample, Stall, Trace};
use crate::words::{cause, doing, lived};

/// Threads that have a row; of more, those that came first.
const MOST_ROWS: usize = 100;
/// The picture's measures: where times begin, how wide they are, and how high a row is.
const LEFT: f64 = 230.0;
const WIDTH: f64 = 1000.0;
const ROW: f64 = 18.0;
/// What is narrower cannot be seen apart from its neighbours, and is shown with them.
const NARROW: f64 = 0.5;

/// Something from one time to another.
struct Span {
    from: u64,
    to: u64,
    class: &'static str,
    said: String,
    /// How many it stands for.
    of: usize,
}

impl Span {
    fn new((from, to): (u64, u64), class: &'static str, said: String) -> Self {
        Self { from, to, class, said, of: 1 }
    }
}

/// A row: what it is called, and what is on it.
struct Row {
    name: String,
    spans: Vec<Span>,
}

pub(super) fn picture(trace: &Trace) -> Markup {
    let scale = WIDTH / trace.span.max(1) as f64;
    let threads = threads(trace, scale);
    let untold = threads.len().saturating_sub(MOST_ROWS);
    let mut rows = vec![phases(trace)];
    rows.extend(waits(trace));
    rows.extend(threads.into_iter().take(MOST_ROWS));
    let height = ROW * (rows.len() as f64 + 1.5);
    html! {
        figure {
            svg viewBox=(format!("0 0 {} {height}", LEFT + WIDTH + 10.0)) role="img" aria-label="Timeline" {
                @for (place, time) in ticks(trace.span) {
                    @let x = LEFT + place * WIDTH;
                    line.grid x1=(x) x2=(x) y1="0" y2=(height - ROW) {}
                    text x=(x) y=(height - 4.0) text-anchor="middle" { (time) }
                }
                @for (number, row) in rows.iter().enumerate() {
                    @let y = ROW * number as f64;
                    text x="0" y=(y + ROW - 5.0) { (row.name) }
                    @for span in &row.spans { (drawn(span, y, scale)) }
                }
            }
            figcaption {
                "Hold the pointer over something to see what it is. "
                span.kvm { "KVM's calls" } ", " span.call { "other calls" } ", " span.guest { "in a guest" } ", "
                span.seen { "seen at something else" } ", " span.wait { "the longest waits" } "."
                @if untold > 0 { " " (untold) " more threads have no row." }
            }
        }
    }
}

fn drawn(span: &Span, y: f64, scale: f64) -> Markup {
    let x = LEFT + span.from as f64 * scale;
    let width = (span.to.saturating_sub(span.from) as f64 * scale).max(NARROW);
    let (top, height) = match span.class {
        "guest" | "seen" => (y + ROW - 7.0, 4.0),
        _ => (y + 2.0, ROW - 4.0),
    };
    let said = match span.of {
        1 => span.said.clone(),
        several => format!("{several} calls, the first: {}", span.said),
    };
    html! {
        rect class=(span.class) x=(format!("{x:.2}")) y=(top) width=(format!("{width:.2}")) height=(height) {
            title { (said) }
        }
    }
}

fn phases(trace: &Trace) -> Row {
    let spans = trace.phases.iter().enumerate().map(|(number, phase)| {
        let times = (phase.at.saturating_sub(phase.took), phase.at);
        let class = if number % 2 == 0 { "phase" } else { "phase other" };
        Span::new(times, class, format!("until {}: {}", phase.name, duration(phase.took)))
    });
    Row { name: "phases".to_owned(), spans: spans.collect() }
}

/// As many rows as there are waits at the same time.
fn waits(trace: &Trace) -> Vec<Row> {
    let mut stalls: Vec<&Stall> = trace.stalls.iter().collect();
    stalls.sort_by_key(|stall| stall.at);
    let mut rows: Vec<Row> = Vec::new();
    for stall in stalls {
        let said = format!("{}, {}: {}", stall.what, duration(stall.took), cause(stall));
        let span = Span::new((stall.at, stall.at + stall.took), "wait", said);
        let is_free = |row: &Row| row.spans.last().is_none_or(|last| last.to <= span.from);
        match rows.iter().position(is_free) {
            Some(free) => rows[free].spans.push(span),
            None => rows.push(Row { name: "waits".to_owned(), spans: vec![span] }),
        }
    }
    rows
}

/// The threads of which there is something to show.
fn threads(trace: &Trace, scale: f64) -> Vec<Row> {
    let mut of: HashMap<i32, (Vec<&Call>, Vec<&Sample>)> = HashMap::new();
    for call in &trace.calls {
        of.entry(call.tid).or_default().0.push(call);
    }
    for sample in &trace.samples {
        of.entry(sample.tid).or_default().1.push(sample);
    }
    let rows = trace.threads.iter().zip(trace.thread_names()).map(|(thread, name)| {
        let (calls, samples) = of.get(&thread.tid).cloned().unwrap_or_default();
        let samples = samples.into_iter().filter(|one| lived(thread, one.at)).map(|sample| {
            let class = if runs_vcpu(sample) { "guest" } else { "seen" };
            Span::new((sample.at, sample.at + sample.took), class, doing(sample))
        });
        let mut spans = merged(samples, scale);
        let next = |number: usize| calls.get(number + 1).map(|call: &&Call| call.at);
        let own = calls.iter().enumerate().filter(|(_, call)| lived(thread, call.at));
        let own = own.map(|(number, call)| {
            let class = if call.is_kvm() { "kvm" } else { "call" };
            let took = call.took.map_or_else(|| "its end was not seen".to_owned(), duration);
            Span::new(
                (call.at, trace.ended_by(call, next(number))),
                class,
                format!("{}, {took}", told(call)),
            )
        });
        spans.extend(merged(own, scale));
        Row { name, spans }
    });
    rows.filter(|row| !row.spans.is_empty()).collect()
}

/// With neighbours that are too narrow to be told apart as one.
fn merged(spans: impl Iterator<Item = Span>, scale: f64) -> Vec<Span> {
    let mut merged: Vec<Span> = Vec::new();
    let wide = |from: u64, to: u64| to.saturating_sub(from) as f64 * scale > NARROW;
    for span in spans {
        match merged.last_mut() {
            Some(last) if last.class == span.class && !wide(last.from, span.to) => {
                last.to = last.to.max(span.to);
                last.of += span.of;
            }
            _ => merged.push(span),
        }
    }
    merged
}

/// Round times on the axis, and where they stand: 0 at the beginning, 1 at the end.
fn ticks(span: u64) -> Vec<(f64, String)> {
    let span = span.max(1);
    let mut step: u64 = 1;
    for factor in [2, 5, 10]
        .into_iter()
        .cycle()
        .enumerate()
        .map(|(number, factor)| 10_u64.saturating_pow(number as u32 / 3).saturating_mul(factor))
    {
        if span / step <= 8 {
            break;
        }
        step = factor;
    }
    let times = (0..=span / step).map(|number| number * step);
    times.map(|time| (time as f64 / span as f64, rounded(&duration(time)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round_however_long_it_took() {
        for span in [0, 1, 9, 999, 242_000_000, 3_600_000_000_000, 100 * 366 * 86_400_000_000_000] {
            let ticks = ticks(span);
            assert!((1..=9).contains(&ticks.len()), "{span}: {ticks:?}");
            assert!(ticks.iter().all(|(place, _)| (0.0..=1.0).contains(place)), "{ticks:?}");
        }
        let words: Vec<String> = ticks(242_000_000).into_iter().map(|(_, time)| time).collect();
        assert_eq!(words, ["0 ns", "50 ms", "100 ms", "150 ms", "200 ms"]);
    }

    #[test]
    fn what_is_too_narrow_to_be_seen_apart_is_one_and_says_of_how_many() {
        let span = |from, to, class| Span::new((from, to), class, String::new());
        let spans =
            [span(0, 1, "kvm"), span(2, 3, "kvm"), span(4, 5, "call"), span(6, 900, "call")];
        let merged = merged(spans.into_iter(), 0.1);
        let found: Vec<_> = merged.iter().map(|one| (one.from, one.to, one.of)).collect();
        assert_eq!(found, [(0, 3, 2), (4, 5, 1), (6, 900, 1)]);
    }
}
