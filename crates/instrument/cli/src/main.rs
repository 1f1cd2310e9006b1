//! The `mayfly` command.

mod announce;
mod args;
mod built;
mod check_trace;
mod compare;
mod conclude;
mod ctl;
mod doctor;
mod failure;
mod kept;
mod laws;
mod list;
mod manual;
mod measured;
mod metal;
mod output;
mod report;
mod run;
mod runs;
mod signals;
mod trace;
mod traced;
mod vmm;
mod watch;

use std::process::ExitCode;

use args::{Args, Command, Metal, OfMetal};

fn main() -> ExitCode {
    signals::outlive_full_files();
    let outcome = Args::from_command_line().and_then(|args| match args.command {
        Command::Run(options) => run::run(&options),
        Command::Doctor(options) => doctor::doctor(&options),
        Command::Report(options) => report::report(&options),
        Command::Compare(options) => compare::compare(&options),
        Command::List(options) => list::list(&options),
        Command::CheckTrace(options) => check_trace::check_trace(&options),
        Command::Trace(options) => trace::trace(&options),
        Command::Watch(options) => watch::watch(&options),
        Command::Laws(options) => laws::laws(&options),
        Command::Metal(Metal { command: OfMetal::Ctl(options) }) => ctl::ctl(&options),
        Command::Lives(options) => metal::lives(&options),
        Command::Phases(options) => metal::phases(&options),
        Command::Completions(options) => manual::completions(&options),
        Command::Man => manual::man(),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
