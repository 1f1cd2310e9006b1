//! Events that follow each other.

use std::fmt::Write;

use mayfly_hwtrace::{Checker, Lines};

/// The rules that a trace breaks whose events follow each other: its header's options, and a CPU's number and an event a
/// line.
pub(crate) fn rules(options: &str, events: &str) -> Vec<&'static str> {
    let mut text = format!("mayfly-hwtrace 1 {options}\n");
    let events = events.lines().map(str::trim).filter(|line| !line.is_empty());
    for (at, event) in (1u64..).zip(events) {
        writeln!(text, "{} {} {event}", 2 * at, 2 * at + 1).unwrap();
    }
    let (mut lines, options) = Lines::new(text.as_bytes()).unwrap();
    let mut checker = Checker::new(options);
    while let Some((line, record)) = lines.next_record().unwrap() {
        checker.take(line, &record);
    }
    checker.finish().iter().map(|found| found.rule.name()).collect()
}
