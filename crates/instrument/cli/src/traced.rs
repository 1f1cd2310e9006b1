//! What `mayfly trace` does for one run and for several.

use mayfly_record::{Backend, Record};
use mayfly_report::Threshold;
use mayfly_trace::{End, Error, Launch, figures_of_causes};
use rustix::process::{Resource, Rlimit, setrlimit};
use signal_hook::low_level::emulate_default_handler;

use crate::args;
use crate::failure::{Failure, and_more};
use crate::output::Stream;

/// What shells give for a program that is not there, and for one that cannot be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// What is to be recorded.
pub(crate) fn launch(options: &args::Trace) -> Launch {
    let marker = options.from.mark();
    Launch { command: options.command.clone(), marker, ..Launch::default() }
}

/// Says something where standard error may be closed: the program runs all the same.
pub(crate) fn may_write(line: &str) {
    let _ = Stream::Err.write(&format!("mayfly: {line}\n"));
}

/// Ends this process as the program has ended: only where that was well, what went wrong here is the exit code.
pub(crate) fn end_as(end: Option<End>, verdict: Result<(), Failure>) -> Result<(), Failure> {
    let code = match end {
        None | Some(End::Code(0)) => return verdict,
        Some(End::Code(code)) => code,
        Some(End::Signal(signal)) => {
            if let Err(failure) = &verdict {
                failure.report();
            }
            // The program's core is there, if one is wanted; this process's would replace it.
            let none = Rlimit { current: Some(0), maximum: Some(0) };
            let _ = setrlimit(Resource::Core, none);
            let _ = emulate_default_handler(signal);
            128 + signal
        }
    };
    if let Err(failure) = verdict {
        failure.report();
    }
    std::process::exit(code)
}

pub(crate) fn failure(error: Error) -> Failure {
    let code = match &error {
        Error::NotExecuted { error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
            NOT_FOUND
        }
        Error::NotExecuted { .. } => NOT_EXECUTABLE,
        _ => return Failure::runtime(error),
    };
    Failure::with_code(code, error)
}

/// Whether every figure of a record is on the right side of every bound. A cause that was never named has no figure, and
/// keeps what is no more than so much.
pub(crate) fn within(bounds: &[Threshold], record: &Record) -> Result<(), Failure> {
    for threshold in bounds {
        let violations = match threshold.violations(record) {
            Ok(violations) => violations,
            Err(_) if names_a_cause(threshold) && !threshold.is_about_too_little() => continue,
            Err(_) => {
                return Err(Failure::nothing_ran(format_args!(
                    "{threshold}: the program has no such figure"
                )));
            }
        };
        if let Some(first) = violations.first() {
            let more = and_more(violations.len() - 1);
            return Err(Failure::runtime(format_args!("{threshold}: {}{more}", first.what)));
        }
    }
    Ok(())
}

/// Whether a bound is about a cause, which only several runs have figures of.
pub(crate) fn names_a_cause(threshold: &Threshold) -> bool {
    let (times, counts) = figures_of_causes();
    let is_time = |name: &String| {
        threshold.may_name("trace", Backend::Kvm, "program", (name, true)) == Ok(true)
    };
    let is_count = |name: &String| {
        threshold.may_name_the_counter("trace", Backend::Kvm, "program", name) == Ok(true)
    };
    times.iter().any(is_time) || counts.iter().any(is_count)
}
