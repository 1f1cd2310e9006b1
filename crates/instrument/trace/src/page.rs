//! Traces as one page of HTML, which needs nothing beside itself: the timeline first, then phases, waits and calls.
//!
//! Everything that the picture shows is in a table, too, but for the moments of single calls: those are in the record.

mod picture;

use std::collections::BTreeMap;
use std::fmt;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use mayfly_record::units::{duration, percent};
use serde_json::Value;

use crate::meanwhile::Meanwhile;
use crate::path::CriticalPath;
use crate::record::{End, Phase, Stall, Trace};
use crate::words::{cause, verdict};

const STYLE: &str = include_str!("page/style.css");

/// Traces laid out for a browser, by its [`Display`](fmt::Display).
pub struct Page<'a>(pub &'a [Trace]);

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = match self.0 {
            [trace] => format!("{}: where its VM's time went", command(trace)),
            traces => format!("Mayfly, {} traces", traces.len()),
        };
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (title) }
                    @for trace in self.0 { (section(trace)) }
                }
            }
        };
        f.write_str(&page.into_string())
    }
}

fn command(trace: &Trace) -> String {
    trace
        .command
        .first()
        .map_or("a program", |path| path.rsplit('/').next().unwrap_or(path))
        .to_owned()
}

fn section(trace: &Trace) -> Markup {
    let ended = match trace.end {
        Some(End::Code(code)) => format!("ended with {code}"),
        Some(End::Signal(signal)) => format!("was ended by signal {signal}"),
        None => "goes on".to_owned(),
    };
    html! {
        section {
            h2 { code { (trace.command.join(" ")) } }
            p {
                "It " (ended) " after " (duration(trace.span)) ". Recorded by " (trace.recorder) "."
                @if let Some(start) = trace.start() { " Start (" @if trace.from.is_some() { "request" } @else { "exec" } " to first entry): " b { (duration(start)) } "." }
                @if let Some(stop) = trace.stop() { " Stop (last exit to process gone): " b { (duration(stop)) } "." }
            }
            @if let Some(why) = trace.incomplete() { p.note { b { "Incomplete: " } (why) "; phases, waits and causes may be missing or wrong." } }
            @for note in &trace.notes { p.note { (note) } }
            (picture::picture(trace))
            @if trace.is_of_a_running_vm() { pre { (Meanwhile(trace)) } }
            @if trace.lives.is_empty() {
                (phases(&trace.phases, trace.span))
                (paths(trace, &trace.critical_paths))
            }
            @for life in &trace.lives {
                h3 { "VM " (life.vm) " of process " (life.pid) ": " (duration(life.took)) ", from " (duration(life.at)) " on" }
                (phases(&life.phases, life.took))
                (paths(trace, &life.critical_paths))
            }
            (waits(trace))
            (calls(trace))
            (host(trace))
        }
    }
}

fn phases(phases: &[Phase], whole: u64) -> Markup {
    html! {
        h3 { "Phases" }
        div.table { table {
            thead { tr { th { "until" } th.number { "took" } th.number { "share" } th.number { "at" } th.number { "calls" } th.number { "in calls" } } }
            tbody {
                @for phase in phases {
                    tr {
                        th { (phase.name) }
                        td.number { (duration(phase.took)) }
                        td.number { (percent(phase.took as f64 / whole.max(1) as f64)) }
                        td.number { (duration(phase.at)) }
                        td.number { (phase.calls) }
                        td.number { (duration(phase.in_calls)) }
                    }
                }
            }
        } }
    }
}

fn paths(trace: &Trace, paths: &[CriticalPath]) -> Markup {
    let names = trace.thread_names();
    let name = |tid, at| trace.thread_number(tid, at).map(|number| &names[number][..]);
    html! {
        @for path in paths {
            h3 { (path.title()) }
            div.table { table {
                thead { tr { th { "thread" } th { "does" } th.number { "took" } th.number { "at" } } }
                tbody {
                    @for piece in &path.pieces {
                        tr {
                            th { (name(piece.tid, piece.at).unwrap_or("another")) }
                            td { (piece) }
                            td.number { (duration(piece.took)) }
                            td.number { (duration(piece.at)) }
                        }
                    }
                }
            } }
        }
    }
}

fn waits(trace: &Trace) -> Markup {
    html! {
        h3 { "The longest waits" }
        @if trace.stalls.is_empty() { p { "No wait of half a tick or more." } }
        @for stall in &trace.stalls {
            div.wait {
                p {
                    b { (duration(stall.took)) }
                    @if let Some(ticks) = stall.ticks { " (" (format!("{ticks:.1}")) " ticks)" }
                    ": " (stall.what) ", thread " (stall.tid) ", at " (duration(stall.at))
                }
                (made_of(stall))
            }
        }
        @if let Some(replay) = &trace.replay { p.note { (replay) } }
    }
}

fn made_of(stall: &Stall) -> Markup {
    let Some(found) = &stall.cause else {
        return html! {
            p { (cause(stall)) }
            @if !stall.known.is_empty() { ul { @for clause in &stall.known { li { (clause) } } } }
        };
    };
    html! {
        p { (verdict(found.verdict)) ": " b { (found.what) } " (" code { (found.code) } ")" }
        ul { @for clause in &found.evidence { li { (clause) } } }
        p { "Remedy: " (found.remedy) }
        @if let Some(gain) = &found.gain { p { (gain) } }
    }
}

/// How many calls of a name there were, and how long they took: all, and the longest.
#[derive(Default)]
struct Sum {
    count: u64,
    took: u64,
    longest: u64,
}

fn calls(trace: &Trace) -> Markup {
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for call in &trace.calls {
        let sum = sums.entry(&call.name).or_default();
        let took = call.took.unwrap_or(0);
        sum.count += 1;
        sum.took = sum.took.saturating_add(took);
        sum.longest = sum.longest.max(took);
    }
    let mut sums: Vec<(&str, Sum)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.took));
    html! {
        h3 { "Calls" }
        div.table { table {
            thead { tr { th { "name" } th.number { "calls" } th.number { "took" } th.number { "longest" } } }
            tbody {
                @for (name, sum) in &sums {
                    tr {
                        th { (name) }
                        td.number { (sum.count) }
                        td.number { (duration(sum.took)) }
                        td.number { (duration(sum.longest)) }
                    }
                }
            }
        } }
    }
}

/// What is known of the host, without what has parts.
fn host(trace: &Trace) -> Markup {
    let facts = serde_json::to_value(&trace.host);
    let facts = facts.ok().and_then(|value| value.as_object().cloned()).unwrap_or_default();
    let shown = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    };
    html! {
        h3 { "Host" }
        dl {
            @for (name, value) in &facts {
                @if let Some(value) = shown(value) { dt { (name.replace('_', " ")) } dd { (value) } }
            }
        }
    }
}

#[cfg(test)]
mod tests;
