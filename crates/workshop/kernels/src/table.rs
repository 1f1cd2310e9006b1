//! The tables: one for each metric, with a line for each kernel.

use std::fmt::Write;

use mayfly_record::{ResultRow, units};

use crate::archive::Series;
use crate::format::Format;
use crate::machine::Machine;
use crate::outcome::Outcome;

/// One table.
struct Shown {
    title: &'static str,
    experiment: &'static str,
    metric: &'static str,
    /// A parameter, and what it has to be.
    with: Option<(&'static str, &'static str)>,
}

const fn shown(
    title: &'static str,
    experiment: &'static str,
    metric: &'static str,
    with: Option<(&'static str, &'static str)>,
) -> Shown {
    Shown { title, experiment, metric, with }
}

/// The tables, in the order of a VM's lifecycle.
const TABLES: [Shown; 16] = [
    shown("registering a device (ioeventfd)", "device-registration", "register", None),
    shown("the first memslot after that", "device-registration", "first_memslot", None),
    shown(
        "a memslot right after a registration, the vCPU running",
        "device-registration",
        "back_to_back_memslot",
        None,
    ),
    shown(
        "unregistering right after a registration, the vCPU running",
        "device-registration",
        "back_to_back_unregister",
        None,
    ),
    shown("from no VM to its first MMIO exit", "device-registration", "total", None),
    shown(
        "deleting a memslot, all roots zapped: the caller's processor",
        "slot-delete",
        "sparse_delete_cpu",
        Some(("zap", "all-roots")),
    ),
    shown(
        "deleting a memslot, its own range zapped: the caller's processor",
        "slot-delete",
        "sparse_delete_cpu",
        Some(("zap", "range")),
    ),
    shown(
        "a guest's fault, pages of 4 KiB: the mean over 64 MiB",
        "teardown",
        "fault",
        Some(("mapping", "4KiB")),
    ),
    shown(
        "a guest's fault, blocks of 2 MiB: the mean over 64 MiB, by 4 KiB",
        "teardown",
        "fault",
        Some(("mapping", "2MiB")),
    ),
    shown(
        "closing a VM of 64 MiB, pages of 4 KiB",
        "teardown",
        "destroy",
        Some(("mapping", "4KiB")),
    ),
    shown(
        "closing a VM of 64 MiB, blocks of 2 MiB",
        "teardown",
        "destroy",
        Some(("mapping", "2MiB")),
    ),
    shown(
        "munmap of its memory after that, pages of 4 KiB",
        "teardown",
        "munmap",
        Some(("mapping", "4KiB")),
    ),
    shown(
        "munmap of its memory after that, blocks of 2 MiB",
        "teardown",
        "munmap",
        Some(("mapping", "2MiB")),
    ),
    shown(
        "a later vCPU turns its caches on, 64 MiB in pages of 4 KiB",
        "cache-enable",
        "secondary",
        Some(("mapping", "4KiB")),
    ),
    shown(
        "a later vCPU turns its caches on, 64 MiB in blocks of 2 MiB",
        "cache-enable",
        "secondary",
        Some(("mapping", "2MiB")),
    ),
    shown("a guest's write to a page that KSM has merged", "page-merge", "merged_page_write", None),
];

/// The heading above the tables.
const HEAD: &str = "Medians in virtual time, 2 ns an instruction: for telling kernels apart, and not what a processor takes.";

impl Shown {
    fn is_of(&self, row: &ResultRow) -> bool {
        let with = self
            .with
            .is_none_or(|(name, value)| row.params.get(name).is_some_and(|found| found == value));
        row.experiment == self.experiment && with
    }

    /// The median, if it was measured.
    fn median(&self, outcome: &Outcome) -> Option<u64> {
        let row = outcome.rows().find(|row| self.is_of(row))?;
        Some(row.metrics.get(self.metric)?.p50)
    }
}

