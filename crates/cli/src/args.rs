//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, ValueHint};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as ClapArgs, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use mayfly_lab::{BackendChoice, Bound, Ksm, Order, Params, Selection, Size, Zap, experiments};
use mayfly_record::Goal;
use mayfly_report::{Format, Threshold};

use crate::doctor::Doctor;
use crate::failure::Failure;
use crate::output::Stream;

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
                                    where the start and the end of a VM go";

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(Box<Run>),
    Doctor(Doctor),
    Report(Report),
    Compare(Compare),
    List(List),
    CheckTrace(CheckTrace),
    Trace(Trace),
    Completions(Completions),
    /// Print the manual page, as man(1) reads it: mayfly man | man -l -
    Man,
}

/// Run experiments and print what they measured
///
/// Each experiment runs the same work under several variants: how Linux did it, what was proposed,
/// and what Mayfly does. The report says what waits, for how long, and what to do about it, and has the medians;
/// with --full, every metric's percentiles and how many times Mayfly's median each variant's is.
#[derive(ClapArgs)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct Run {
    /// Experiments to run, by name; all of them if none is named; may be several with commas
    #[arg(value_name = "EXPERIMENT", value_delimiter = ',')]
    experiments: Vec<String>,

    /// Where to run: on the software `machine`, on the running kernel's `kvm`, or `auto` for the
    /// machine and, if /dev/kvm can be opened, KVM
    #[arg(long, value_name = "auto|machine|kvm", default_value = "auto")]
    backend: BackendChoice,

    /// Run this variant only; may be repeated, or name several with commas
    #[arg(long = "variant", value_name = "NAME", value_delimiter = ',')]
    variants: Vec<String>,

    /// Write the record of the run to FILE as JSON. With - or /dev/stdout it goes to standard output, and the report to
    /// standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Run as the record in FILE says that it was made, on this host; of all that is said beside, --json, --full, --fail-if,
    /// --quiet and --dry-run alone count
    #[arg(long, value_name = "FILE", conflicts_with_all = ["experiments", "backend", "variants", "Parameters"])]
    pub(crate) like: Option<PathBuf>,

    /// What was said, argument by argument; of the command line that is repeated, if one is
    #[arg(skip)]
    pub(crate) arguments: Vec<String>,

    /// Announce nothing and show no progress; with --json -, no report either
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Show everything that was measured, counted and checked, and not what it comes to and the medians alone
    #[arg(long)]
    pub(crate) full: bool,

    /// Fail if a figure is on this side of a bound: NAMES > NUMBER, as in 'device-registration.kvm.first_memslot.p50 > 1ms'
    /// or 'ratio > 1.1'; may be repeated. Names are EXPERIMENT.BACKEND.VARIANT.METRIC.STATISTIC, any of them left out
    #[arg(long = "fail-if", value_name = "THRESHOLD")]
    pub(crate) fail_if: Vec<Threshold>,

    /// Go through each experiment again, until the median of every metric that a short report has is known so well: its
    /// interval at 95 % goes no further to either side. Ends after --time, 10 minutes if that is not said
    #[arg(long, value_name = "SHARE", value_parser = precision, allow_negative_numbers = true)]
    precision: Option<f64>,

    /// Go through each experiment again as long as this lasts, in all: 90s, 10m, 1h. Without --precision, all of it is
    /// used; everything is gone through once, even if that takes longer
    #[arg(long, value_name = "TIME", value_parser = seconds, allow_negative_numbers = true)]
    time: Option<f64>,

    /// Run nothing: say what would be run, what it takes, and what it changes on this host
    #[arg(long = "dry-run")]
    pub(crate) plan_only: bool,

    #[command(flatten)]
    params: Parameters,
}

const RUN_EXAMPLES: &str = "\
Examples:
  mayfly run
  mayfly run --backend kvm --vms 50
  mayfly run --variant call-srcu,mayfly --order devices-first --hz 100
  mayfly run --precision 5% --time 20m
  mayfly run --quiet --json - | jq '.results[].metrics'";

/// The names are those of [`mayfly_lab::Params`]; an experiment's defaults are added to the help.
#[derive(ClapArgs)]
#[command(next_help_heading = "Parameters of experiments")]
struct Parameters {
    /// VMs: one after another, or all at once
    #[arg(long, value_name = "N", value_parser = |text: &str| Bound::VMS.parse(text), allow_negative_numbers = true)]
    vms: Option<u32>,

    /// Devices registered in each VM
    #[arg(long, value_name = "N", value_parser = |text: &str| Bound::DEVICES.parse(text), allow_negative_numbers = true)]
    devices: Option<u32>,

