//! What was measured on, and how to do it again.

use maud::{Markup, html};
use mayfly_record::{Record, units};
use serde_json::Value;

use super::runs::Runs;
use crate::noise;

/// What stands at the top: the host and the command of each record, and what is to be known before it is believed.
pub(super) fn summary(runs: &Runs<'_>) -> Markup {
    html! {
        @for (letter, record) in runs.lettered() {
            p {
                @if !letter.is_empty() { b { (letter) } ": " }
                "Linux " (record.host.kernel) " " (record.host.arch) ", "
                (record.host.cpus) " × " (record.host.cpu.as_deref().unwrap_or(&record.host.arch))
                @if let Some(hz) = record.host.hz { ", HZ=" (hz) }
                ". To repeat: " code { (record.host.command) }
            }
            @if let Some(bound) = noise::bound(record) {
                p.alarm { "Noisy host: ratios below " (units::ratio((bound * 10.0).ceil() / 10.0)) " mean nothing here." }
            }
            @if let Some(why) = &record.partial { p.alarm { "Incomplete: " (why) "." } }
        }
        nav aria-label="Experiments" {
            @for name in runs.experiments() { a href=(format!("#{name}")) { (name) } " " }
            a href="#hosts" { "host" }
        }
    }
}

/// All facts of each record's host, and how it was meanwhile.
pub(super) fn hosts(runs: &Runs<'_>) -> Markup {
    html! {
        section id="hosts" {
            h2 { "Host" }
            @for (letter, record) in runs.lettered() {
                @if !letter.is_empty() { h3 { "Record " (letter) } }
                dl.facts {
                    @for (name, value) in facts(record) {
                        dt { (name) }
                        dd { (value) }
                    }
                }
            }
        }
    }
}

/// What the record says of its host, by name.
fn facts(record: &Record) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    for part in [serde_json::to_value(&record.host), serde_json::to_value(&record.conditions)] {
        if let Ok(Value::Object(members)) = part {
            for (name, value) in members {
                flatten(&name.replace('_', " "), &value, &mut facts);
            }
        }
    }
    facts
}

fn flatten(name: &str, value: &Value, facts: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(members) => {
            for (member, value) in members {
                flatten(&format!("{name}: {member}"), value, facts);
            }
        }
        Value::Array(_) if name == "arguments" => {}
        Value::String(text) => facts.push((name.to_owned(), text.clone())),
        other => facts.push((name.to_owned(), other.to_string())),
    }
}
