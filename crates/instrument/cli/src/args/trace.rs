//! What `mayfly trace` takes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueHint;
use clap::{Args as ClapArgs, ValueEnum};
use mayfly_report::Threshold;
use mayfly_trace::Beginning;

/// Run a program that uses KVM, and say where the start and the end of its VM take time
///
/// The command traces the program, its threads and its child processes from outside; the program needs no change. The report
/// shows the program's phases from its execution to its end, and the longest waits with their causes. The program keeps
/// its output, its signals and its exit code. The report goes to standard error when the program and all its children
/// have ended.
#[derive(ClapArgs)]
#[command(after_help = TRACE_EXIT, override_usage = "mayfly trace [OPTIONS] -- COMMAND...\n       mayfly trace [OPTIONS] --pid PID")]
pub(crate) struct Trace {
    /// The program and its arguments
    #[arg(value_name = "COMMAND", required_unless_present = "pid", trailing_var_arg = true, allow_hyphen_values = true,
        value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,

    /// Write the trace to FILE as JSON (mayfly.trace/1). With - or /dev/stdout, the trace goes to standard output, after the
    /// program's own output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write a timeline to FILE, which <https://ui.perfetto.dev> opens. It has the phases, the longest waits with their causes,
    /// and a track for each thread with its calls. - is standard output, as above
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,

    /// Trace the running process PID until it ends, or until ^C ends this command. With ptrace, the process stops at every
    /// system call and runs slower
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "prove"],
        value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Option<i32>,

    /// How to trace: `tracefs` requires root and never stops the program; `ptrace` stops it at the calls that matter; `auto` is
    /// tracefs if it can be used, and else ptrace
    #[arg(
        long,
        value_name = "auto|tracefs|ptrace",
        default_value = "auto",
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub(crate) recorder: Recorder,

    /// Prove each cause that passes with time: run the program twelve more times for each, without input or output, and delay the
    /// waiting call by 0, 1, 2 and 4 ticks. The cause is proved if the call then waits that much less. This option also
    /// measures what remedies gain, as --gain does. ^C ends the proof, and the report has what is known by then
    #[arg(long)]
    pub(crate) prove: bool,

    /// Measure what remedies gain: replay the recorded calls to KVM in this command's own VMs, in the recorded order and in
    /// the better order, in turns. The program does not run again
    #[arg(long)]
    pub(crate) gain: bool,

    /// Count the start from EVENT on, and not from the program's execution: `socket`, when the client is last heard for which
    /// a thread waits before the VM is created; `KVM_...`, the first call of this name; `file:PATH`, when this file is first
    /// written to; `usdt:PATH:PROVIDER:NAME`, when the program first comes to this probe (USDT) of the program or the library at
    /// PATH, which requires root; `exec`. If the option is not given, a program that waits for a client for 10 ms or more before its first
    /// call to KVM starts with that client's request
    #[arg(long, value_name = "EVENT", default_value = "", hide_default_value = true, value_parser = beginning)]
    pub(crate) from: Beginning,

    /// Run the program N times, one after the other, and report the median and the 95 % interval of each phase and of the waits
    /// of each cause, and how often each cause was named. Each run has the same standard input, unless that is a terminal.
    /// --json then writes a record (mayfly.record/1), which `mayfly report` and `mayfly compare` read
    #[arg(long, value_name = "N", conflicts_with_all = ["pid", "prove", "gain", "timeline"],
        value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub(crate) runs: Option<u32>,

    /// Print no report
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// Exit with 1 if this holds for a figure, as in 'start > 50ms' or 'calls > 500'. The figures are start (exec to
    /// first entry), stop (last exit to the end), total, longest (wait), each phase by its name, such as `vm_created`, calls
    /// and stops. Of several VMs, vm1.start is the start of VM 1. With --runs, a figure has statistics, as in
    /// 'stop.p50 > 20ms' and 'stop.max > 50ms', and each cause has two figures, as in `wait_grace_period.p50 > 5ms` and
    /// `named_grace_period > 2` (runs). The option may be repeated
    #[arg(long = "fail-if", value_name = "THRESHOLD")]
    pub(crate) fail_if: Vec<Threshold>,
}

fn beginning(text: &str) -> Result<Beginning, String> {
    if text.is_empty() { Ok(Beginning::default()) } else { text.parse() }
}

/// How a program is traced.
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
  mayfly trace --runs 10 --fail-if 'stop.p50 > 20ms' -- ./vmm
  mayfly trace --timeline t.perfetto.json -- ./vmm

Exit codes:
  the exit code of the program, or the signal that ended it. If that is 0:
  1    a --fail-if holds for a figure, or the trace could not be recorded or
       written
  2    the command line is wrong
  3    a bound names a figure that this program does not have
  4    there is a bound, and something of the record was lost
  126  the program cannot be executed
  127  there is no such program";
