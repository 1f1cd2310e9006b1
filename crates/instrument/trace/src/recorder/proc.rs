//! What `/proc` says of processes and threads.

use std::fs;
use std::str::SplitAsciiWhitespace;

/// A thread's process, and that one's parent, as `/proc` has them.
pub(super) fn process_of(tid: i32) -> Option<(i32, i32)> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let number = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().parse().ok()
    };
    Some((number("Tgid:")?, number("PPid:")?))
}

/// A process's program and its arguments; nothing where it is gone, or the kernel's.
pub(super) fn command_of(pid: i32) -> Vec<String> {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = command.split(|byte| *byte == 0).filter(|one| !one.is_empty());
    command.map(|one| String::from_utf8_lossy(one).into_owned()).collect()
}

/// The threads of a process, those too that have ended and were not reaped; none where it is gone.
pub(super) fn threads_of(pid: i32) -> Option<Vec<i32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    Some(entries.flatten().filter_map(|one| one.file_name().to_str()?.parse().ok()).collect())
}

/// The threads of a process that have no tracer.
pub(super) fn untraced(pid: i32) -> Vec<i32> {
    let is_untraced = |tid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"));
        status.is_ok_and(|status| status.lines().any(|line| line == "TracerPid:\t0"))
    };
    threads_of(pid).unwrap_or_default().into_iter().filter(is_untraced).collect()
}

/// A thread's name; empty where it is gone.
pub(super) fn name_of(tid: i32) -> String {
    let name = fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Whether a thread is there, and has not ended.
pub(super) fn lives(tid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    let state = fields(&stat).and_then(|mut fields| fields.next());
    state.is_some_and(|state| !["Z", "X", "x"].contains(&state))
}

/// The fields of `/proc/PID/stat` from the third on, which is the state. The second, the name in parentheses, may have
/// anything in it.
pub(super) fn fields(stat: &str) -> Option<SplitAsciiWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}
