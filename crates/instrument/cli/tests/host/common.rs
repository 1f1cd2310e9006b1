//! What the tests share.

#![allow(
    dead_code,
    reason = "each test program has its own copy of this module, and uses a part of it"
)]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The command, to which signals do what they do by default: whoever started the tests may ignore some (`nohup`, a
/// shell's background), which goes down to every process.
pub(crate) fn mayfly(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    command.args(arguments).env("NO_COLOR", "1");
    let to_default = || {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: these signals may have their default, and `signal` is async-signal-safe.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: it calls what is async-signal-safe alone, and allocates nothing.
    unsafe { command.pre_exec(to_default) };
    command
}

/// The command with `directory` in the place of `/run`: what any other `mayfly` on the host keeps and looks for there is not in
/// the way. `None` where this user may not have that.
pub(crate) fn with_its_own_run(directory: &Path) -> Option<Command> {
    const BIND: &str = "mount --bind \"$0\" /run && exec \"$@\"";
    let bound = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", BIND]).arg(directory).arg(program);
        command
    };
    let is_allowed = bound("true").output().is_ok_and(|tried| tried.status.success());
    is_allowed.then(|| bound(env!("CARGO_BIN_EXE_mayfly")))
}

/// A path for a test's file, in a directory that goes with the build.
pub(crate) fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// An empty directory of a test's own, beside its files.
pub(crate) fn emptied(name: &str) -> PathBuf {
    let directory = scratch(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// What was said, with one space wherever a line was broken or set in.
pub(crate) fn unbroken(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Standard output, standard error, and the exit code.
pub(crate) fn ran(mut command: Command) -> (String, String, Option<i32>) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (text(&stdout).to_owned(), text(&stderr).to_owned(), status.code())
}

pub(crate) fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits until it is so, and says whether it has come to be. It has not in many looks: two minutes at least, on a host that
/// does nothing else.
pub(crate) fn is_soon(mut is_so: impl FnMut() -> bool) -> bool {
    (0..24_000).any(|_| {
        let is_so = is_so();
        if !is_so {
            std::thread::sleep(Duration::from_millis(5));
        }
        is_so
    })
}

/// Waits until it is so. Panics where it does not come to be.
pub(crate) fn wait_until(is_so: impl FnMut() -> bool) {
    assert!(is_soon(is_so), "what was waited for does not come");
}

pub(crate) fn record(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}
