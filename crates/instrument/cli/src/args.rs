//! The command line.

mod run;
mod trace;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, ValueHint};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use mayfly_beside_kvm::Processor;
use mayfly_lab::{Bound, Ksm, Order, Zap, experiments};
use mayfly_report::{Format, Threshold};

use crate::doctor::Doctor;
use crate::failure::Failure;
use crate::output::Stream;
use crate::watch::Watch;

pub(crate) use run::{OnMetal, Run};
pub(crate) use trace::{Recorder, Trace};

/// Measures the waits in a VM's life, Mayfly's beside KVM's.
#[derive(Parser)]
#[command(name = "mayfly", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  mayfly doctor                     what this host makes a VM wait for
  mayfly list                       what there is to run
  mayfly run                        run it all, on software machine and KVM
  mayfly run --backend machine      leave /dev/kvm alone
  mayfly run --json r.json          keep the record, too
  mayfly report r.json -o r.html    look at it in a browser
  mayfly compare old.json new.json  what is slower, beyond doubt
  mayfly check-trace trace.txt      check what hardware saw of page tables
  mayfly trace -- qemu-system-x86_64 -accel kvm ...
                                    where the start and the end of a VM go
  mayfly watch                      every VM of this host, a line each";

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(Box<Run>),
    Doctor(Doctor),
    Report(Report),
    Compare(Compare),
    List(List),
    CheckTrace(CheckTrace),
    Trace(Trace),
    Watch(Watch),
    Lives(Lives),
    Completions(Completions),
    /// Print the manual page, as man(1) reads it: mayfly man | man -l -
    Man,
}

/// Show records: on the terminal, or as a page for a browser
///
/// Without -o, each record is printed as `mayfly run` does. With it, all of them are in one page, which needs nothing
/// beside itself: pictures first, then every number, and the facts of the hosts. Of traces, the timeline comes first.
#[derive(ClapArgs)]
pub(crate) struct Report {
    /// Records that `mayfly run --json` has written, or those of `mayfly trace --json`
    #[arg(value_name = "RECORD", required = true)]
    pub(crate) records: Vec<PathBuf>,

    /// Write one page of HTML to FILE; - is standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Print everything that was measured, counted and checked; of a trace, every call
    #[arg(long, conflicts_with = "output")]
    pub(crate) full: bool,
}

/// Say what is slower or faster in one record than in another
///
/// A metric is called slower or faster where its median differs by more than it does by itself, and by more than chance
/// would have it in any of all the metrics together. Exits with 1 if one is slower. Two records of `mayfly trace` are set
/// side by side, phase by phase: as each is of one run, none is called slower, and only --fail-if makes it exit with 1.
#[derive(ClapArgs)]
pub(crate) struct Compare {
    /// The record that is compared with
    #[arg(value_name = "BASE")]
    pub(crate) base: PathBuf,

    /// The record that is compared
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,

    /// Fail only where what is slower is beyond this bound, too, as in 'ratio > 1.2' or 'teardown.kvm.ratio > 1.1'; may be
    /// repeated
    #[arg(long = "fail-if", value_name = "THRESHOLD")]
    pub(crate) fail_if: Vec<Threshold>,

    /// How to write it: text, json, markdown or csv
    #[arg(long, value_name = "FORMAT", default_value_t)]
    pub(crate) format: Format,

    /// Show the metrics that cannot be told apart, too
    #[arg(long)]
    pub(crate) full: bool,
}

/// Show the experiments and their variants
///
/// With names, all there is to know about these: the problem behind each, what it measures, and the
/// parameters it takes.
#[derive(ClapArgs)]
pub(crate) struct List {
    /// Experiments to tell about, by name
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiments: Vec<String>,
}

/// Check a trace of what hardware sees of stage-2 tables
///
/// Reads FILE, which has the format of docs/trace-format.md, and says which rule of the architecture's manual is broken
/// at which line: break-before-make, tables and frames that are free before every TLB has forgotten them, VMIDs given to
/// somebody else too early, barriers and cache maintenance that are missing. The software machine's storms and soaks
/// write such a trace: see there.
#[derive(ClapArgs)]
#[command(after_help = CHECK_TRACE_EXIT)]
pub(crate) struct CheckTrace {
    /// The trace; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

const CHECK_TRACE_EXIT: &str = "\
Exit codes:
  0  no rule is broken
  1  some rule is
  2  FILE cannot be read, or is no such trace";

/// Count what steps of a VM's life take on this arm64 kernel's KVM: what `mayfly run --backend metal` has run in its machine
#[derive(ClapArgs)]
#[command(hide = true)]
pub(crate) struct Lives {
    /// How often
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,

    /// The kernel runs at EL2, and not at EL1
    #[arg(long)]
    pub(crate) kernel_at_el2: bool,
}

impl Args {
    /// Reads the process's arguments. Where help or the version was asked for, prints it and exits.
    pub(crate) fn from_command_line() -> Result<Self, Failure> {
        Self::of(std::env::args_os())
    }

