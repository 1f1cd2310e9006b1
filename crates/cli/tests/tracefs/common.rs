//! Whether there is tracefs here.

use std::process::{Command, Stdio};

/// Whether this user can follow by it.
pub(crate) fn has_tracefs() -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    command.args(["trace", "--quiet", "--recorder", "tracefs", "--", "true"]);
    let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
