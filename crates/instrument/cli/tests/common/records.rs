//! The command as tests of records call it.

#![allow(
    dead_code,
    reason = "each test program has its own copy of this module, and uses a part of it"
)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

pub(crate) fn mayfly(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    command.args(arguments).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command.stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The one line that a command says which fails with `code`.
pub(crate) fn failure(arguments: &[&str], code: i32) -> String {
    let output = mayfly(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.starts_with("mayfly: ") && said.lines().count() == 1, "{said}");
    said.to_owned()
}

/// What a command prints.
pub(crate) fn success(arguments: &[&str]) -> String {
    let output = mayfly(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

/// A directory of a test's own, in one that goes with the build.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}