    /// vCPUs of each VM; may be repeated, or name several numbers with commas: they are gone through in turn
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = |text: &str| Bound::VCPUS.parse(text),
        allow_negative_numbers = true)]
    vcpus: Vec<u32>,

    /// Ticks a second of the kernel that the software machine stands for; KVM runs at the host's
    #[arg(long, value_name = "N", value_parser = |text: &str| Bound::HZ.parse(text), allow_negative_numbers = true)]
    hz: Option<u32>,

    /// What a VM gets first: devices-first, vcpus-first or memory-first; may be repeated, or name several
    /// with commas
    #[arg(long = Order::PARAM, value_name = "ORDER", value_delimiter = ',')]
    orders: Vec<Order>,

    /// How often each variant goes through what is measured
    #[arg(long, value_name = "N", value_parser = |text: &str| Bound::ROUNDS.parse(text), allow_negative_numbers = true)]
    rounds: Option<u32>,

    /// Memory of each VM, such as 512MiB, 1g or 1.5GiB; may be repeated, or name several sizes with commas
    #[arg(long = Size::PARAM, value_name = "SIZE", value_delimiter = ',', allow_negative_numbers = true)]
    memory: Vec<Size>,

    /// What deleting a memslot zaps: all-roots or range; may be repeated, or name both with a comma
    #[arg(long = Zap::PARAM, value_name = "WHAT", value_delimiter = ',')]
    zaps: Vec<Zap>,

    /// Pages that the machine's page merger merges together, at most, if they are one after the other
    #[arg(long, value_name = "N", value_parser = |text: &str| Bound::PAGES_A_CHANGE.parse(text),
        allow_negative_numbers = true)]
    pages_a_change: Option<u32>,

    /// Let this host's page merger (KSM) run, as root: its settings are changed, and put back. With =alone, which is
    /// what --ksm by itself means, not where another process has memory that would be merged; with =shared, there too
    #[arg(long = Ksm::PARAM, value_name = "alone|shared", num_args = 0..=1, require_equals = true,
        default_missing_value = Ksm::Alone.name())]
    ksm: Option<Ksm>,
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

/// Run a program, and say where the life of its VM goes
///
/// Follows the program, its threads and its children from outside, without a change to it: its calls to KVM, the phases
/// from its execution to its end, and the longest waits. Its output, its signals and its exit code stay its own; what
/// there is to say comes on standard error when all of it has ended.
#[derive(ClapArgs)]
#[command(after_help = TRACE_EXIT)]
pub(crate) struct Trace {
    /// The program and its arguments
    #[arg(value_name = "COMMAND", required_unless_present = "pid", trailing_var_arg = true, allow_hyphen_values = true,
        value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,

    /// Write the trace to FILE as JSON (mayfly.trace/1). With - or /dev/stdout it goes to standard output, after the
    /// program's own
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write a timeline to FILE that <https://ui.perfetto.dev> opens: a track a thread with its calls, the phases, and the
    /// longest waits with their causes. - is standard output, as above
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,

    /// Follow process PID, which runs already, until it ends or this command is told to by ^C. By ptrace, it is stopped at
    /// every system call, so that it runs slower meanwhile
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "prove"],
        value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Option<i32>,

    /// Who follows: `tracefs`, which takes root and stops nothing; `ptrace`, which stops the program at the calls that
    /// matter; or `auto`, tracefs where it can be had
    #[arg(
        long,
        value_name = "auto|tracefs|ptrace",
        default_value = "auto",
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub(crate) recorder: Recorder,

    /// Prove causes that pass with time: run the program again, twelve times for each, without input or output, and hold
    /// the call back by 0, 1, 2 and 4 ticks. Proved is what waits as much less
    #[arg(long)]
    pub(crate) prove: bool,

    /// Print no report
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Fail if a figure is on this side of a bound, as in 'start > 50ms' or 'calls > 500'; may be repeated. There are
    /// start (exec to first entry), stop (last exit to the end), total, longest (wait), each phase, calls and stops
    #[arg(long = "fail-if", value_name = "THRESHOLD")]
    pub(crate) fail_if: Vec<Threshold>,
}

/// Who follows a program.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Recorder {
    Auto,
    Tracefs,
    Ptrace,
}

const TRACE_EXIT: &str = "\
Examples:
  mayfly trace -- qemu-system-x86_64 -accel kvm -M microvm \\
    -kernel vmlinuz -display none
  mayfly trace --json t.json --fail-if 'start > 50ms' -- ./vmm
  mayfly trace --timeline t.perfetto.json -- ./vmm

Exit codes:
  the program's own, and the signal that ended it; where that is 0:
  1    a figure is on the wrong side of a bound, or the trace cannot be made or
       kept
  2    the command line is wrong
  3    a bound is about what the program did not do
  126  the program cannot be executed
  127  there is no such program";

const CHECK_TRACE_EXIT: &str = "\
Exit codes:
  0  no rule is broken
  1  some rule is
  2  FILE cannot be read, or is no such trace";

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

impl Run {
    /// The same run, but announced, shown and kept as `other` says.
    pub(crate) fn told_as(self, other: &Self) -> Self {
        let (json, quiet, plan_only) = (other.json.clone(), other.quiet, other.plan_only);
        let fail_if = other.fail_if.clone();
        Self { json, quiet, plan_only, full: other.full, fail_if, like: None, ..self }
    }

    /// Whether something was asked for by its name, and not whatever there is.
    pub(crate) fn is_by_name(&self) -> bool {
        !self.experiments.is_empty()
            || !self.variants.is_empty()
            || self.backend != BackendChoice::Auto
    }

