//! What tests of traces share.

#![allow(
    dead_code,
    reason = "each test program has its own copy of this module, and uses a part of it"
)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Whether this user can follow by tracefs.
pub(crate) fn has_tracefs() -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    command.args(["trace", "--quiet", "--recorder", "tracefs", "--", "true"]);
    let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// A path for a test's file, in a directory that goes with the build.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_file(&path);
    path
}

/// Waits until it is so. Panics where it has not been so in many looks: a minute at least, on a host that does nothing else.
pub(crate) fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let comes = (0..12_000).any(|_| {
        let is_there = is_there();
        if !is_there {
            std::thread::sleep(Duration::from_millis(5));
        }
        is_there
    });
    assert!(comes, "{what}");
}

/// Whether a process is there, and has not ended.
pub(crate) fn lives(pid: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}
