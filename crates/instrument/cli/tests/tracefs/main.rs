//! `mayfly trace` by tracefs: what it leaves on the host, whatever happens to it, and what it says when events are lost.

use std::fs;
use std::io::{BufRead, BufReader, Write, stderr};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[path = "../common/traces.rs"]
mod common;

use common::{has_tracefs, lives, scratch, wait_for};

fn mayfly(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    command.args(["trace", "--recorder", "tracefs"]).args(options).stdin(Stdio::null());
    command
}

/// The instances that a process with this number has made, as somebody sees them who has mounted tracefs.
fn instances(maker: u32) -> usize {
    let script = "mount -t tracefs none /mnt && ls /mnt/instances";
    let listed = Command::new("unshare").args(["-m", "sh", "-c", script]).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).unwrap();
    names.lines().filter(|name| name.starts_with(&format!("mayfly-{maker}-"))).count()
}

/// Whether there is what these tests take; says so where there is not.
fn is_here() -> bool {
    let unshares = Command::new("unshare").args(["-m", "true"]).status();
    let is_here = has_tracefs() && unshares.is_ok_and(|status| status.success());
    if !is_here {
        let _ = writeln!(
            stderr(),
            "not run: `mayfly trace` by tracefs takes root, tracefs and unshare"
        );
    }
    is_here
}

/// The one process that a process has made and that has not ended, when it is there.
fn child_of(pid: u32) -> u32 {
    let mut child = None;
    wait_for("a child", || {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let all = fs::read_to_string(path).unwrap_or_default();
        child = all.split_ascii_whitespace().find_map(|one| one.parse().ok());
        child.is_some()
    });
    child.unwrap()
}

/// A program that runs until it is told to end, followed; the front end, and who reads.
fn followed(name: &str, options: &[&str]) -> (Child, u32, u32) {
    let file = scratch(name);
    let script =
        format!("trap 'exit 7' TERM; echo $$ > {}; while :; do sleep 0.01; done", file.display());
    let mut command = mayfly(options);
    let front = command.args(["--", "sh", "-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the program runs", || {
        fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'))
    });
    let program = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    let guardian = child_of(front.id());
    assert!(instances(guardian) > 0);
    (front, guardian, program)
}

fn send(to: u32, signal: Signal) {
    kill_process(Pid::from_raw(to.cast_signed()).unwrap(), signal).unwrap();
}

#[test]
fn nothing_is_left_when_the_program_has_ended_as_it_would() {
    if !is_here() {
        return;
    }
    let json = scratch("ended.json");
    let (front, guardian, program) = followed("ended", &["--json", json.to_str().unwrap()]);
    send(program, Signal::TERM);
    let Output { status, stderr, .. } = front.wait_with_output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(7), "{said}");
    assert_eq!(instances(guardian), 0);
    assert!(said.contains("recorded by tracefs, which does not stop the program"), "{said}");
    let trace: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!((&trace["recorder"], &trace["stops"]["count"]), (&"tracefs".into(), &0.into()));
    let processes = trace["processes"].as_array().unwrap();
    assert!(processes.len() > 1, "the sleeps that it has executed");
    assert!(processes.iter().all(|one| one["gone"].is_u64()), "{processes:?}");
}

#[test]
fn nothing_is_left_when_the_front_end_is_killed_and_the_program_goes_on() {
    if !is_here() {
        return;
    }
    let (mut front, guardian, program) = followed("killed", &["--quiet"]);
    front.kill().unwrap();
    front.wait().unwrap();
    wait_for("the instances are gone", || instances(guardian) == 0);
    assert!(lives(program));
    send(program, Signal::TERM);
    wait_for("it ends", || !lives(program));
}

