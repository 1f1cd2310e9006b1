//! `mayfly run`.

use std::io::stderr;
use std::mem::forget;
use std::sync::{Arc, Mutex, PoisonError};

use mayfly_lab::{
    Bar, Course, Lines, Plan, Progress, Silent, Variant, experiments, put_back_what_was_left,
};
use mayfly_record::{Begun, Host, Sink};
use mayfly_report::Threshold;

use crate::announce::{self, DryRun};
use crate::args::{Args, Command, Run};
use crate::built::built;
use crate::conclude::Conclusion;
use crate::failure::Failure;
use crate::kept;
use crate::metal;
use crate::output::Stream;
use crate::signals;

/// Runs as the command line says, or as a record says that it was made.
pub(crate) fn run(options: &Run) -> Result<(), Failure> {
    let Some(path) = &options.like else { return run_selected(options) };
    let record = kept::record(path)?;
    let arguments = record.host.arguments;
    let command =
        Args::of(["mayfly".to_owned()].into_iter().chain(arguments)).map(|args| args.command);
    match command {
        Ok(Command::Run(like)) => run_selected(&like.told_as(options)),
        _ => Err(Failure::usage(format!(
            "{} cannot be repeated: its host.arguments are not those of mayfly run",
            path.display()
        ))),
    }
}

/// Runs what was selected, keeps the record and prints the report.
fn run_selected(options: &Run) -> Result<(), Failure> {
    if let Some(on_metal) = options.on_metal()? {
        return metal::run(options, &on_metal);
    }
    // Before anything else is opened: the number of a stream is then that of a stream.
    let sink = options.json.as_deref().map(Sink::open).transpose().map_err(Failure::runtime)?;
    let command = ["mayfly".to_owned()].into_iter().chain(options.arguments.iter().cloned());
    let host = Host { build: Some(built()), ..Host::gather(command) };
    let selection = options.selection();
    let plan = Plan::new(experiments(), &selection, &host)?;
    options.fail_if.iter().try_for_each(|threshold| names_something(&plan, threshold))?;
    if options.plan_only {
        return Stream::Out.write(&DryRun(&plan).to_string());
    }
    if let Some(line) = put_back_what_was_left() {
        Stream::Err.write(&format!("mayfly: {line}\n"))?;
    }
    let conclusion = Arc::new(Mutex::new(Conclusion {
        host: host.clone(),
        begun: Begun::now(),
        goal: plan.goal(),
        experiments: plan.describe().collect(),
        sink,
        quiet: options.quiet,
        full: options.full,
        fail_if: options.fail_if.clone(),
        by_name: options.is_by_name(),
    }));
    let (course, bar) = (Course::default(), Bar::new());
    signals::listen(Arc::clone(&conclusion), course.clone(), bar.clone())?;
    if let Some(line) = announce::line(&plan.needs(), plan.goal()).filter(|_| !options.quiet) {
        Stream::Err.write(&line)?;
    }
    plan.run(&course, &mut *progress(options.quiet, &bar));
    // Held to the end of the process: the thread that a signal tells to end the run then has nothing to do.
    let conclusion = conclusion.lock().unwrap_or_else(PoisonError::into_inner);
    bar.wipe();
    let concluded = conclusion.of_run(&course.outcome());
    forget(conclusion);
    concluded
}

/// Refuses a bound that no metric can be meant by, or that is in another unit, before minutes are spent.
fn names_something(plan: &Plan<'_>, threshold: &Threshold) -> Result<(), Failure> {
    let mut may = threshold.may_name_a_counter();
    for part in plan.parts() {
        let known = experiments().iter().find(|known| known.name() == part.experiment);
        let metrics = known.map_or(Vec::new(), |known| known.all_metrics());
        let counts = known.map_or(&[][..], |known| known.counts());
        let skipped = part.skipped.iter().map(|(variant, _)| *variant);
        for Variant { backend, name, .. } in part.variants.iter().copied().chain(skipped) {
            for metric in &metrics {
                let of = (metric.name, !counts.contains(&metric.name));
                may |= threshold
                    .may_name(part.experiment, *backend, name, of)
                    .map_err(|error| Failure::usage(error.to_string()))?;
            }
        }
    }
    if may { Ok(()) } else { Err(Failure::usage(threshold.names_nothing().to_string())) }
}

/// A bar where one can be drawn, else lines; nothing for `quiet`.
pub(crate) fn progress(quiet: bool, bar: &Bar) -> Box<dyn Progress> {
    match quiet {
        true => Box::new(Silent),
        false if Bar::can_draw() => Box::new(bar.clone()),
        false => Box::new(Lines(stderr())),
    }
}
