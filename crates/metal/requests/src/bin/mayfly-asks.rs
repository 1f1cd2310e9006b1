//! Asks forks of a VM, each by a connection of its own, and checks what they answer.

use std::process::ExitCode;
use std::time::Duration;

use mayfly_requests::ask::{Load, MOST_AT_ONCE, run};

fn load() -> Option<Load> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (port, count, at_once, seconds) = match &arguments[..] {
        [port, count, at_once] => (port, count, at_once, "30"),
        [port, count, at_once, seconds] => (port, count, at_once, seconds.as_str()),
        _ => return None,
    };
    let at_once = at_once.parse().ok().filter(|at_once| (1..=MOST_AT_ONCE).contains(at_once));
    let seconds = seconds.parse().ok().filter(|seconds| *seconds > 0);
    Some(Load {
        port: port.parse().ok()?,
        count: count.parse().ok()?,
        at_once: at_once?,
        patience: Duration::from_secs(seconds?),
    })
}

fn main() -> ExitCode {
    let Some(load) = load() else {
        eprintln!("usage: mayfly-asks PORT COUNT AT_ONCE [SECONDS]");
        return ExitCode::from(2);
    };
    match run(&load) {
        Ok(outcome) => {
            println!("{outcome}");
            ExitCode::from(u8::from(outcome.failed() > 0))
        }
        Err(error) => {
            eprintln!("mayfly-asks: {error}");
            ExitCode::from(2)
        }
    }
}
