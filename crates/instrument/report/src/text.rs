//! Lines, columns and colours of a report on a terminal.

use std::fmt;
use std::ops::Range;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use console::style;

/// How lines are set off.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    pub(crate) colour: bool,
    /// Columns that a line may have.
    pub(crate) width: usize,
}

/// The columns of a line by default, and the most that are legible.
pub const WIDTH: usize = 80;

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

/// What a number is followed by on the same line.
const UNITS: [&str; 8] = ["ns", "us", "ms", "s", "KiB", "MiB", "GiB", "TiB"];

impl Style {
    /// A sentence or a few, as an item of a list.
    pub(crate) fn item(self, text: &str) -> String {
        self.filled(text, "- ", "  ")
    }

    /// A line that goes on two columns further in where it is too long.
    pub(crate) fn wrapped(self, text: &str) -> String {
        self.filled(text, "", "  ")
    }

    /// A text whose first line begins with `first`, and every other with `rest`. A word longer than a line stays whole: it
    /// is a path or an option, to be copied.
    pub(crate) fn filled(self, text: &str, first: &str, rest: &str) -> String {
        let options = textwrap::Options::new(self.width)
            .initial_indent(first)
            .subsequent_indent(rest)
            .break_words(false);
        textwrap::fill(&with_units_held(text), options).replace(HELD, " ")
    }
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

/// Lines whose cells stand in columns: the first to the left, the others to the right. What is wider than a line may be
/// is set in several tables, each with the first column.
pub(crate) struct Columns {
    lines: Vec<Line>,
}

/// How a line of the table is written.
enum Line {
    /// As laid out.
    Cells(Kind, Vec<String>),
    /// As this text instead, which takes no part in the columns' widths.
    Title(String),
}

/// What stands in a cell that there is no value for.
pub(crate) const NOTHING: &str = "-";

/// Columns between two columns.
const GAP: usize = 2;

impl Columns {
    pub(crate) fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// Adds a line. No cell may contain a line break.
    pub(crate) fn line(&mut self, kind: Kind, cells: impl IntoIterator<Item = String>) {
        self.lines.push(Line::Cells(kind, cells.into_iter().collect()));
    }

    /// Adds headings, in several lines where one of them is wide.
    pub(crate) fn headed<'a>(&mut self, first: &str, others: impl Iterator<Item = &'a str>) {
        let others: Vec<Vec<&str>> = others.map(pieces).collect();
        let height = others.iter().map(Vec::len).max().unwrap_or(1);
        for below in (0..height).rev() {
            let cell = |pieces: &Vec<&str>| {
                let at = pieces.len().checked_sub(below + 1);
                at.map_or_else(String::new, |at| pieces[at].to_owned())
            };
            let first = if below == 0 { first } else { "" };
            let line = [first.to_owned()].into_iter().chain(others.iter().map(cell));
            self.line(Kind::Head, line.collect::<Vec<_>>());
        }
    }

    /// Adds the heading of the lines below, alone on its line.
    pub(crate) fn title(&mut self, text: &str) {
        self.lines.push(Line::Title(text.to_owned()));
    }

    /// Writes the lines, coloured whole, so that colour cannot disturb the columns.
    pub(crate) fn write(self, f: &mut impl fmt::Write, style: Style) -> fmt::Result {
        for (number, columns) in self.tables(style.width).into_iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            self.write_columns(f, style, columns)?;
        }
        Ok(())
    }

    /// Which columns stand in each table beside the first: as many as there is room for, and one at least.
    fn tables(&self, width: usize) -> Vec<Range<usize>> {
        let mut widths: Vec<usize> = Vec::new();
        for line in &self.lines {
            let Line::Cells(_, cells) = line else { continue };
            widths.resize(widths.len().max(cells.len()), 0);
            for (widest, cell) in widths.iter_mut().zip(cells) {
                *widest = (*widest).max(cell.chars().count());
            }
        }
        let Some((first, others)) = widths.split_first() else { return Vec::new() };
        let mut tables = Vec::new();
        let (mut begin, mut taken) = (1, *first);
        for (column, wide) in (1..).zip(others) {
            if column > begin && taken + GAP + wide > width {
                tables.push(begin..column);
                (begin, taken) = (column, *first);
            }
            taken += GAP + wide;
        }
        tables.push(begin..widths.len());
        tables
    }

    /// The lines that say something in `columns`: nothing was measured where all cells are dashes, and a title has lines.
    fn telling(&self, columns: &Range<usize>) -> Vec<&Line> {
        let mut telling: Vec<&Line> = Vec::new();
        for line in &self.lines {
            match line {
                Line::Title(_) => {
                    telling.pop_if(|before| matches!(before, Line::Title(_)));
                }
                Line::Cells(Kind::Plain, cells)
                    if cells
                        .iter()
                        .enumerate()
                        .all(|(at, cell)| !columns.contains(&at) || cell == NOTHING) =>
                {
                    continue;
                }
                Line::Cells(..) => {}
            }
            telling.push(line);
        }
        telling.pop_if(|last| matches!(last, Line::Title(_)));
        telling
    }

    fn write_columns(
        &self,
        f: &mut impl fmt::Write,
        style: Style,
        columns: Range<usize>,
    ) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let lines = self.telling(&columns);
        for line in &lines {
            table.add_row(match line {
                Line::Title(_) => vec![String::new()],
                Line::Cells(_, cells) => {
                    let own = (0..cells.len()).filter(|at| *at == 0 || columns.contains(at));
                    own.map(|at| cells[at].clone()).collect()
                }
            });
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            let first = index == 0;
            column.set_padding((if first { 0 } else { GAP as u16 }, 0));
            column.set_cell_alignment(if first {
                CellAlignment::Left
            } else {
                CellAlignment::Right
            });
        }
        for (laid_out, line) in table.lines().zip(lines) {
            match line {
                Line::Cells(kind, _) => writeln!(f, "{}", style.line(*kind, laid_out.trim_end()))?,
                Line::Title(text) => writeln!(f, "{}", style.strong(&style.wrapped(text)))?,
            }
        }
        Ok(())
    }
}

