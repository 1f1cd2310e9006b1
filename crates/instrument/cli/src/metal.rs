//! `mayfly run --backend metal`, and what that has run in its machine.

use std::time::Duration;

use mayfly_beside_kvm::kvm::{self, KernelAt};
use mayfly_beside_kvm::{Files, Measured, Side, Table, describe, rows};
use mayfly_lifecycle_steps::Course;
use mayfly_qemu::Interrupt;
use mayfly_record::{Begun, Host, Record, Sink, units};

use crate::args::{Lives, OnMetal, Run};
use crate::built::built;
use crate::conclude::keep_and_print;
use crate::failure::{Failure, and_more};
use crate::output::Stream;
use crate::signals::die_saying;

/// What it takes and changes, in a clause. A round of all sides takes QEMU a minute of one processor; that of a dirty log,
/// which KVM goes through by each of its ways, three.
fn in_all(on_metal: &OnMetal) -> String {
    let rounds = on_metal.rounds * on_metal.processors.len() as u32;
    let minutes = match on_metal.course {
        Course::Lives => 1,
        Course::DirtyLog => 3,
    };
    let time = units::about(Duration::from_secs(60) * minutes * rounds);
    format!("{time}, 1 GiB of memory; changes nothing on this host")
}

/// Runs all sides on each processor, keeps the record and prints the table. What was done when it ends early is kept, too.
pub(crate) fn run(options: &Run, on_metal: &OnMetal) -> Result<(), Failure> {
    let OnMetal { course, processors, rounds, files } = on_metal;
    if options.plan_only {
        let names: Vec<_> = processors.iter().map(|processor| processor.name()).collect();
        let (in_all, names) = (in_all(on_metal), names.join(", "));
        return Stream::Out.write(&format!(
            "{}: {in_all}\n  on metal: {}, on {names}\n",
            course.name(),
            Side::ALL.map(Side::variant).join(", ")
        ));
    }
    let files = Files::of(files).map_err(Failure::nothing_ran)?;
    let sink = options.json.as_deref().map(Sink::open).transpose().map_err(Failure::runtime)?;
    let command = ["mayfly".to_owned()].into_iter().chain(options.arguments.iter().cloned());
    let host = Host { build: Some(built()), ..Host::gather(command) };
    let (begun, interrupt) = (Begun::now(), Interrupt::listen().map_err(Failure::runtime)?);
    let say = |line: &str| {
        if options.quiet { Ok(()) } else { Stream::Err.write(&format!("mayfly: {line}\n")) }
    };
    say(&in_all(on_metal))?;
    let (mut all, mut partial) = (Vec::<Measured>::new(), None);
    for processor in processors {
        say(&format!("{processor}: Mayfly at EL2, and then Linux and its KVM, twice"))?;
        match mayfly_beside_kvm::run(*course, *processor, *rounds, &files, &interrupt) {
            Ok(measured) => all.push(measured),
            Err(error) => {
                partial = Some(match interrupt.signal() {
                    Some(_) => format!("{processor} was not finished"),
                    None => format!("{error:#}"),
                });
                break;
            }
        }
    }
    let mut record =
        Record::new(host, all.iter().flat_map(rows).collect()).describing([describe(&all)]);
    record.conditions = Some(begun.until_now());
    record.partial = partial;
    let told = if all.is_empty() {
        Ok(())
    } else {
        keep_and_print(&record, sink.as_ref(), options.quiet, |_| Table(&all).to_string())
    };
    let Some(why) = &record.partial else { return told.and_then(|()| verdict(&record)) };
    if let Err(failure) = told {
        failure.report();
    }
    match interrupt.signal() {
        Some(signal) => die_saying(signal, why),
        None => Err(Failure::runtime(why)),
    }
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
    let told = match options.log {
        None => kvm::lives(options.rounds, kernel_at),
        Some(way) => kvm::logged(way, options.rounds, kernel_at),
    };
    Stream::Out.write(&told.map_err(|error| Failure::runtime(format!("{error:#}")))?)
}
