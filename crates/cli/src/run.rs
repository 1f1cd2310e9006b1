//! `mayfly run`.

use std::path::Path;
use std::process;

use mayfly_lab::{Bar, Plan, Silent, experiments};
use mayfly_record::{Host, Record, ResultRow, check_writable};
use mayfly_report::Report;

use crate::args::Run;
use crate::failure::Failure;
use crate::output::Stream;

/// The exit code of a process that was interrupted, as shells give it: 128 and the signal's number.
const INTERRUPTED: i32 = 128 + 2;

/// Runs what was selected, keeps the record and prints the report.
pub(crate) fn run(options: &Run) -> Result<(), Failure> {
    let host = Host::gather(command_line());
    let selection = options.selection();
    let plan = Plan::new(experiments(), &selection, &host)?;
    let json = options.json.as_deref();
    let to_stdout = json == Some(Path::new("-"));
    let file = json.filter(|_| !to_stdout);
    if let Some(file) = file {
        check_writable(file).map_err(Failure::runtime)?;
    }

    let results = measure(&plan, options.quiet)?;
    let record = Record::new(host.clone(), results).describing(plan.describe());

    // The report is printed even if the record cannot be kept: the run may have been long.
    let kept = file.map_or(Ok(()), |file| record.write(file).map_err(Failure::runtime));
    if to_stdout {
        Stream::Out.write(&record.to_json())?;
    }
    let stream = if to_stdout { Stream::Err } else { Stream::Out };
    if !(to_stdout && options.quiet) {
        let report = Report::new(&record).colour(stream.colour());
        stream.write(&report.to_string())?;
    }
    kept.and_then(|()| verdict(&record))
}

/// Whether what ran also did right: whoever reads nothing but the exit code has to know.
fn verdict(record: &Record) -> Result<(), Failure> {
    let mut failed = record.failed_checks();
    let Some((row, check)) = failed.next() else { return Ok(()) };
    let more = match failed.count() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let (experiment, variant) = (&row.experiment, &row.variant);
    Err(Failure::runtime(format_args!(
        "a check failed: {experiment}, {variant}: {}{more}",
        check.name
    )))
}

/// Runs the plan under a progress bar that an interrupt wipes from the terminal.
fn measure(plan: &Plan<'_>, quiet: bool) -> Result<Vec<ResultRow>, Failure> {
    if quiet {
        return Ok(plan.run(&mut Silent)?);
    }
    let mut bar = Bar::new();
    let drawn = bar.clone();
    ctrlc::set_handler(move || {
        drawn.wipe();
        process::exit(INTERRUPTED);
    })
    .map_err(|error| Failure::runtime(format_args!("cannot handle interrupts: {error}")))?;
    let results = plan.run(&mut bar);
    bar.wipe();
    Ok(results?)
}

/// The arguments as given, but the program by its name alone.
fn command_line() -> impl Iterator<Item = String> {
    let arguments = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    ["mayfly".to_owned()].into_iter().chain(arguments)
}

#[cfg(test)]
mod tests {
    use mayfly_record::Backend;

    use super::*;

    fn record(checks: &[(&str, bool)]) -> Record {
        let row = ResultRow::new("teardown", Backend::Machine, "mayfly");
        let row = checks.iter().fold(row, |row, (name, ok)| row.check(name, *ok, "as it was"));
        Record::new(Host::gather(command_line()), vec![row])
    }

    #[test]
    fn a_run_whose_checks_are_all_well_succeeds() {
        assert!(verdict(&record(&[])).is_ok());
        assert!(verdict(&record(&[("guest_reads", true), ("no_line_cleaned", true)])).is_ok());
    }

    #[test]
    fn a_run_with_a_failed_check_fails_and_names_it() {
        let one = verdict(&record(&[("guest_reads", true), ("no_line_cleaned", false)]));
        let message = "a check failed: teardown, mayfly: no_line_cleaned";
        assert_eq!(one.unwrap_err(), Failure::runtime(message));
        let two = verdict(&record(&[("guest_reads", false), ("no_line_cleaned", false)]));
        let message = "a check failed: teardown, mayfly: guest_reads, and 1 more";
        assert_eq!(two.unwrap_err(), Failure::runtime(message));
    }
}
