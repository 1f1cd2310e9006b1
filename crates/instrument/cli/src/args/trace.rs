//! What `mayfly trace` takes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueHint;
use clap::{Args as ClapArgs, ValueEnum};
use mayfly_report::Threshold;

/// Run a program, and say where the life of its VM goes
///
/// Follows the program, its threads and its children from outside, without a change to it: its calls to KVM, the phases
/// from its execution to its end, and the longest waits. Its output, its signals and its exit code stay its own; what
/// there is to say comes on standard error when all of it has ended.
#[derive(ClapArgs)]
#[command(after_help = TRACE_EXIT, override_usage = "mayfly trace [OPTIONS] -- COMMAND...\n       mayfly trace [OPTIONS] --pid PID")]
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
    /// the call back by 0, 1, 2 and 4 ticks. Proved is what waits as much less. What remedies gain is measured, too. ^C
    /// ends it, and the report has what is known by then
    #[arg(long)]
    pub(crate) prove: bool,

    /// Measure what remedies gain: make the recorded calls to KVM again, in VMs of this command's own, as they were and in
    /// the better order, in turns. The program need not be there any more, and is not run
    #[arg(long)]
    pub(crate) gain: bool,

    /// Print no report
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Fail if a figure is on this side of a bound, as in 'start > 50ms' or 'calls > 500'; may be repeated. There are
    /// start (exec to first entry), stop (last exit to the end), total, longest (wait), each phase by its name, as `vm_created`,
    /// calls and stops
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
  mayfly trace --prove -- ./vmm
  mayfly trace --gain --pid 4711
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
