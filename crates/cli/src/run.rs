//! `mayfly run`.

use std::path::Path;
use std::process;

use mayfly_lab::host::Host;
use mayfly_lab::progress::{Bar, Silent};
use mayfly_lab::record::check_writable;
use mayfly_lab::{Error, Plan, Record, Report, ResultRow, experiments};

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
    let record = Record::new(host, results);

    // The report is printed even if the record cannot be kept: the run may have been long.
    let kept = file.map_or(Ok(()), |file| record.write(file).map_err(Failure::runtime));
    if to_stdout {
        Stream::Out.write(&record.to_json())?;
    }
    let stream = if to_stdout { Stream::Err } else { Stream::Out };
    if !(to_stdout && options.quiet) {
        let report = Report::new(&record, experiments()).colour(stream.colour());
        stream.write(&report.to_string())?;
    }
    kept
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
    let results: Result<_, Error> = plan.run(&mut bar);
    bar.wipe();
    Ok(results?)
}

/// The arguments as given, but the program by its name alone.
fn command_line() -> impl Iterator<Item = String> {
    let arguments = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    ["mayfly".to_owned()].into_iter().chain(arguments)
}