/// Which machines, and which series of kernels, the outcomes are of: the columns and the lines of their tables.
pub(crate) struct Grid {
    machines: Vec<Machine>,
    kernels: Vec<Series>,
}

impl Grid {
    pub(crate) fn of(outcomes: &[Outcome]) -> Self {
        let (mut machines, mut kernels) = (Vec::new(), Vec::new());
        for outcome in outcomes {
            if !machines.contains(&outcome.machine) {
                machines.push(outcome.machine);
            }
            kernels.push(outcome.kernel.series);
        }
        kernels.sort_unstable();
        kernels.dedup();
        Self { machines, kernels }
    }

    /// A table, if it has a cell; what was not measured is a dash. A machine that it means nothing to has no column.
    pub(crate) fn table(
        &self,
        title: &str,
        outcomes: &[Outcome],
        format: Format,
        cell: impl Fn(&Outcome) -> Option<String>,
    ) -> Option<String> {
        let cell = |machine: Machine, kernel: Series| {
            let mut outcomes = outcomes.iter();
            let found = outcomes.find(|one| one.machine == machine && one.kernel.series == kernel);
            found.and_then(&cell)
        };
        let has_any =
            |machine: &Machine| self.kernels.iter().any(|kernel| cell(*machine, *kernel).is_some());
        let columns: Vec<Machine> = self.machines.iter().copied().filter(has_any).collect();
        if columns.is_empty() {
            return None;
        }
        let mut lines = vec![vec!["Linux".to_owned()]];
        lines[0].extend(columns.iter().map(|machine| machine.name().to_owned()));
        for kernel in &self.kernels {
            let mut line = vec![format!("{}.{}", kernel.major, kernel.minor)];
            let cells = columns.iter().map(|machine| cell(*machine, *kernel));
            line.extend(cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned())));
            lines.push(line);
        }
        Some(written(title, &lines, format))
    }
}

/// All tables that have a figure, and below them what went wrong.
pub(crate) fn tables(outcomes: &[Outcome], format: Format) -> String {
    let grid = Grid::of(outcomes);
    let mut text = head(outcomes);
    let mut lacking = Vec::new();
    for table in &TABLES {
        let median = |outcome: &Outcome| table.median(outcome).map(units::duration);
        match grid.table(table.title, outcomes, format, median) {
            Some(told) => text.extend(["\n", &told]),
            None if outcomes.iter().flat_map(Outcome::rows).any(|row| table.is_of(row)) => {
                let Shown { title, experiment, metric, .. } = table;
                lacking.push(format!("{title}: no row of {experiment} has {metric}"));
            }
            None => {}
        }
    }
    for why in lacking {
        let _ = writeln!(text, "\nnot all is well: {why}");
    }
    text + &failures(outcomes)
}

/// What stands above all tables.
pub(crate) fn head(outcomes: &[Outcome]) -> String {
    if outcomes.is_empty() { String::new() } else { format!("{HEAD}\n") }
}

/// What stands below them: what went wrong.
pub(crate) fn failures(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes.iter().filter(|outcome| !outcome.wrong.is_empty()) {
        let _ = writeln!(text, "\nnot all is well: {outcome}");
    }
    text
}

/// A table as it is written; the first line is its head.
fn written(title: &str, lines: &[Vec<String>], format: Format) -> String {
    let mut text = String::new();
    if format == Format::Markdown {
        let _ = writeln!(text, "**{title}**\n");
        for (index, line) in lines.iter().enumerate() {
            let _ = writeln!(text, "| {} |", line.join(" | "));
            if index == 0 {
                let _ = writeln!(text, "|{}", " --- |".repeat(line.len()));
            }
        }
        return text;
    }
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| lines.iter().map(|line| line[column].len()).max().unwrap_or(0))
        .collect();
    let _ = writeln!(text, "{title}");
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("  {cell:>width$}"));
        let _ = writeln!(text, "{}", cells.collect::<String>());
    }
    text
}