#[test]
fn nothing_is_left_when_who_reads_is_killed_and_the_program_goes_on() {
    if !is_here() {
        return;
    }
    let (mut front, guardian, program) = followed("reader", &[]);
    send(guardian, Signal::KILL);
    // The program has the same stream, and goes on.
    let mut said = String::new();
    BufReader::new(front.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("mayfly: the recorder ended before the program did"), "{said}");
    assert_eq!(front.wait().unwrap().code(), Some(1));
    assert!(lives(program) && instances(guardian) == 0);
    send(program, Signal::TERM);
    wait_for("it ends", || !lives(program));
}

#[test]
fn a_process_that_runs_is_not_stopped_and_goes_on_after_an_interrupt() {
    if !is_here() {
        return;
    }
    let script = "trap 'exit 7' TERM; while :; do sleep 0.01; done";
    let mut program = Command::new("sh").args(["-c", script]).spawn().unwrap();
    let (pid, json) = (program.id().to_string(), scratch("attached.json"));
    let follow = || {
        let mut command = mayfly(&["--quiet", "--pid", &pid, "--json"]);
        let front = command.arg(&json).stderr(Stdio::piped()).spawn().unwrap();
        let guardian = child_of(front.id());
        wait_for("it is followed", || instances(guardian) == 2);
        std::thread::sleep(Duration::from_millis(300));
        (front, guardian)
    };
    let (front, guardian) = follow();
    send(front.id(), Signal::INT);
    let Output { status, stderr, .. } = front.wait_with_output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    assert!(instances(guardian) == 0 && lives(program.id()));
    let trace: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(trace["end"].is_null() && trace["stops"]["count"] == 0);
    assert!(trace["processes"].as_array().unwrap().len() > 1, "the sleeps that it has executed");
    // And its end is seen, and is its own.
    let (front, guardian) = follow();
    send(program.id(), Signal::TERM);
    assert_eq!(program.wait().unwrap().code(), Some(7));
    assert!(front.wait_with_output().unwrap().status.success());
    assert_eq!(instances(guardian), 0);
    let trace: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(trace["end"]["code"], 7);
}

#[test]
fn events_that_are_lost_are_counted_and_said() {
    if !is_here() {
        return;
    }
    // Who reads is stopped while the program calls more than the buffers hold.
    let script = "kill -STOP $PPID; i=0; while [ $i -lt 100000 ]; do exec 7</dev/null 7<&-; i=$((i+1)); done; kill -CONT $PPID";
    let lost = |options: &[&str]| {
        let mut command = mayfly(options);
        let Output { status, stderr, .. } =
            command.args(["--", "sh", "-c", script]).output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    let (code, said) = lost(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(" were lost: calls may be missing"), "{said}");
    assert!(said.contains("\nincomplete: "), "{said}");
    // Nobody knows whether a bound holds for what was lost.
    let (code, said) = lost(&["--quiet", "--fail-if", "total > 1000s"]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("the record is incomplete, and bounds are not checked: "), "{said}");
    // Of a quiet one, none is.
    let Output { stderr, .. } = mayfly(&["--", "true"]).output().unwrap();
    assert!(String::from_utf8(stderr).unwrap().contains("and none was lost"));
}

#[test]
fn without_tracefs_it_is_followed_by_ptrace_and_a_line_says_so() {
    if !is_here() {
        return;
    }
    // Not mounted, and without the right to mount it.
    let script = "umount -l /sys/kernel/tracing /sys/kernel/debug 2>/dev/null; exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin \"$@\"";
    let run = |options: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_mayfly"), "trace"]);
        command.args(options).args(["--", "sh", "-c", "echo out; exit 5"]).output().unwrap()
    };
    let Output { status, stdout, stderr } = run(&["--quiet"]);
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!((status.code(), &stdout[..]), (Some(5), &b"out\n"[..]), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("mayfly: tracefs cannot be used (") && said.contains("using ptrace"),
        "{said}"
    );
    // Where nothing else is wanted the program is not run.
    let Output { status, stdout, stderr } = run(&["--quiet", "--recorder", "tracefs"]);
    assert_eq!((status.code(), stdout.len()), (Some(1), 0));
    assert_eq!(String::from_utf8(stderr).unwrap().lines().count(), 1);
}