    /// What to run.
    pub(crate) fn selection(&self) -> Selection {
        let Parameters {
            vms,
            devices,
            ref vcpus,
            hz,
            ref orders,
            rounds,
            ref memory,
            ref zaps,
            pages_a_change,
            ksm,
        } = self.params;
        Selection {
            experiments: self.experiments.clone(),
            backend: self.backend,
            variants: self.variants.clone(),
            params: Params {
                vms,
                devices,
                vcpus: vcpus.clone(),
                hz,
                orders: orders.clone(),
                rounds,
                memory: memory.clone(),
                zaps: zaps.clone(),
                pages_a_change,
                ksm,
            },
            goal: Goal { precision: self.precision, seconds: self.time },
        }
    }
}

/// A share of a median, as `5%` or `0.05`.
fn precision(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = plain(number).map(|number| number / scale);
    let accepted = share.filter(|share| (0.001..=1.0).contains(share));
    accepted.ok_or_else(|| "accepted are 0.1% to 100%, or 0.001 to 1".to_owned())
}

/// A time in seconds, as `90s`, `10m` or `1h`.
fn seconds(text: &str) -> Result<f64, String> {
    let units = [("min", 60.0), ("m", 60.0), ("h", 3600.0), ("s", 1.0)];
    let in_unit =
        |(unit, scale): (&str, f64)| Some(plain(text.strip_suffix(unit)?.trim_end())? * scale);
    let accepted = units.into_iter().find_map(in_unit).filter(|s| (1.0..=604_800.0).contains(s));
    accepted.ok_or_else(|| "accepted are 1s to 168h, as in 90s, 10m or 1h".to_owned())
}

/// A number in digits; Rust's own parser knows `inf`, `nan` and exponents, too.
fn plain(text: &str) -> Option<f64> {
    let is_plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.parse().ok().filter(|_| is_plain)
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
            "backend" => vec!["auto", "machine", "kvm"],
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

    #[test]
    fn options_arrive_in_the_selection() {
        let line = "mayfly run one two --backend kvm --variant a,b --variant c --hz 100 \
                    --order memory-first,vcpus-first --vcpus 4,16 --vcpus 2 --memory 1GiB,512M \
                    --zap range --rounds 3 --pages-a-change 8 --ksm=shared --precision 5% --time 2m";
        let args = Args::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Run(run) = args.command else { panic!("not a run") };
        let selection = run.selection();
        assert_eq!(selection.experiments, ["one", "two"]);
        assert_eq!(selection.backend, "kvm".parse().unwrap());
        assert_eq!(selection.variants, ["a", "b", "c"]);
        assert_eq!((selection.params.hz, selection.params.vms), (Some(100), None));
        assert_eq!(selection.params.orders, [Order::MemoryFirst, Order::VcpusFirst]);
        assert_eq!(selection.params.vcpus, [4, 16, 2]);
        let sizes: Vec<_> = selection.params.memory.iter().map(ToString::to_string).collect();
        assert_eq!(sizes, ["1 GiB", "512 MiB"]);
        assert_eq!((selection.params.zaps, selection.params.rounds), (vec![Zap::Range], Some(3)));
        assert_eq!(selection.params.pages_a_change, Some(8));
        assert_eq!(selection.params.ksm, Some(Ksm::Shared));
        assert_eq!(selection.goal, Goal { precision: Some(0.05), seconds: Some(120.0) });
    }

    #[test]
    fn a_precision_and_a_time_are_read_as_people_write_them_and_nothing_else_is() {
        for (text, share) in
            [("5%", 0.05), ("0.05", 0.05), ("100%", 1.0), ("0.1%", 0.001), ("2.5%", 0.025)]
        {
            assert!((precision(text).unwrap() - share).abs() < 1e-12, "{text}");
        }
        for text in ["", "%", "0", "0%", "101%", "5", "-5%", "nan", "inf%", "5 percent", "1e-2"] {
            assert!(precision(text).is_err(), "{text}");
        }
        for (text, wanted) in
            [("90s", 90.0), ("10m", 600.0), ("10min", 600.0), ("1.5h", 5400.0), ("1 s", 1.0)]
        {
            assert_eq!(seconds(text), Ok(wanted), "{text}");
        }
        for text in ["", "s", "90", "0s", "-1s", "infs", "nanh", "200h", "10ms", "1e3s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_merger_is_left_alone_unless_it_is_asked_for_and_takes_no_word_for_a_value() {
        for (line, asked) in [
            ("mayfly run page-merge", None),
            ("mayfly run --ksm page-merge", Some(Ksm::Alone)),
            ("mayfly run page-merge --ksm=shared", Some(Ksm::Shared)),
        ] {
            let args = Args::try_parse_from(line.split_whitespace()).unwrap();
            let Command::Run(run) = args.command else { panic!("not a run") };
            let selection = run.selection();
            assert_eq!(
                (selection.params.ksm, &selection.experiments[..]),
                (asked, &["page-merge".to_owned()][..])
            );
        }
    }
}
