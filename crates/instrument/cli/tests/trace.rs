//! What a person sees of `mayfly trace`, whatever the program does.

use std::fs;
use std::io::{Write, stderr};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

#[path = "common/traces.rs"]
mod common;

use common::{lives, scratch, wait_for};

fn mayfly(options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    command.arg("trace").args(options).arg("--").args(program).stdin(Stdio::null());
    command
}

fn shell(options: &[&str], script: &str) -> Command {
    mayfly(options, &["sh", "-c", script])
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_record_that_is_larger_than_files_may_be_is_said_and_what_stood_there_stays() {
    let record = scratch("limited.json");
    fs::write(&record, "old").unwrap();
    let mayfly = env!("CARGO_BIN_EXE_mayfly");
    let traced = format!("ulimit -f 1; exec {mayfly} trace --quiet --json {} --", record.display());
    let limited = |program: &str| {
        let script = format!("{traced} {program}");
        Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap()
    };
    let Output { status, stderr, .. } = limited("sh -c 'true; exit 0'");
    assert_eq!(status.code(), Some(1), "{status:?} {}", text(&stderr));
    assert!(text(&stderr).contains("limited.json: File too large"), "{}", text(&stderr));
    assert_eq!(text(&stderr).lines().count(), 1);
    assert_eq!(fs::read_to_string(&record).unwrap(), "old");
    // The program is ended by the signal as it would be by itself.
    let large = scratch("limited.large");
    let status = limited(&format!("dd if=/dev/zero of={} bs=64k count=1", large.display())).status;
    assert_eq!(status.signal(), Some(libc::SIGXFSZ), "{status:?}");
}

#[test]
fn output_and_exit_code_are_the_program_s() {
    for code in [0, 1, 3, 127, 255] {
        let script = format!("echo out; echo err >&2; exit {code}");
        let Output { status, stdout, stderr } = shell(&["--quiet"], &script).output().unwrap();
        assert_eq!(status.code(), Some(code));
        assert_eq!((text(&stdout), text(&stderr)), ("out\n", "err\n"));
    }
    let Output { status, stdout, stderr } = shell(&[], "echo out").output().unwrap();
    assert!(status.success());
    assert_eq!(text(&stdout), "out\n");
    assert!(text(&stderr).contains("the program never opened /dev/kvm"), "{}", text(&stderr));
}

#[test]
fn who_waits_for_the_command_sees_the_signal_that_ended_the_program() {
    for signal in [9, 15, 6] {
        let Output { status, .. } =
            shell(&["--quiet"], &format!("kill -{signal} $$")).output().unwrap();
        assert_eq!(status.signal(), Some(signal));
    }
}

#[test]
fn a_program_that_is_not_there_or_cannot_be_executed_is_one_line() {
    for (program, code) in
        [("/no/such/program", 127), ("no-such-program-anywhere", 127), ("/etc/passwd", 126)]
    {
        let Output { status, stdout, stderr } = mayfly(&[], &[program]).output().unwrap();
        let stderr = text(&stderr);
        assert_eq!(status.code(), Some(code), "{stderr}");
        assert!(stdout.is_empty());
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(
            stderr.starts_with("mayfly: cannot execute ") && stderr.contains(program),
            "{stderr}"
        );
    }
}

#[test]
fn a_bound_that_names_nothing_is_refused_before_the_program_runs() {
    let file = scratch("never");
    let touch = format!("touch {}", file.display());
    for bound in ["begin > 5ms", "start > many", "start", "start > 5", "call > 5", "calls > 5ms"] {
        let Output { status, .. } = shell(&["--fail-if", bound], &touch).output().unwrap();
        assert_eq!(status.code(), Some(2), "{bound}");
    }
    assert!(!file.exists());
    // Such a figure the program does not have; and this one is on the wrong side.
    let Output { status, .. } = shell(&["--fail-if", "start > 5ms"], "true").output().unwrap();
    assert_eq!(status.code(), Some(3));
    let Output { status, stderr, .. } =
        shell(&["--fail-if", "total > 1ns"], "true").output().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(text(&stderr).contains("total > 1ns: trace.kvm.program.total.p50 is "));
    let Output { status, .. } = shell(&["--fail-if", "total > 1ns"], "exit 9").output().unwrap();
    assert_eq!(status.code(), Some(9), "the program's own comes first");
}

#[test]
fn a_record_that_cannot_be_kept_fails_the_command_and_not_the_program() {
    let run = |script| shell(&["--json", "/dev/full", "--quiet"], script).output().unwrap();
    let Output { status, stdout, stderr } = run("echo all of it");
    assert_eq!((status.code(), text(&stdout)), (Some(1), "all of it\n"));
    assert_eq!(text(&stderr).lines().count(), 1, "{}", text(&stderr));
    assert_eq!(run("exit 4").status.code(), Some(4));
}

#[test]
fn children_and_what_they_execute_are_followed() {
    let file = scratch("children.json");
    let json = file.to_str().unwrap();
    let script = "(exit 3); sh -c 'true & wait'; exec sh -c 'exit 5'";
    let Output { status, .. } = shell(&["--json", json, "--quiet"], script).output().unwrap();
    assert_eq!(status.code(), Some(5));
    let trace: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let processes = trace["processes"].as_array().unwrap();
    assert!(processes.len() >= 3, "{processes:?}");
    assert!(processes.iter().all(|one| one["gone"].is_u64()), "{processes:?}");
    assert_eq!(processes[0]["executed"].as_array().unwrap().len(), 2);
    assert!(processes[1..].iter().all(|one| one["parent"].is_i64()), "{processes:?}");
    assert_eq!(trace["schema"], "mayfly.trace/1");
    assert_eq!(trace["end"]["code"], 5);
}

#[test]
fn a_killed_front_end_leaves_the_program_running_to_its_end() {
    let (begun, go, done) = (scratch("begun"), scratch("go"), scratch("done"));
    let script = format!(
        "echo $$ > {0}.part; mv {0}.part {0}; while ! [ -e {1} ]; do sleep 0.01; done; ls /usr >/dev/null && echo well > {2}",
        begun.display(),
        go.display(),
        done.display()
    );
    let mut front = shell(&["--quiet"], &script).stdout(Stdio::null()).spawn().unwrap();
    wait_for("the program runs", || begun.exists());
    let pid: u32 = fs::read_to_string(&begun).unwrap().trim().parse().unwrap();
    front.kill().unwrap();
    assert_eq!(front.wait().unwrap().signal(), Some(9));
    fs::write(&go, "").unwrap();
    wait_for("the program ends as it would have", || {
        fs::read_to_string(&done).is_ok_and(|text| text == "well\n")
    });
    wait_for("nothing is left of it", || !lives(pid));
}

#[test]
fn a_signal_for_the_command_is_one_for_the_program() {
    let begun = scratch("listens");
    let script = format!(
        "trap 'echo heard; exit 7' TERM; echo > {}; while :; do sleep 0.01; done",
        begun.display()
    );
    let front = shell(&["--quiet"], &script).stdout(Stdio::piped()).spawn().unwrap();
    wait_for("the program listens", || begun.exists());
    let pid = rustix::process::Pid::from_raw(front.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let Output { status, stdout, .. } = front.wait_with_output().unwrap();
    assert_eq!((status.code(), text(&stdout)), (Some(7), "heard\n"));
}

#[test]
fn what_the_program_was_started_to_ignore_it_ignores() {
    let script = "kill -HUP $$; kill -INT $$; echo still there";
    let mayfly = env!("CARGO_BIN_EXE_mayfly");
    let line = format!("trap '' HUP INT; exec {mayfly} trace --quiet -- sh -c '{script}'");
    let Output { status, stdout, .. } = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert_eq!((status.code(), text(&stdout)), (Some(0), "still there\n"));
}

/// A program that runs until it is told to stop, and no longer than its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_runs_is_followed_and_goes_on_when_it_is_let_go() {
    let json = scratch("attached.json");
    let turns = scratch("turns");
    let loops =
        format!("trap 'exit 7' TERM; while :; do echo >> {}; sleep 0.01; done", turns.display());
    let mut program = Running(Command::new("sh").args(["-c", &loops]).spawn().unwrap());
    let pid = program.0.id().to_string();
    let done = || fs::metadata(&turns).map_or(0, |file| file.len());
    let follow = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
        command.args(["trace", "--quiet", "--recorder", "ptrace", "--pid", &pid, "--json"]);
        command.arg(&json);
        command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let traced = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    };
    let send = |to: u32, signal| {
        let pid = rustix::process::Pid::from_raw(to.cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    };
    let front = follow();
    wait_for("it is followed", traced);
    let before = done();
    wait_for("it goes on meanwhile", || done() > before + 3);
    send(front.id(), rustix::process::Signal::INT);
    let Output { status, stderr, .. } = front.wait_with_output().unwrap();
    assert!(status.success(), "{}", text(&stderr));
    assert!(!traced() && lives(program.0.id()));
    let trace: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(trace["end"].is_null());
    assert!(trace["processes"].as_array().unwrap().len() > 1, "the sleeps that it has executed");
    // Whoever kills the front end lets it go, too.
    let mut front = follow();
    wait_for("it is followed again", traced);
    front.kill().unwrap();
    front.wait().unwrap();
    wait_for("it is let go", || !traced());
    assert!(lives(program.0.id()));
    // And its end is seen, and is its own.
    let front = follow();
    wait_for("it is followed once more", traced);
    send(program.0.id(), rustix::process::Signal::TERM);
    assert_eq!(program.0.wait().unwrap().code(), Some(7));
    assert!(front.wait_with_output().unwrap().status.success());
    let trace: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(trace["end"]["code"], 7);
}

#[test]
fn a_process_that_is_not_there_is_one_line() {
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let mut unburied = Command::new("true").spawn().unwrap();
    let pid = unburied.id().to_string();
    wait_for("it ends", || !lives(unburied.id()));
    for (pid, code) in [(ended.id().to_string(), 1), (pid, 1), ("0".into(), 2), ("x".into(), 2)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
        let Output { status, stderr, .. } =
            command.args(["trace", "--pid", &pid]).output().unwrap();
        assert_eq!(status.code(), Some(code), "{}", text(&stderr));
        assert_eq!(text(&stderr).lines().count(), 1, "{}", text(&stderr));
    }
    unburied.wait().unwrap();
}

/// Opens /dev/kvm, makes a VM, closes both, and ends with 7: by the calls of 32-bit programs.
const PROGRAM_32: &str = "\
.global _start
_start:
    mov $5, %eax; mov $path, %ebx; mov $2, %ecx; xor %edx, %edx; int $0x80
    mov %eax, %esi
    mov $54, %eax; mov %esi, %ebx; mov $0xAE01, %ecx; xor %edx, %edx; int $0x80
    mov %eax, %ebx; mov $6, %eax; int $0x80
    mov %esi, %ebx; mov $6, %eax; int $0x80
    mov $1, %eax; mov $7, %ebx; int $0x80
.data
path: .asciz \"/dev/kvm\"
";

#[test]
fn a_32_bit_program_is_followed_like_any_other() {
    let (source, program, json) = (scratch("small.s"), scratch("small"), scratch("small.json"));
    fs::write(&source, PROGRAM_32).unwrap();
    let flags = ["-m32", "-nostdlib", "-static", "-no-pie", "-o"];
    let built = Command::new("cc").args(flags).args([&program, &source]).output();
    let runs =
        |program: &PathBuf| Command::new(program).status().is_ok_and(|s| s.code() == Some(7));
    if !built.is_ok_and(|built| built.status.success()) || !runs(&program) {
        let _ = writeln!(stderr(), "not run: 32-bit programs cannot be built, or executed, here");
        return;
    }
    let options = ["--quiet", "--json", json.to_str().unwrap()];
    let Output { status, .. } = mayfly(&options, &[program.to_str().unwrap()]).output().unwrap();
    assert_eq!(status.code(), Some(7));
    let trace: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let names: Vec<&str> = trace["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["name"].as_str().unwrap())
        .collect();
    if fs::File::options().write(true).open("/dev/kvm").is_ok() {
        assert_eq!(names, ["open", "KVM_CREATE_VM", "close", "close"]);
    } else {
        assert_eq!(names[0], "open");
    }
}
