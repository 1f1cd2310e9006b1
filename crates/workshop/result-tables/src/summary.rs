//! The one table of README: a line for each experiment, quoted from the tables of `docs/results.md`.
//!
//! A quoted figure is the one that stands there, without its range. So README cannot say anything else than the page that
//! it points to.

use std::fmt::Write;

use crate::document::{MarkerError, split};
use crate::figure::without_range;
use crate::layout::RESULTS;

/// The document that the summary stands in.
pub const README: &str = "README.md";

/// What the summary's markers call it.
pub const SUMMARY: &str = "summary";

/// One experiment in the summary.
struct Quote {
    experiment: &'static str,
    /// What is measured, in a line.
    measured: &'static str,
    /// The table and the line that its figures stand in.
    table: &'static str,
    line: &'static str,
    /// The columns of that table.
    kvm: Option<&'static str>,
    linux: &'static str,
    /// What the summary calls the design of Linux in that column.
    design: &'static str,
}

const MAYFLY: &str = "Mayfly";

const QUOTES: [Quote; 5] = [
    Quote {
        experiment: "device-registration",
        measured: "the first memslot after devices were registered",
        table: "starting-a-vm",
        line: "then the first memslot",
        kvm: Some("this host's KVM"),
        linux: "v6.18",
        design: "v6.18",
    },
    Quote {
        experiment: "cache-enable",
        measured: "64 vCPUs of an arm64 VM of 256 MiB turn their caches on",
        table: "turning-caches-on",
        line: "all vCPUs up",
        kvm: None,
        linux: "every vCPU",
        design: "a flush for every vCPU",
    },
    Quote {
        experiment: "slot-delete",
        measured: "CPU time of the call that deletes a memslot while 128 vCPUs run",
        table: "deleting-a-memslot",
        line: "processor time of the deleting call, p50",
        kvm: None,
        linux: "since v6.9",
        design: "since v6.9",
    },
    Quote {
        experiment: "page-merge",
        measured: "page faults of guests while the host merges equal pages of 8 VMs",
        table: "merging-pages",
        line: "faults of guests, in a round",
        kvm: None,
        linux: "zapped (Linux)",
        design: "zapping",
    },
    Quote {
        experiment: "teardown",
        measured: "the call that ends a VM of 64 GiB, mapped by 4 KiB",
        table: "ending-a-vm",
        line: "until the call returns, p50",
        kvm: None,
        linux: "today (arm64, v6.18)",
        design: "arm64 in v6.18",
    },
];

/// The summary in Markdown, quoted from `results`, the text of `docs/results.md`.
///
/// # Errors
///
/// A figure that it quotes does not stand there.
pub fn summary(results: &str) -> Result<String, MarkerError> {
    let mut text = String::from(
        "| experiment | what is measured | this host's KVM | Linux's design | Mayfly |\n| --- | --- | --- | --- | --- |\n",
    );
    for quote in &QUOTES {
        let (_, table, _) = split(results, quote.table)?;
        let figure = |column: &str| figure(table, quote, column);
        let kvm = quote.kvm.map_or_else(|| Ok("–".to_owned()), figure)?;
        let (linux, mayfly) = (figure(quote.linux)?, figure(MAYFLY)?);
        let Quote { experiment, measured, design, .. } = quote;
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "| [`{experiment}`](docs/{experiment}.md) | {measured} | {kvm} | {design}: {linux} | {mayfly} |"
        );
    }
    Ok(text)
}

/// Whether the summary in `readme` is quoted from `results`.
///
/// # Errors
///
/// It is not, or a figure or a marker is missing.
pub fn check_summary(readme: &str, results: &str) -> Result<(), MarkerError> {
    let (_, text, _) = split(readme, SUMMARY)?;
    let quoted = summary(results)?;
    let differs = quoted.lines().zip(text.lines()).find(|(quoted, line)| quoted != line);
    match differs {
        None if quoted == text => Ok(()),
        differs => Err(MarkerError::Form {
            name: SUMMARY.to_owned(),
            what: differs.map_or_else(
                || "it has another number of lines".to_owned(),
                |(quoted, line)| format!("'{line}' stands in place of '{quoted}'"),
            ),
        }),
    }
}

/// The figure of a table's line in the column of this title.
fn figure(table: &str, quote: &Quote, column: &str) -> Result<String, MarkerError> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let at = table.lines().next().and_then(|head| cells(head).iter().position(|of| of == column));
    let line =
        table.lines().map(cells).find(|line| line.first().is_some_and(|of| of == quote.line));
    let cell = at.zip(line).and_then(|(at, line)| line.get(at).map(|cell| without_range(cell)));
    cell.ok_or_else(|| MarkerError::Form {
        name: quote.table.to_owned(),
        what: format!("{RESULTS} has no '{column}' of '{}', which README quotes", quote.line),
    })
}
