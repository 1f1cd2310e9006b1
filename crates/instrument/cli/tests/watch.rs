//! `mayfly watch`, where there is no VM: what it prints, and when it ends. Each test watches this process.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

fn watch(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    let me = std::process::id().to_string();
    command.args(["watch", "--interval", "100ms", "--pid", &me]).args(options);
    command.stdin(Stdio::null()).env("COLUMNS", "80");
    command
}

/// What it prints, what it says, and how it ends.
fn ran(mut command: Command) -> (String, String, Option<i32>) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap(), status.code())
}

#[test]
fn where_there_is_no_vm_it_says_so_as_often_as_it_was_asked() {
    let (table, said, code) = ran(watch(&["--count", "2"]));
    assert_eq!(
        (table.as_str(), said.as_str(), code),
        ("no VM was found\n\nno VM was found\n", "", Some(0))
    );
    let (lines, _, code) = ran(watch(&["--count", "2", "--csv"]));
    assert!(lines.starts_with("time,seconds,pid,vm,program,") && code == Some(0), "{lines}");
    assert_eq!(lines.lines().count(), 1);
    let (lines, _, code) = ran(watch(&["--count", "2", "--json"]));
    let objects: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((objects.len(), code), (2, Some(0)), "{lines}");
    for object in &objects {
        assert_eq!(
            (&object["schema"], &object["vms"]),
            (&"mayfly.watch/1".into(), &serde_json::json!([]))
        );
    }
    let (metrics, _, code) = ran(watch(&["--count", "1", "--quiet", "--openmetrics", "-"]));
    assert!(metrics.contains("\nmayfly_watch_vms 0\n") && code == Some(0), "{metrics}");
    assert!(metrics.ends_with("\n# EOF\n"));
}

#[test]
fn it_ends_when_nobody_reads_it_any_more() {
    for options in [&[][..], &["--json"], &["--csv"]] {
        let mut child = watch(options).stdout(Stdio::piped()).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        drop(reader);
        if options == ["--csv"] {
            // With no VM there is no line more, and so nobody who could be gone.
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            assert!(child.wait().unwrap().success());
        }
    }
}

#[test]
fn it_ends_with_the_process_that_it_watches() {
    let mut sleeper = Command::new("sleep").arg("0.5").spawn().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    command.args(["watch", "--interval", "100ms", "--pid", &sleeper.id().to_string()]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    sleeper.wait().unwrap();
    let Output { status, stdout, .. } = child.wait_with_output().unwrap();
    assert!(status.success() && stdout.starts_with(b"no VM was found\n"), "{stdout:?}");
}

#[test]
fn what_it_is_told_wrong_is_one_line() {
    for (options, code, part) in [
        (&["--interval", "1"][..], 2, "accepted are 100ms to 60min"),
        (&["--interval=-1s"], 2, "accepted are 100ms to 60min"),
        (&["--count", "0"], 2, "'0'"),
        (&["--pid", "0"], 2, "'0'"),
        (&["--pid", "-5"], 2, "'-5'"),
        (&["--pid", "x"], 2, "'x'"),
        (&["--pid", "2147483647"], 3, "there is no process 2147483647"),
        (&["--openmetrics", "-"], 2, "requires --quiet"),
        (&["--quiet"], 2, "--openmetrics"),
        (&["--csv", "--quiet", "--openmetrics", "x"], 2, "cannot be used"),
        (&["--json", "--quiet", "--openmetrics", "x"], 2, "cannot be used"),
        (&["--json", "--csv"], 2, "cannot be used"),
        (&["--quiet", "--openmetrics", "/nonexistent/x"], 1, "/nonexistent"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
        command.arg("watch").args(options).stdin(Stdio::null());
        let (printed, said, ended) = ran(command);
        assert_eq!((printed.as_str(), ended), ("", Some(code)), "{options:?}: {said}");
        assert!(said.starts_with("mayfly: ") && said.lines().count() == 1, "{options:?}: {said}");
        assert!(said.contains(part), "{options:?}: {said}");
    }
}
