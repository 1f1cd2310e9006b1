//! The records of a page, and what their rows are called beside each other.

use mayfly_record::{BASELINE, Record, ResultRow};

use crate::group::{Group, label};

/// The records, each with a letter where there are several.
pub(super) struct Runs<'a>(pub(super) &'a [Record]);

impl<'a> Runs<'a> {
    pub(super) fn lettered(&self) -> impl Iterator<Item = (String, &'a Record)> {
        let several = self.0.len() > 1;
        self.0.iter().enumerate().map(move |(number, record)| {
            (if several { letter(number) } else { String::new() }, record)
        })
    }

    /// The experiments that have rows, in the order in which they come.
    pub(super) fn experiments(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for row in self.0.iter().flat_map(|record| &record.results) {
            if !names.contains(&row.experiment.as_str()) {
                names.push(&row.experiment);
            }
        }
        names
    }

    /// The rows of an experiment, of all records.
    pub(super) fn rows(&self, experiment: &str) -> Vec<&'a ResultRow> {
        let rows = self.0.iter().flat_map(|record| &record.results);
        rows.filter(|row| row.experiment == experiment).collect()
    }

    /// What a row is called beside others.
    pub(super) fn label(&self, row: &ResultRow) -> String {
        let number = self.number(row);
        if self.0.len() > 1 { format!("{} {}", letter(number), label(row)) } else { label(row) }
    }

    /// The record that a row is of.
    fn number(&self, row: &ResultRow) -> usize {
        let is_of = |record: &Record| record.results.iter().any(|own| std::ptr::eq(own, row));
        self.0.iter().position(is_of).unwrap_or_default()
    }

    /// Has the rows of a variant follow each other, whichever records they are of.
    pub(super) fn put_side_by_side(&self, rows: &mut [&'a ResultRow]) {
        let mut labels: Vec<String> = Vec::new();
        for row in rows.iter() {
            if !labels.contains(&label(row)) {
                labels.push(label(row));
            }
        }
        let place = |row: &ResultRow| labels.iter().position(|other| *other == label(row));
        rows.sort_by_key(|row| (place(row), self.number(row)));
    }

    /// What a row is compared with: Mayfly's of the same record, group and backend.
    pub(super) fn baseline(&self, group: &Group<'a>, row: &ResultRow) -> Option<&'a ResultRow> {
        let is_it = |other: &&&ResultRow| {
            other.variant == BASELINE
                && other.backend == row.backend
                && self.number(other) == self.number(row)
        };
        group.rows.iter().find(is_it).copied()
    }
}

/// `A` to `Z`, then numbers.
fn letter(number: usize) -> String {
    match u8::try_from(number) {
        Ok(number @ 0..26) => char::from(b'A' + number).to_string(),
        _ => number.to_string(),
    }
}
