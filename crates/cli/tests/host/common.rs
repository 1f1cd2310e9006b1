//! What the tests share.

use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) fn mayfly(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    command.args(arguments).env("NO_COLOR", "1");
    command
}

/// A path for a test's file, in a directory that goes with the build.
pub(crate) fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Standard output, standard error, and the exit code.
pub(crate) fn ran(mut command: Command) -> (String, String, Option<i32>) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (text(&stdout).to_owned(), text(&stderr).to_owned(), status.code())
}

pub(crate) fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits until it is so; a test that waits in vain is ended by whoever runs it.
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn record(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}