#[cfg(test)]
mod tests {
    use mayfly_record::{Backend, Host, Record, Samples};

    use super::*;
    use crate::archive::Kernel;

    fn outcome(machine: Machine, minor: u32, rows: Vec<ResultRow>) -> Outcome {
        let kernel = Kernel {
            series: Series { major: 6, minor },
            version: format!("6.{minor}.1"),
            directory: "/nowhere".into(),
        };
        let records = vec![Record::new(Host::default(), rows)];
        let (laws, wrong) = (Vec::new(), Vec::new());
        Outcome { machine, kernel, records, examination: None, laws, wrong }
    }

    fn row(experiment: &str, metric: &str, nanoseconds: u64) -> ResultRow {
        let mut samples = Samples::default();
        samples.record_ns(nanoseconds);
        ResultRow::new(experiment, Backend::Kvm, "kernel").metric(metric, &samples)
    }

    #[test]
    fn kernels_stand_in_their_order_and_what_was_not_measured_is_a_dash() {
        let register = |ns| vec![row("device-registration", "register", ns)];
        let outcomes = [
            outcome(Machine::Amd64, 12, register(21_000)),
            outcome(Machine::Amd64, 1, register(18_600)),
            outcome(Machine::Arm64, 12, Vec::new()),
            outcome(Machine::Arm64, 1, register(700)),
        ];
        let text = tables(&outcomes, Format::Terminal);
        let expected = "\nregistering a device (ioeventfd)\n  Linux    amd64   arm64\n    6.1  18.6 us  700 ns\n   6.12  21.0 us       -\n";
        assert!(text.contains(expected), "{text}");
        let text = tables(&outcomes, Format::Markdown);
        assert!(text.contains(
            "| Linux | amd64 | arm64 |\n| --- | --- | --- |\n| 6.1 | 18.6 us | 700 ns |\n"
        ));
    }

    #[test]
    fn rows_are_told_apart_by_the_parameter_and_machines_without_any_have_no_column() {
        let rows = vec![
            row("slot-delete", "sparse_delete_cpu", 5).param("zap", "range"),
            row("slot-delete", "sparse_delete_cpu", 7).param("zap", "all-roots"),
        ];
        let range = vec![row("slot-delete", "sparse_delete_cpu", 6).param("zap", "range")];
        let outcomes = [outcome(Machine::Amd64, 12, rows), outcome(Machine::Arm64, 12, range)];
        let text = tables(&outcomes, Format::Terminal);
        assert!(
            text.contains(
                "all roots zapped: the caller's processor\n  Linux  amd64\n   6.12   7 ns\n"
            ),
            "{text}"
        );
        assert!(text.contains(
            "range zapped: the caller's processor\n  Linux  amd64  arm64\n   6.12   5 ns   6 ns\n"
        ));
    }

    #[test]
    fn a_table_whose_metric_no_row_has_is_said_to_be_lacking() {
        let rows = || vec![row("slot-delete", "another", 5).param("zap", "range")];
        let text = tables(&[outcome(Machine::Amd64, 12, rows())], Format::Terminal);
        let expected = "not all is well: deleting a memslot, its own range zapped: the caller's processor: \
                        no row of slot-delete has sparse_delete_cpu\n";
        assert!(text.ends_with(expected), "{text}");
        assert!(!text.contains("all-roots") && !text.contains("page-merge"), "{text}");
    }

    #[test]
    fn what_went_wrong_is_said_below_and_never_is_it_called_time() {
        let mut failed = outcome(Machine::Arm64, 18, Vec::new());
        failed.wrong.push("it stood still".to_owned());
        let text = tables(&[failed], Format::Terminal);
        assert!(text.contains("6.18.1 on arm64: nothing was measured; it stood still"), "{text}");
        assert!(HEAD.contains("virtual time"));
        assert_eq!(tables(&[], Format::Terminal), "");
    }
}
