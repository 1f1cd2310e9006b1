//! `mayfly run --backend metal`, and what that has run in its machine.

use mayfly_emulator::{Interrupt, die_of};
use mayfly_metal::kvm::{self, KernelAt};
use mayfly_metal::{Both, Files, Table, describe, rows};
use mayfly_record::{Begun, Host, Record, Sink};

use crate::args::{Lives, OnMetal, Run};
use crate::built::built;
use crate::failure::{Failure, and_more};
use crate::output::Stream;

/// Runs both sides on each processor, keeps the record and prints the table.
pub(crate) fn run(options: &Run, on_metal: &OnMetal) -> Result<(), Failure> {
    let OnMetal { processors, rounds, files } = on_metal;
    if options.plan_only {
        let names: Vec<_> = processors.iter().map(|processor| processor.name()).collect();
        return Stream::Out.write(&format!(
            "lives: {rounds} rounds, each a minute of one processor or less\n  on metal: mayfly, kvm, on {}\n",
            names.join(", ")
        ));
    }
    let files = Files::of(files).map_err(Failure::nothing_ran)?;
    let sink = options.json.as_deref().map(Sink::open).transpose().map_err(Failure::runtime)?;
    let command = ["mayfly".to_owned()].into_iter().chain(options.arguments.iter().cloned());
    let host = Host { build: Some(built()), ..Host::gather(command) };
    let (begun, interrupt) = (Begun::now(), Interrupt::listen().map_err(Failure::runtime)?);
    let mut all = Vec::<Both>::new();
    for processor in processors {
        if !options.quiet {
            Stream::Err.write(&format!(
                "mayfly: {processor}: Mayfly at EL2, and then Linux and its KVM\n"
            ))?;
        }
        match mayfly_metal::run(*processor, *rounds, &files, &interrupt) {
            Ok(both) => all.push(both),
            Err(error) => {
                if let Some(signal) = interrupt.signal() {
                    die_of(signal);
                }
                return Err(Failure::runtime(format!("{error:#}")));
            }
        }
    }
    let mut record =
        Record::new(host, all.iter().flat_map(rows).collect()).describing([describe(&all)]);
    record.conditions = Some(begun.until_now());
    let kept = sink.as_ref().map_or(Ok(()), |sink| sink.write(&record.to_json()));
    let to_stdout = sink.as_ref().is_some_and(Sink::is_stdout);
    if !(to_stdout && options.quiet) {
        let stream = if to_stdout { Stream::Err } else { Stream::Out };
        stream.write(&Table(&all).to_string())?;
    }
    kept.map_err(Failure::runtime)?;
    verdict(&record)
}

/// Whether what was counted can be so.
fn verdict(record: &Record) -> Result<(), Failure> {
    let mut failed = record.failed_checks();
    let Some((row, check)) = failed.next() else { return Ok(()) };
    let step = row.params.get("step").map(ToString::to_string).unwrap_or_default();
    let more = and_more(failed.count());
    Err(Failure::runtime(format_args!(
        "a check failed: {}, {step}: {}: {}{more}",
        row.variant, check.name, check.detail
    )))
}

/// Counts what lives take on this kernel's KVM, and prints that.
pub(crate) fn lives(options: &Lives) -> Result<(), Failure> {
    let kernel_at = if options.kernel_at_el2 { KernelAt::El2 } else { KernelAt::El1 };
    let told = kvm::lives(options.rounds, kernel_at);
    Stream::Out.write(&told.map_err(|error| Failure::runtime(format!("{error:#}")))?)
}
