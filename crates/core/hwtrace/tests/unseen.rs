//! Faults in events that follow each other, each of which breaks a rule by the words of `docs/trace-format.md`; and what
//! breaks none.

use std::fmt::Write;

use mayfly_hwtrace::{Checker, Lines};

/// The rules that events break which follow each other: a CPU's number and an event a line.
fn rules(events: &str) -> Vec<&'static str> {
    rules_with("", events)
}

/// The same of a trace with those options.
fn rules_with(options: &str, events: &str) -> Vec<&'static str> {
    let mut text = format!("mayfly-hwtrace 1{options}\n");
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

/// A guest that a CPU is in, of a root with two levels, and two more tables.
const INSIDE: &str = "
    0 give frame=0x100 order=0
    0 give frame=0x200 order=0
    0 give frame=0x201 order=0
    0 root top=0x100 order=0 levels=2 format=arm
    0 vmid-take vmid=7 generation=1
    1 enter tlb=1 top=0x100 vmid=7
";

#[test]
fn a_root_that_is_gone_is_no_root_that_is_mapped() {
    let events = "
        0 give frame=0x400 order=0
        0 root top=0x400 order=0 levels=1 format=arm
        0 root-gone top=0x400
        0 entry table=0x100 index=0 old=0 new=0x200003
        0 entry table=0x200 index=0 old=0 new=0x4007ff
        0 barrier orders=walks
    ";
    assert_eq!(rules(&format!("{INSIDE}{events}")), [""; 0]);
}
