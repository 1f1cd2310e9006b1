//! `mayfly run --backend metal`, and what that has run in its machine.

use std::fmt::Display;
use std::time::Duration;

use mayfly_beside_kvm::kvm::{self, KernelAt};
use mayfly_beside_kvm::{Files, Processor, Side, Table, describe, guests, rows};
use mayfly_lifecycle_steps::{Architecture, Course};
use mayfly_qemu::Interrupt;
use mayfly_record::{Begun, Description, Host, Record, ResultRow, Sink, units};

use crate::args::{Experiment, Lives, OnMetal, Phases, Run};
use crate::built::built;
use crate::conclude::keep_and_print;
use crate::failure::{Failure, and_more};
use crate::output::Stream;
use crate::signals::die_saying;

/// What it takes and changes, in a clause. A round of all sides takes QEMU a minute of one processor; that of a dirty log,
/// which KVM goes through by each of its ways, three; devices, whose Linux boots another three times, five. A fork has less
/// memory than a VM of the others.
fn in_all(on_metal: &OnMetal) -> String {
    let rounds = on_metal.rounds * on_metal.processors.len() as u32;
    let minutes = match on_metal.experiment {
        Experiment::Course(Course::Lives | Course::Fork) => 1,
        Experiment::Course(Course::DirtyLog) => 3,
        Experiment::Devices => 5,
    };
    let time = units::about(Duration::from_secs(60) * minutes * rounds);
    format!("{time}, 1 GiB of memory; changes nothing on this host")
}

/// What becomes of what was measured: of a processor's, and of all.
struct Shown<M> {
    rows: fn(&M) -> Vec<ResultRow>,
    describe: fn(&[M]) -> Description,
    table: fn(&[M]) -> String,
}

/// Runs all sides on each processor, keeps the record and prints the table. What was done when it ends early is kept, too.
pub(crate) fn run(options: &Run, on_metal: &OnMetal) -> Result<(), Failure> {
    let OnMetal { experiment, processors, rounds, files, .. } = on_metal;
    if options.plan_only {
        let names: Vec<_> = processors.iter().map(|processor| processor.name()).collect();
        let (in_all, names) = (in_all(on_metal), names.join(", "));
        return Stream::Out.write(&format!(
            "{}: {in_all}\n  on metal: {}, on {names}\n",
            experiment.name(),
            Side::ALL.map(Side::variant).join(", ")
        ));
    }
    match experiment {
        Experiment::Course(course) => {
            let files = Files::of(files, on_metal.architecture).map_err(Failure::nothing_ran)?;
            let table = |all: &[_]| Table(all).to_string();
            each(options, on_metal, &Shown { rows, describe, table }, |processor, interrupt| {
                mayfly_beside_kvm::run(*course, processor, *rounds, &files, interrupt)
            })
        }
        Experiment::Devices => {
            let files = guests::GuestFiles::of(files).map_err(Failure::nothing_ran)?;
            let table = |all: &[_]| guests::Table(all).to_string();
            let shown = Shown { rows: guests::rows, describe: guests::describe, table };
            each(options, on_metal, &shown, |processor, interrupt| {
                guests::run(processor, &files, interrupt)
            })
        }
    }
}

fn each<M, E: Display>(
    options: &Run,
    on_metal: &OnMetal,
    shown: &Shown<M>,
    measure: impl Fn(Processor, &Interrupt) -> Result<M, E>,
) -> Result<(), Failure> {
    let sink = options.json.as_deref().map(Sink::open).transpose().map_err(Failure::runtime)?;
    let command = ["mayfly".to_owned()].into_iter().chain(options.arguments.iter().cloned());
    let host = Host { build: Some(built()), ..Host::gather(command) };
    let (begun, interrupt) = (Begun::now(), Interrupt::listen().map_err(Failure::runtime)?);
    let say = |line: &str| {
        if options.quiet { Ok(()) } else { Stream::Err.write(&format!("mayfly: {line}\n")) }
    };
    say(&in_all(on_metal))?;
    let (mut all, mut partial) = (Vec::<M>::new(), None);
    for processor in &on_metal.processors {
        let mayfly = match processor.architecture() {
            Architecture::Arm64 => "Mayfly at EL2",
            Architecture::X86 => "Mayfly",
        };
        say(&format!("{processor}: {mayfly}, and then Linux and its KVM, twice"))?;
        match measure(*processor, &interrupt) {
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
    let rows = all.iter().flat_map(shown.rows).collect();
    let mut record = Record::new(host, rows).describing([(shown.describe)(&all)]);
    record.conditions = Some(begun.until_now());
    record.partial = partial;
    let told = if all.is_empty() {
        Ok(())
    } else {
        keep_and_print(&record, sink.as_ref(), options.quiet, |_| (shown.table)(&all))
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

/// Counts the phases of a program on this kernel, and prints them.
pub(crate) fn phases(options: &Phases) -> Result<(), Failure> {
    let Phases { kernel_at_el2, last, command } = options;
    let kernel_at = if *kernel_at_el2 { KernelAt::El2 } else { KernelAt::El1 };
    let told = kvm::phases(command, last, kernel_at);
    Stream::Out.write(&told.map_err(|error| Failure::runtime(format!("{error:#}")))?)
}

/// Counts what lives take on this kernel's KVM, and prints that.
pub(crate) fn lives(options: &Lives) -> Result<(), Failure> {
    let kernel_at = if options.kernel_at_el2 { KernelAt::El2 } else { KernelAt::El1 };
    let told = match options.way {
        None => kvm::lives(options.rounds, kernel_at),
        Some(way) => kvm::by_way(way, options.rounds, kernel_at),
    };
    Stream::Out.write(&told.map_err(|error| Failure::runtime(format!("{error:#}")))?)
}
