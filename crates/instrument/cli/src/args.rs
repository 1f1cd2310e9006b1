//! The command line.

mod control;
mod run;
mod trace;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, ValueHint};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use mayfly_beside_kvm::{Processor, Way};
use mayfly_lab::{Bound, Ksm, Order, Zap, experiments};
use mayfly_report::{Format, Theme, Threshold};

use crate::doctor::Doctor;
use crate::failure::Failure;
use crate::laws::Laws;
use crate::output::Stream;
use crate::watch::Watch;

pub(crate) use control::{Ctl, Metal, OfMetal, Request};
pub(crate) use run::{Experiment, OnMetal, Run};
pub(crate) use trace::{Recorder, Trace};

/// Measures what a VM waits for from its creation to its end, on KVM and on Mayfly's own core.
#[derive(Parser)]
#[command(name = "mayfly", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  mayfly doctor                     find what this host makes a VM wait for
  mayfly list                       list the experiments
  mayfly run                        run all of them, on software machine and KVM
  mayfly run --backend machine      run without /dev/kvm
  mayfly run --json r.json          also write the record to a file
  mayfly report r.json -o r.html    make a page of it for a browser
  mayfly compare old.json new.json  find the metrics that are slower
  mayfly check-trace trace.txt      check a trace of page-table accesses
  mayfly trace -- qemu-system-x86_64 -accel kvm ...
                                    find where a VM's start and end take time
  mayfly watch                      show every VM of this host, one line each
  mayfly laws                       find how the calls of KVM grow
  mayfly metal ctl stat             ask Mayfly at EL2 of a running machine";

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
    Laws(Laws),
    Metal(Metal),
    Lives(Lives),
    Phases(Phases),
    Completions(Completions),
    /// Print the manual page in the format of man(1): mayfly man | man -l -
    Man,
}

/// Show records on the terminal, as a page for a browser, or as one picture
///
/// Without -o, each record is printed as `mayfly run` prints it. With -o, all records go into one HTML file that needs no
/// other file: first the pictures, then every number, then the facts of the hosts. The page of a trace begins with its
/// timeline; that of laws has a picture for each of them. Where FILE ends in .svg, one record becomes one picture: this host's KVM, an earlier design, and Mayfly.
#[derive(ClapArgs)]
pub(crate) struct Report {
    /// Files that `mayfly run --json`, `mayfly trace --json` or `mayfly laws --json` has written
    #[arg(value_name = "RECORD", required = true)]
    pub(crate) records: Vec<PathBuf>,

    /// Write one HTML page to FILE, or a picture if FILE ends in .svg; - is standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// The background that a picture is made for: light or dark [default: light]
    #[arg(long, value_name = "THEME", requires = "output")]
    pub(crate) theme: Option<Theme>,

    /// Print every metric, counter and check; for a trace, every call; for laws, every point
    #[arg(long, conflicts_with = "output")]
    pub(crate) full: bool,
}

/// Say which metrics are slower or faster in one record than in another
///
/// A metric is called slower or faster if its median differs by more than the metric varies within either run, and by more
/// than chance explains over all metrics together. The command exits with 1 if a metric is slower. Two traces of
/// `mayfly trace` are shown side by side, phase by phase. Each trace is of one run, so no phase is called slower, and the
/// command exits with 1 only because of --fail-if. Of two documents of `mayfly laws`, the command says which law has
/// another form, and which call takes longer at the first or the last number that both have measured; it exits with 1 for
/// the latter.
#[derive(ClapArgs)]
pub(crate) struct Compare {
    /// The record to compare with
    #[arg(value_name = "BASE")]
    pub(crate) base: PathBuf,

    /// The record to compare
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,

    /// Exit with 1 only if a metric is slower and this holds for it, as in 'ratio > 1.2' or 'teardown.kvm.ratio > 1.1'; of laws, as in 'create-vm/mappings.last > 1.5'. The option
    /// may be repeated
    #[arg(long = "fail-if", value_name = "THRESHOLD")]
    pub(crate) fail_if: Vec<Threshold>,

    /// The format of the output: text, json, markdown or csv
    #[arg(long, value_name = "FORMAT", default_value_t)]
    pub(crate) format: Format,

    /// Also show the metrics of which nothing can be told
    #[arg(long)]
    pub(crate) full: bool,
}

/// List the experiments and their variants
///
/// With names, print what each of these experiments is about: its problem, its metrics, and its parameters.
#[derive(ClapArgs)]
pub(crate) struct List {
    /// The experiments to describe
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiments: Vec<String>,
}

/// Check a trace of what the hardware sees of stage-2 tables
///
/// FILE has the format of docs/trace-format.md. The command says which rule of the architecture's manual is broken at which
/// line. The rules are about break-before-make, tables and frames that are freed while a TLB may still use them, VMIDs
/// that are reused too early, and missing barriers and cache maintenance. The storm and soak tests of the software
/// machine write such traces.
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
  1  at least one rule is broken
  2  FILE cannot be read, or is not such a trace";

/// Count the instructions of each step of a VM's lifecycle on the KVM of this kernel; `mayfly run --backend metal` runs
/// this in its machine
#[derive(ClapArgs)]
#[command(hide = true)]
pub(crate) struct Lives {
    /// How often to repeat the lifecycle
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,

    /// The kernel runs at EL2 instead of EL1
    #[arg(long)]
    pub(crate) kernel_at_el2: bool,

    /// Count the steps of a dirty log or of forks instead, which are made by this way
    #[arg(long, value_name = "WAY")]
    pub(crate) way: Option<Way>,
}

/// Run a program, and count the instructions of the phases whose ends it prints, those of guests, of the kernel and of other
/// programs apart; `mayfly run devices --backend metal` runs this in its machine
#[derive(ClapArgs)]
#[command(hide = true)]
pub(crate) struct Phases {
    /// The kernel runs at EL2 instead of EL1
    #[arg(long)]
    pub(crate) kernel_at_el2: bool,

    /// The name of the phase that ends with the program
    #[arg(long, value_name = "NAME")]
    pub(crate) last: String,

    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, last = true)]
    pub(crate) command: Vec<OsString>,
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
    let of = command_of(error);
    let shown = of.get_subcommands().filter(|command| !command.is_hide_set());
    let all: Vec<&str> = shown.map(clap::Command::get_name).collect();
    let nearest = all.iter().min_by_key(|name| slips(name));
    match nearest.filter(|name| slips(name) <= SLIPS && slips(name) < name.len().min(given.len())) {
        Some(name) => format!("; tip: a similar subcommand exists: '{name}'"),
        None => format!("; there are {}", all.join(", ")),
    }
}

/// The command that an error is about: the usage in it has the names that lead there.
fn command_of(error: &clap::Error) -> clap::Command {
    let mut command = Args::command();
    if let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) {
        for word in usage.to_string().split_whitespace() {
            if let Some(found) = command.find_subcommand(word) {
                command = found.clone();
            }
        }
    }
    command
}

/// Print the completion script of a shell
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
            "theme" => Theme::ALL.map(Theme::name).to_vec(),
            // The option of a watch that is called like one of a file takes none.
            "json" if !arg.get_action().takes_values() => return arg,
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

    /// A line that is broken in two cannot be copied.
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
