//! Waits for a child, for a lock and for a lock on a file are listed, and their holders are named where the locks say them.

use mayfly_trace::{Choice, Error, Stall, Trace};

use crate::{launch, traced_by};

/// Argument, call, and cause, if there is to be one.
const WAITS: [(&str, &str, Option<&str>); 3] = [
    ("child", "wait4", None),
    ("lock", "futex", Some("lock-contention")),
    ("file", "flock", Some("lock-contention")),
];
/// Milliseconds of each wait: more than other work on the host takes.
const LENGTH: u64 = 60;

pub(crate) fn of_any_kind() {
    for choice in [Choice::Ptrace, Choice::Tracefs] {
        for (argument, call, cause) in WAITS {
            let trace = match traced_by(choice, &launch(&[&format!("{argument}={LENGTH}")])) {
                Err(Error::NoTracefs(why)) => return println!("not run: {why}"),
                traced => traced.unwrap(),
            };
            let stall = found(&trace, call);
            assert_eq!(stall.tid, trace.processes[0].pid, "{argument}: {stall:?}");
            assert!(stall.took > LENGTH / 2 * 1_000_000, "{argument}: {stall:?}");
            let code = stall.cause.as_ref().map(|cause| &cause.code[..]);
            assert_eq!(code, cause, "{argument}: {stall:?}");
            assert!(!stall.known.is_empty(), "{argument}: {stall:?}");
            if call == "flock" {
                assert!(stall.known[0].starts_with("on /"), "{stall:?}");
            }
        }
    }
}

fn found<'a>(trace: &'a Trace, call: &str) -> &'a Stall {
    let found = trace.stalls.iter().find(|stall| stall.what == call);
    found.unwrap_or_else(|| panic!("no {call} by {}: {:?}", trace.recorder, trace.stalls))
}
