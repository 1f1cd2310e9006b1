//! `mayfly run`.

use std::io::stderr;
use std::mem::forget;
use std::sync::{Arc, Mutex, PoisonError};

use mayfly_lab::{Bar, Course, Lines, Plan, Progress, Silent, experiments, put_back_what_was_left};
use mayfly_record::{Begun, Host, Sink};

use crate::announce::{self, DryRun};
use crate::args::Run;
use crate::conclude::Conclusion;
use crate::failure::Failure;
use crate::output::Stream;
use crate::signals;

/// Runs what was selected, keeps the record and prints the report.
pub(crate) fn run(options: &Run) -> Result<(), Failure> {
    // Before anything else is opened: the number of a stream is then that of a stream.
    let sink = options.json.as_deref().map(Sink::open).transpose().map_err(Failure::runtime)?;
    let host = Host::gather(command_line());
    let selection = options.selection();
    let plan = Plan::new(experiments(), &selection, &host)?;
    if options.plan_only {
        return Stream::Out.write(&DryRun(&plan).to_string());
    }
    if let Some(line) = put_back_what_was_left() {
        Stream::Err.write(&format!("mayfly: {line}\n"))?;
    }
    let conclusion = Arc::new(Mutex::new(Conclusion {
        host: host.clone(),
        begun: Begun::now(),
        experiments: plan.describe().collect(),
        sink,
        quiet: options.quiet,
        by_name: options.is_by_name(),
    }));
    let (course, bar) = (Course::default(), Bar::new());
    signals::listen(Arc::clone(&conclusion), course.clone(), bar.clone())?;
    if let Some(line) = announce::line(&plan.needs()).filter(|_| !options.quiet) {
        Stream::Err.write(&line)?;
    }
    plan.run(&course, &mut *progress(options.quiet, &bar));
    // Held to the end of the process: who was told to end it meanwhile has nothing more to do.
    let conclusion = conclusion.lock().unwrap_or_else(PoisonError::into_inner);
    bar.wipe();
    let concluded = conclusion.of_run(&course.outcome());
    forget(conclusion);
    concluded
}

fn progress(quiet: bool, bar: &Bar) -> Box<dyn Progress> {
    match quiet {
        true => Box::new(Silent),
        false if Bar::can_draw() => Box::new(bar.clone()),
        false => Box::new(Lines(stderr())),
    }
}

/// The arguments as given, but the program by its name alone.
fn command_line() -> impl Iterator<Item = String> {
    let arguments = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    ["mayfly".to_owned()].into_iter().chain(arguments)
}
