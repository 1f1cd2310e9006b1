//! Records as one page of HTML, which needs nothing beside itself.
//!
//! Pictures first: for each metric the distribution of every variant on one logarithmic axis, and where the number of vCPUs
//! or the size of memory varies, the median against it. Below stand the numbers, the host's facts, and how to do it
//! again. Everything that a picture shows is in a table, too: for who listens to the page, and for who copies from it.

mod axis;
mod distribution;
mod facts;
mod numbers;
mod scaling;
mod section;

use std::fmt;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use mayfly_record::{BASELINE, Record, ResultRow};

use crate::group::{Group, label};

const STYLE: &str = include_str!("page/style.css");

/// Records laid out for a browser, by its [`Display`](fmt::Display).
pub struct Page<'a> {
    records: &'a [Record],
}

impl<'a> Page<'a> {
    /// A page on `records`; if there are several, rows that ran with the same parameters stand side by side, each with
    /// its record's letter.
    pub fn new(records: &'a [Record]) -> Self {
        Self { records }
    }

    fn markup(&self) -> Markup {
        let runs = Runs(self.records);
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title()) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header {
                        h1 { (self.title()) }
                        (facts::summary(&runs))
                    }
                    main {
                        @for name in runs.experiments() {
                            (section::section(&runs, name))
                        }
                        (facts::hosts(&runs))
                    }
                }
            }
        }
    }

    fn title(&self) -> String {
        match self.records {
            [record] => format!("Mayfly on Linux {}", record.host.kernel),
            records => format!("Mayfly, {} records", records.len()),
        }
    }
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.markup().into_string())
    }
}

/// The records, each with a letter where there are several.
struct Runs<'a>(&'a [Record]);

impl<'a> Runs<'a> {
    fn lettered(&self) -> impl Iterator<Item = (String, &'a Record)> {
        let several = self.0.len() > 1;
        self.0.iter().enumerate().map(move |(number, record)| {
            (if several { letter(number) } else { String::new() }, record)
        })
    }

    /// The experiments that have rows, in the order in which they come.
    fn experiments(&self) -> Vec<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for row in self.0.iter().flat_map(|record| &record.results) {
            if !names.contains(&row.experiment.as_str()) {
                names.push(&row.experiment);
            }
        }
        names
    }

    /// The rows of an experiment, of all records.
    fn rows(&self, experiment: &str) -> Vec<&'a ResultRow> {
        let rows = self.0.iter().flat_map(|record| &record.results);
        rows.filter(|row| row.experiment == experiment).collect()
    }

    /// What a row is called beside others.
    fn label(&self, row: &ResultRow) -> String {
        let number = self.number(row);
        if self.0.len() > 1 { format!("{} {}", letter(number), label(row)) } else { label(row) }
    }

    /// The record that a row is of.
    fn number(&self, row: &ResultRow) -> usize {
        let is_of = |record: &Record| record.results.iter().any(|own| std::ptr::eq(own, row));
        self.0.iter().position(is_of).unwrap_or_default()
    }

    /// Has the rows of a variant follow each other, whichever records they are of.
    fn put_side_by_side(&self, rows: &mut [&'a ResultRow]) {
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
    fn baseline(&self, group: &Group<'a>, row: &ResultRow) -> Option<&'a ResultRow> {
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

#[cfg(test)]
mod tests;