    /// Reads these, the program's name first.
    pub(crate) fn of(
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Result<Self, Failure> {
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        let given =
            arguments.iter().skip(1).map(|one| one.to_string_lossy().into_owned()).collect();
        let parsed = command()
            .try_get_matches_from(arguments)
            .and_then(|matches| Self::from_arg_matches(&matches));
        let parsed = parsed.map(|mut args| {
            if let Command::Run(run) = &mut args.command {
                run.arguments = given;
            }
            args
        });
        parsed.map_err(|error| match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => shown(&error, Stream::Out, 0),
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => shown(&error, Stream::Err, 2),
            _ => Failure::usage(folded(&error.render().to_string()) + &meant(&error)),
        })
    }
}

/// Shows help or the version, and exits; fails where it cannot be shown.
fn shown(error: &clap::Error, stream: Stream, code: i32) -> Failure {
    let text = error.render();
    let text = if stream.colour() { text.ansi().to_string() } else { text.to_string() };
    match stream.write(&text) {
        Ok(()) => std::process::exit(code),
        Err(failure) => failure,
    }
}

/// Letters that are missing, too many, wrong, or changed places with the next, in a name that is meant.
const SLIPS: usize = 2;

/// The subcommand that is meant by one there is not, where the error does not say so itself.
fn meant(error: &clap::Error) -> String {
    let given = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(given))
            if error.get(ContextKind::SuggestedSubcommand).is_none() =>
        {
            given
        }
        _ => return String::new(),
    };
    let slips = |name: &str| strsim::osa_distance(given, name);
    let all = names();
    let nearest = all.iter().min_by_key(|name| slips(name));
    match nearest.filter(|name| slips(name) <= SLIPS && slips(name) < name.len().min(given.len())) {
        Some(name) => format!("; tip: a similar subcommand exists: '{name}'"),
        None => format!("; there are {}", all.join(", ")),
    }
}

/// Print what makes a shell complete mayfly's names and options
#[derive(ClapArgs)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// The command line as it is parsed, and as manual and completions are made of it.
pub(crate) fn command() -> clap::Command {
    Args::command().mut_subcommand("run", with_defaults)
}

/// The same with every value that is known by name, for shells to complete. Parsing has errors of its own.
pub(crate) fn with_values() -> clap::Command {
    let named: Vec<&'static str> = experiments().iter().map(|e| e.name()).collect();
    let mut variants: Vec<&'static str> =
        experiments().iter().flat_map(|e| e.variants()).map(|variant| variant.name).collect();
    variants.sort_unstable();
    variants.dedup();
    let values = move |arg: clap::Arg| -> clap::Arg {
        let values: Vec<&'static str> = match arg.get_id().as_str() {
            "experiments" => named.clone(),
            "variants" => variants.clone(),
            "backend" => vec!["auto", "machine", "kvm", "metal"],
            "processors" => Processor::ALL.map(Processor::name).to_vec(),
            "orders" => Order::ALL.map(Order::name).to_vec(),
            "zaps" => Zap::ALL.map(Zap::name).to_vec(),
            "ksm" => vec![Ksm::Alone.name(), Ksm::Shared.name()],
            "format" => Format::ALL.map(Format::name).to_vec(),
            "json" | "openmetrics" | "like" | "records" | "output" | "base" | "new" | "file" => {
                return arg.value_hint(ValueHint::FilePath);
            }
            _ => return arg,
        };
        arg.value_parser(PossibleValuesParser::new(values))
    };
    names().into_iter().fold(command(), |command, name| {
        command.mut_subcommand(name, |subcommand| subcommand.mut_args(values.clone()))
    })
}

/// The names of the subcommands, in the order in which they are declared.
pub(crate) fn names() -> Vec<String> {
    Args::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// Adds to the help of each parameter what the experiments take where it is not set.
fn with_defaults(run: clap::Command) -> clap::Command {
    run.mut_args(|arg| {
        let defaults: Vec<String> = experiments()
            .iter()
            .flat_map(|e| e.params().iter().map(move |param| (e, param)))
            .filter(|(_, param)| arg.get_long() == Some(param.name))
            .map(|(e, param)| format!("{}: {}", e.name(), param.default))
            .collect();
        match arg.get_help() {
            Some(help) if !defaults.is_empty() => {
                let bounds = Bound::ALL.iter().find(|bound| arg.get_long() == Some(bound.name));
                let bounds = bounds.map_or_else(String::new, |bound| format!("; {bound}"));
                let help = format!("{help}{bounds} [{}]", defaults.join(", "));
                arg.help(help)
            }
            _ => arg,
        }
    })
}

/// What went wrong, of clap's message in several paragraphs, as one line.
fn folded(message: &str) -> String {
    message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .map(|line| line.strip_prefix("error: ").unwrap_or(line))
        .fold(String::new(), |folded, line| match &folded {
            _ if folded.is_empty() => line.to_owned(),
            _ if folded.ends_with(':') => folded + " " + line,
            _ => folded + "; " + line,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_parameter_of_an_experiment_is_an_option() {
        let command = Args::command();
        let run = command.find_subcommand("run").unwrap();
        for param in experiments().iter().flat_map(|e| e.params()) {
            assert!(
                run.get_arguments().any(|arg| arg.get_long() == Some(param.name)),
                "{}",
                param.name
            );
        }
    }

    /// What is broken over two lines can be copied by nobody.
    #[test]
    fn examples_and_exit_codes_fit_eighty_columns() {
        let command = command();
        let mut seen = 0;
        for one in command.get_subcommands().chain([&command]) {
            let after = one.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in after.lines() {
                assert!(line.len() <= 80, "{}: {line}", one.get_name());
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn a_message_in_paragraphs_becomes_one_line() {
        let message = "error: unexpected argument '--vm' found\n\n  tip: a similar argument exists: '--vms'\n\n\
                       Usage: mayfly run\n\nFor more information, try '--help'.\n";
        assert_eq!(
            folded(message),
            "unexpected argument '--vm' found; tip: a similar argument exists: '--vms'"
        );
        assert_eq!(folded("error: missing:\n  <X>\n\nUsage: y"), "missing: <X>");
    }
}
