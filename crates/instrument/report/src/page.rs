//! Records as one HTML page, which needs no other file.
//!
//! The pictures come first: for each metric the distribution of every variant on one logarithmic axis, and, if the
//! number of vCPUs or the size of memory varies, the median against it. Below stand the numbers, the facts of the
//! host, and the command that repeats the run. Everything that a picture shows also stands in a table, for readers
//! who listen to the page and for readers who copy from it.

pub(crate) mod axis;
mod distribution;
mod facts;
mod numbers;
mod runs;
mod scaling;
mod section;

use std::fmt;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use mayfly_record::Record;

use runs::Runs;

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

#[cfg(test)]
mod tests;
