//! `make kernels`: KVM's experiments inside other kernels, side by side. `docs/kernels.md` explains the tables.
//!
//! QEMU boots each kernel without acceleration, on one processor whose clock counts its instructions. `mayfly run --backend
//! kvm` runs inside it. The medians are virtual time, not a processor's time. They are the same however busy this host is, so
//! they tell kernels apart. They say nothing of caches, TLBs and barriers, which QEMU does not have.

mod archive;
mod format;
mod guest;
mod job;
mod laws;
mod machine;
mod outcome;
mod regression;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use mayfly_qemu::Interrupt;

use crate::archive::{Arch, Kernel};
use crate::format::Format;
use crate::job::Look;
use crate::machine::Machine;
use crate::outcome::Outcome;

/// Run KVM's experiments inside other kernels, from the oldest to the newest that the archive has
///
/// The kernels are Debian's. They are fetched with an apt of their own, and nothing is installed. QEMU boots each without
/// acceleration, on one processor that counts its instructions instead of time. The tables are in that virtual time: it
/// compares kernels, and is not the time that a processor takes. Records are kept below target/kernels/records.
#[derive(Parser)]
#[command(name = "mayfly-kernels", version, after_help = EXIT)]
struct Args {
    /// Series of kernels, such as 6.12; without one, all series that the archive has
    #[arg(value_name = "RELEASE")]
    releases: Vec<String>,

    /// Architectures of kernels and processors: amd64 or arm64; without one, both
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    arch: Vec<Arch>,

    /// Look only for the wait that came with Linux 6.18, in one kernel before it and one since, and for what the doctor says
    /// about it; takes a minute
    #[arg(long, conflicts_with = "releases")]
    quick: bool,

    /// Say how calls grow in each kernel: the creation of a VM with mappings, its close with the time since a device was
    /// registered, with vCPUs and with slots, and the registration of an ioeventfd, a vCPU and a slot beside others
    #[arg(long, conflicts_with = "quick")]
    laws: bool,

    /// How to write the tables
    #[arg(long, value_name = "FORMAT", default_value = "terminal")]
    format: Format,

    /// The mayfly to run, for one architecture; without it, the statically linked ones below target/
    #[arg(long, value_name = "FILE")]
    mayfly: Option<PathBuf>,
}

const EXIT: &str = "\
Exit codes:
  0   the tables are printed; kernels that could not be fetched, or failed, are named
  1   no kernel could be measured; with --quick: the wait is not where it has to be
  2   the command line is wrong
  77  with --quick: no kernels can be fetched here";

fn main() -> ExitCode {
    let args = Args::parse();
    let interrupt = match Interrupt::listen() {
        Ok(interrupt) => interrupt,
        Err(error) => {
            eprintln!("kernels: cannot install signal handlers: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let code = run(&args, &interrupt);
    if let Some(signal) = interrupt.signal() {
        mayfly_qemu::die_of(signal);
    }
    code.unwrap_or_else(|error| {
        eprintln!("kernels: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(args: &Args, interrupt: &Interrupt) -> anyhow::Result<ExitCode> {
    let arches = if args.arch.is_empty() { Arch::value_variants() } else { &args.arch };
    let look = match (args.quick, args.laws) {
        (true, _) => Look::Quick,
        (_, true) => Look::Laws,
        _ => Look::Whole,
    };
    let mut outcomes = Vec::new();
    for &arch in arches {
        let kernels = if args.quick {
            archive::before_and_since(arch, regression::SINCE)
        } else {
            archive::fetch(arch, &args.releases)
        };
        // An interrupted fetch fails, but only because of the interrupt.
        if interrupt.came() {
            break;
        }
        let linked = Path::new("target").join(arch.target()).join("release/mayfly");
        let mayfly = args.mayfly.as_ref().unwrap_or(&linked);
        outcomes.extend(measured(arch, &kernels?, mayfly, look, interrupt)?);
    }
    if args.quick && !interrupt.came() {
        return Ok(regression::verdict(&outcomes));
    }
    let tables = if args.laws { laws::tables } else { table::tables };
    print!("{}", tables(&outcomes, args.format));
    let any = outcomes.iter().any(Outcome::has_figures);
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs every kernel in every machine of an architecture.
fn measured(
    arch: Arch,
    kernels: &[Kernel],
    mayfly: &Path,
    look: Look,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for machine in Machine::of(arch, look) {
        for kernel in kernels {
            if interrupt.came() {
                return Ok(outcomes);
            }
            let jobs = job::jobs(machine, look);
            let outcome = outcome::of(machine, kernel, jobs, mayfly, interrupt)?;
            eprintln!("kernels: {outcome}");
            outcomes.push(outcome);
        }
    }
    Ok(outcomes)
}
