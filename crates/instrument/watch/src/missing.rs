//! What is not to be had, and why, in words.

use std::io;

/// Why there is no debugfs.
pub(crate) fn debugfs(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "no debugfs: reading it requires root".to_owned(),
        io::ErrorKind::NotFound => "no debugfs: KVM has no directory in it".to_owned(),
        _ => format!("no debugfs: {error}"),
    }
}

/// Why KVM's tracepoints are not counted.
pub(crate) fn tracepoints(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "no tracepoints: counting them requires root".to_owned(),
        io::ErrorKind::NotFound => "no tracepoints: KVM has none".to_owned(),
        _ => format!("no tracepoints: {error}"),
    }
}

/// What there is to say of processes that could not be looked into.
pub(crate) fn closed(count: usize) -> Option<String> {
    match count {
        0 => None,
        1 => Some("1 process belongs to another user: its VMs are not shown".to_owned()),
        _ => Some(format!("{count} processes belong to other users: their VMs are not shown")),
    }
}
