//! Traces as text.

#![allow(dead_code, reason = "each file of tests uses some of it")]

use mayfly_hwtrace::{Checker, Lines, Violation};

/// A guest that a CPU is in, of a root with two levels, and two more tables.
pub(crate) const INSIDE: &str = "
    0 give frame=0x100 order=0
    0 give frame=0x200 order=0
    0 give frame=0x201 order=0
    0 root top=0x100 order=0 levels=2 format=arm
    0 vmid-take vmid=7 generation=1
    1 enter tlb=1 top=0x100 vmid=7
";

/// A page that is mapped before any CPU was in its guest.
pub(crate) const MAPPED: &str = "
    0 give frame=0x100 order=0
    0 give frame=0x300 order=0
    0 root top=0x100 order=0 levels=1 format=arm
    0 entry table=0x100 index=5 old=0 new=0x3007ff
    0 barrier orders=walks
    0 vmid-take vmid=7 generation=1
    0 vmid-take vmid=8 generation=1
";

/// The names of the rules that a trace breaks, and the texts of its lines that break them.
pub(crate) fn broken(trace: &str) -> Vec<(&'static str, String)> {
    let event = |line: u64| trace.trim().lines().nth(line as usize - 2).unwrap();
    let name = |line| event(line).split(' ').skip(3).collect::<Vec<_>>().join(" ");
    found("", trace).iter().map(|found| (found.rule.name(), name(found.line))).collect()
}

/// A trace breaks nothing where one of its events is `wide`, and `rule` where the event is `late` for certain.
#[track_caller]
pub(crate) fn overlaps(trace: impl Fn(&str) -> String, (wide, late): (&str, &str), rule: &str) {
    assert_eq!(broken(&trace(wide)), []);
    let found = broken(&trace(late));
    assert!(found.iter().any(|(name, _)| *name == rule), "{found:?}");
}

/// A trace does not break `rule` in one order of its tickets. It may break others.
#[track_caller]
pub(crate) fn keeps(rule: &str, trace: &str) {
    let found = broken(trace);
    assert!(found.iter().all(|(name, _)| *name != rule), "{found:?}");
}

/// The rules that events break which follow each other: a trace's options, and a CPU's number and an event a line.
pub(crate) fn rules(options: &str, events: &str) -> Vec<&'static str> {
    found(options, &in_turn(events)).iter().map(|found| found.rule.name()).collect()
}

/// The trace of events that follow each other: a CPU's number and an event a line.
pub(crate) fn in_turn(events: &str) -> String {
    let lines = events.lines().map(str::trim).filter(|line| !line.is_empty());
    let numbered = (1u64..).zip(lines);
    let lines: Vec<String> =
        numbered.map(|(at, line)| format!("{} {} {line}", 2 * at, 2 * at + 1)).collect();
    lines.join("\n")
}

fn found(options: &str, trace: &str) -> Vec<Violation> {
    let text = format!("mayfly-hwtrace 1 {options}\n{}\n", trace.trim());
    let (mut lines, options) = Lines::new(text.as_bytes()).unwrap();
    let mut checker = Checker::new(options);
    while let Some((line, record)) = lines.next_record().unwrap() {
        checker.take(line, &record);
    }
    checker.finish()
}
