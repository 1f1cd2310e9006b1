//! Lines, columns and the little colour there is.

use std::fmt;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use console::style;

/// How lines are set off.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    pub(crate) colour: bool,
}

impl Style {
    /// Titles.
    pub(crate) fn strong(self, text: &str) -> String {
        style(text).bold().force_styling(self.colour).to_string()
    }

    /// What is not the result itself.
    pub(crate) fn faint(self, text: &str) -> String {
        style(text).dim().force_styling(self.colour).to_string()
    }

    /// The lines that the others are compared with.
    fn baseline(self, text: &str) -> String {
        style(text).green().force_styling(self.colour).to_string()
    }

    /// What should not be overlooked.
    pub(crate) fn alarm(self, text: &str) -> String {
        style(text).red().bold().force_styling(self.colour).to_string()
    }

    fn line(self, kind: Kind, text: &str) -> String {
        match kind {
            Kind::Head => self.faint(text),
            Kind::Baseline => self.baseline(text),
            Kind::Plain => text.to_owned(),
        }
    }
}

/// Columns that a text in words has.
const WIDTH: usize = 80;

/// What a number is followed by on the same line.
const UNITS: [&str; 8] = ["ns", "us", "ms", "s", "KiB", "MiB", "GiB", "TiB"];

/// A sentence or a few, as an item of a list.
pub(crate) fn item(text: &str) -> String {
    let options = textwrap::Options::new(WIDTH).initial_indent("- ").subsequent_indent("  ");
    textwrap::fill(&with_units_held(text), options).replace(HELD, " ")
}

/// A space at which no line is broken.
const HELD: char = '\u{a0}';

fn with_units_held(text: &str) -> String {
    let is_unit = |word: &str| UNITS.contains(&word.trim_end_matches(['.', ',', ';', ':', ')']));
    let mut held = String::with_capacity(text.len());
    for word in text.split(' ') {
        let after_number = held.ends_with(|c: char| c.is_ascii_digit());
        if !held.is_empty() {
            held.push(if after_number && is_unit(word) { HELD } else { ' ' });
        }
        held.push_str(word);
    }
    held
}

/// What a line of a table is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Column headings.
    Head,
    /// The variant that the others are compared with.
    Baseline,
    /// Anything else.
    Plain,
}

/// Lines whose cells stand in columns: the first to the left, the others to the right.
pub(crate) struct Columns {
    table: Table,
    lines: Vec<Line>,
}

/// How a line of the table is written.
enum Line {
    /// As laid out.
    Cells(Kind),
    /// As this text instead, which takes no part in the columns' widths.
    Title(String),
}

impl Columns {
    pub(crate) fn new() -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        Self { table, lines: Vec::new() }
    }

    /// Adds a line. No cell may contain a line break.
    pub(crate) fn line(&mut self, kind: Kind, cells: impl IntoIterator<Item = String>) {
        self.table.add_row(cells.into_iter().collect::<Vec<_>>());
        self.lines.push(Line::Cells(kind));
    }

    /// Adds headings, in two lines where one of them is wide.
    pub(crate) fn headed<'a>(&mut self, first: &str, others: impl Iterator<Item = &'a str>) {
        let (upper, lower): (Vec<_>, Vec<_>) = others.map(halves).unzip();
        let line = |first: &str, others: Vec<&str>| {
            [first].into_iter().chain(others).map(str::to_owned).collect::<Vec<_>>()
        };
        if upper.iter().any(|half| !half.is_empty()) {
            self.line(Kind::Head, line("", upper));
        }
        self.line(Kind::Head, line(first, lower));
    }

    /// Adds the heading of the lines below, alone on its line.
    pub(crate) fn title(&mut self, text: &str) {
        self.table.add_row([""]);
        self.lines.push(Line::Title(text.to_owned()));
    }

    /// Writes the lines, coloured whole, so that colour cannot disturb the columns.
    pub(crate) fn write(mut self, f: &mut impl fmt::Write, style: Style) -> fmt::Result {
        for (index, column) in self.table.column_iter_mut().enumerate() {
            let first = index == 0;
            column.set_padding((if first { 0 } else { 2 }, 0));
            column.set_cell_alignment(if first {
                CellAlignment::Left
            } else {
                CellAlignment::Right
            });
        }
        for (laid_out, line) in self.table.lines().zip(&self.lines) {
            match line {
                Line::Cells(kind) => writeln!(f, "{}", style.line(*kind, laid_out.trim_end()))?,
                Line::Title(text) => writeln!(f, "{}", style.strong(text))?,
            }
        }
        Ok(())
    }
}

/// Column headings are broken where they are longer than the numbers below them.
const WIDE: usize = 8;

/// A heading in two lines, broken at the last dash or space if it is wide; otherwise all in the lower
/// one.
fn halves(label: &str) -> (&str, &str) {
    match label.rfind(['-', ' ']) {
        Some(at) if label.len() > WIDE => (label[..=at].trim_end(), &label[at + 1..]),
        _ => ("", label),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_breaks_between_words_and_keeps_a_number_with_its_unit() {
        let text = "x".repeat(72) + " 7.18 ms, and then some more.";
        let lines: Vec<String> = item(&text).lines().map(str::to_owned).collect();
        assert_eq!(lines[0], format!("- {}", "x".repeat(72)));
        assert_eq!(lines[1], "  7.18 ms, and then some more.");
        assert_eq!(item("a  b 3 us"), "- a  b 3 us");
    }
}