/// Column headings are broken where they are longer than the numbers below them.
const WIDE: usize = 8;

/// The lines of a heading: broken at dashes and spaces, from the last on, as long as what stands above is wide.
fn pieces(label: &str) -> Vec<&str> {
    let inner = &label[..label.len().saturating_sub(1)];
    match inner.rfind(['-', ' ']) {
        Some(at) if label.len() > WIDE => {
            let mut above = pieces(label[..=at].trim_end());
            above.push(&label[at + 1..]);
            above
        }
        _ => vec![label],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_breaks_between_words_and_keeps_a_number_with_its_unit() {
        let text = "x".repeat(72) + " 7.18 ms, and then some more.";
        let style = Style { colour: false, width: 80 };
        let lines: Vec<String> = style.item(&text).lines().map(str::to_owned).collect();
        assert_eq!(lines[0], format!("- {}", "x".repeat(72)));
        assert_eq!(lines[1], "  7.18 ms, and then some more.");
        assert_eq!(style.item("a  b 3 us"), "- a  b 3 us");
    }

    #[test]
    fn a_wide_heading_is_broken_until_it_is_not() {
        for (label, lines) in [
            ("mayfly", &["mayfly"][..]),
            ("call-srcu", &["call-", "srcu"]),
            ("kvm kernel", &["kvm", "kernel"]),
            ("call-srcu-expedited", &["call-", "srcu-", "expedited"]),
            ("tdp-mmu-v6.18", &["tdp-mmu-", "v6.18"]),
            ("unbreakable", &["unbreakable"]),
            ("ends-in-a-dash-", &["ends-in-", "a-", "dash-"]),
            ("", &[""]),
        ] {
            assert_eq!(pieces(label), lines, "{label}");
        }
        let mut columns = Columns::new();
        columns.headed("p50", ["one", "keyed-on-vcpus"].into_iter());
        let mut text = String::new();
        columns.write(&mut text, Style { colour: false, width: 80 }).unwrap();
        assert_eq!(text, "          keyed-\n             on-\np50  one   vcpus\n");
    }

    #[test]
    fn of_a_table_in_parts_each_has_the_lines_that_say_something_in_it() {
        let mut columns = Columns::new();
        let mut line = |kind, cells: [&str; 3]| columns.line(kind, cells.map(str::to_owned));
        line(Kind::Head, ["p50", "one", "two"]);
        line(Kind::Plain, ["register", "1.00 us", "-"]);
        columns.title("of 1 GiB");
        columns.line(Kind::Plain, ["  destroy", "-", "2.00 us"].map(str::to_owned));
        columns.title("of 64 GiB");
        columns.line(Kind::Plain, ["  destroy", "3.00 us", "-"].map(str::to_owned));
        let mut text = String::new();
        columns.write(&mut text, Style { colour: false, width: 20 }).unwrap();
        let one = "p50            one\nregister   1.00 us\nof 64 GiB\n  destroy  3.00 us\n";
        let two = "p50            two\nof 1 GiB\n  destroy  2.00 us\n";
        assert_eq!(text, format!("{one}\n{two}"));
    }

    #[test]
    fn a_table_that_is_too_wide_is_several_with_the_first_column_in_each() {
        let written = |width| {
            let mut columns = Columns::new();
            columns.line(Kind::Head, ["p50", "one", "two", "three"].map(str::to_owned));
            columns.title("of a VM");
            columns.line(
                Kind::Plain,
                ["  destroy", "1.00 us", "20.0 us", "300 us"].map(str::to_owned),
            );
            let mut text = String::new();
            columns.write(&mut text, Style { colour: false, width }).unwrap();
            text
        };
        let whole =
            "p50            one      two   three\nof a VM\n  destroy  1.00 us  20.0 us  300 us\n";
        assert_eq!(written(80), whole);
        assert_eq!(written(35), whole);
        let parts = "p50            one      two\nof a VM\n  destroy  1.00 us  20.0 us\n\n\
                     p50         three\nof a VM\n  destroy  300 us\n";
        assert_eq!(written(34), parts);
        assert_eq!(written(5).matches("destroy").count(), 3, "and no cell is lost");
    }
}
