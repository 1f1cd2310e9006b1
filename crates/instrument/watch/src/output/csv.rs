//! Lines for a spreadsheet: one a VM and interval, always with the same columns.

use std::time::UNIX_EPOCH;

use csv::{Terminator, WriterBuilder};

use crate::counters::reasons;
use crate::row::Sight;

const BEFORE: [&str; 10] = [
    "time",
    "seconds",
    "pid",
    "vm",
    "program",
    "vcpus",
    "state",
    "busy_percent",
    "source",
    "exits",
];
const AFTER: [&str; 6] = ["other", "wait", "wait_looks", "looks", "wait_at_least_seconds", "name"];

/// The names of the columns. Exits are those of the interval, in all and by reason; what is not known is empty.
pub fn head_of_csv() -> String {
    lines([BEFORE.into_iter().chain(reasons()).chain(AFTER).map(str::to_owned)])
}

/// A line a VM, with the longest of its waits.
pub fn csv(sight: &Sight) -> String {
    let time = sight.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    lines(sight.rows.iter().map(|row| {
        let or_empty = |value: Option<String>| value.unwrap_or_default();
        let recent = row.recent.as_ref();
        let wait = row.waits.first();
        let before = [
            format!("{time:.3}"),
            format!("{:.3}", sight.took.as_secs_f64()),
            row.pid.to_string(),
            row.vm.to_string(),
            row.program.clone(),
            or_empty(row.vcpus.map(|vcpus| vcpus.to_string())),
            row.state.to_string(),
            or_empty(row.busy.map(|busy| busy.to_string())),
            or_empty(row.source.map(str::to_owned)),
            or_empty(recent.map(|exits| exits.all.to_string())),
        ];
        let by_reason = reasons().map(move |shown| {
            or_empty(recent.and_then(|exits| exits.by_reason.get(shown)).map(u64::to_string))
        });
        let after = [
            or_empty(recent.map(|exits| exits.other().to_string())),
            or_empty(wait.map(|wait| wait.call.clone())),
            or_empty(wait.map(|wait| wait.looks.to_string())),
            sight.looks.to_string(),
            or_empty(wait.map(|wait| format!("{:.6}", wait.at_least.as_secs_f64()))),
            or_empty(row.name.clone()),
        ];
        before.into_iter().chain(by_reason).chain(after).collect::<Vec<_>>()
    }))
}

fn lines<L: IntoIterator<Item = String>>(all: impl IntoIterator<Item = L>) -> String {
    let mut writer =
        WriterBuilder::new().terminator(Terminator::Any(b'\n')).from_writer(Vec::new());
    for line in all {
        let line: Vec<String> = line.into_iter().collect();
        // Writing to memory does not fail, and all lines are of one length.
        let _ = writer.write_record(&line);
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::counters::Exits;
    use crate::row::{Row, State};

    #[test]
    fn every_line_has_the_columns_of_the_head_whatever_a_program_is_called() {
        let row = Row {
            pid: 7,
            vm: 12,
            program: "a,\"b\"\nc".to_owned(),
            name: Some("d,e".to_owned()),
            vcpus: None,
            state: State::Idle,
            busy: Some(0),
            exits: None,
            recent: Some(Exits { all: 9, by_reason: [("io", 4)].into() }),
            source: None,
            waits: vec![],
            missing: None,
        };
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1500);
        let rows = vec![row.clone(), Row { recent: None, name: None, ..row }];
        let took = Duration::from_secs(1);
        let sight = Sight { at, took, looks: 5, rows, missing: vec![] };
        let text = head_of_csv() + &csv(&sight);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let head = reader.headers().unwrap().clone();
        let records: Vec<_> = reader.records().map(Result::unwrap).collect();
        assert_eq!(records.len(), 2);
        let of = |record: usize, column: &str| {
            records[record].get(head.iter().position(|name| name == column).unwrap()).unwrap()
        };
        assert_eq!((of(0, "program"), of(0, "time"), of(0, "vcpus")), ("a,\"b\"\nc", "1.500", ""));
        assert_eq!((of(0, "name"), of(1, "name")), ("d,e", ""));
        assert_eq!((of(0, "exits"), of(0, "io"), of(0, "other")), ("9", "4", "5"));
        assert_eq!((of(1, "exits"), of(1, "io"), of(0, "halt")), ("", "", ""));
    }
}
