//! `mayfly doctor --pid`: what is said of a process that runs, that has ended, and that may not be looked at.

use std::fs;
use std::io::{Read, Write, stderr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use mayfly_laws::{Call, Dimension, Document, Entry, Law, Pair, Point, SCHEMA, Series, Shape};
use mayfly_record::Host;
use rustix::process::geteuid;

#[path = "common/records.rs"]
mod common;

use common::{failure, mayfly, scratch, success, text};

/// A program that waits for its input, and is ended with the test.
struct Sleeper(Child);

impl Sleeper {
    /// One that has said something: it is loaded, and maps nothing any more.
    fn new() -> Self {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"a").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file with the law that a VM takes 100 us, and 1 ms more for each mapping, up to so many.
fn laws(name: &str, to: u64) -> PathBuf {
    let law = Law {
        shape: Shape::Linear { base: 1e5, factor: 1e6 },
        others: Vec::new(),
        exponent: None,
        growth: None,
        unsure: None,
        held_out: 0.01,
        holds: true,
        millisecond: None,
    };
    let point =
        |n| Point { n, held_out: false, wall_ns: vec![5], cpu_ns: vec![5], queued_ns: vec![0] };
    let entry = Entry {
        pair: Pair { call: Call::CreateVm, dimension: Dimension::Mappings },
        series: Series { points: vec![point(1), point(to)], ..Series::default() },
        law: Some(law),
        work: None,
        skipped: None,
    };
    let document = Document {
        schema: SCHEMA.to_owned(),
        host: Host { kernel: "0.0.0".into(), ..Host::default() },
        tick_ns: None,
        rounds: 1,
        seed: 1,
        settled_ns: 40_000_000,
        laws: vec![entry],
    };
    let file = scratch(name).join("laws.json");
    fs::write(&file, document.to_json()).unwrap();
    file
}

/// In one line.
fn joined(told: &str) -> String {
    told.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_process_is_told_by_its_mappings_and_never_beyond_what_was_measured() {
    let sleeper = Sleeper::new();
    let pid = sleeper.pid();
    let told = |to: u64| {
        let file = laws(&format!("doctor-pid-{to}"), to);
        success(&["doctor", "--pid", &pid, "--laws", file.to_str().unwrap()])
    };
    let count = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines().count();
    let within = joined(&told(30_000));
    assert!(
        within.contains(&format!("Process {pid} (cat) has {count} mappings, no VM.")),
        "{within}"
    );
    let takes = format!(
        "With its {count} mappings, KVM_CREATE_VM takes about {count} ms (with 1 mapping, 1.1 ms)."
    );
    assert!(within.contains(&takes), "{within}");
    assert!(within.contains("It was measured on another host (kernel: 0.0.0 and "), "{within}");
    let beyond = joined(&told(3));
    assert!(beyond.contains("KVM_CREATE_VM takes 3.1 ms with 3 mappings."), "{beyond}");
    assert!(beyond.contains("beyond what was measured nothing is known"), "{beyond}");
}

#[test]
fn programs_read_what_is_said_of_a_process_as_json() {
    let sleeper = Sleeper::new();
    let pid = sleeper.pid();
    let file = laws("doctor-pid-json", 30_000);
    let file = file.to_str().unwrap();
    let output = mayfly(&["doctor", "--pid", &pid, "--laws", file, "--json", "-"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // The text is the same, on the other stream.
    assert!(text(&output.stderr).starts_with(&format!("Process {pid} (cat) has ")));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], "mayfly.doctor-pid/1");
    let process = &json["process"];
    let count = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines().count() as u64;
    let has = (&process["program"], &process["mappings"], &process["vms"], &process["eventfds"]);
    assert_eq!(has, (&"cat".into(), &count.into(), &0.into(), &0.into()));
    assert_eq!((&json["laws"], &json["host"]["kernel"]), (&file.into(), &"0.0.0".into()));
    assert!(json["of_other_host"][0].as_str().unwrap().starts_with("kernel: "), "{json}");
    let call = serde_json::json!({
        "call": "create-vm", "dimension": "mappings", "n": count, "verdict": "grows",
        "at_ns": 100_000 + count * 1_000_000, "few": 1, "few_ns": 1_100_000,
    });
    assert_eq!(json["calls"], serde_json::json!([call]));
    let quiet = mayfly(&["doctor", "--pid", &pid, "--laws", file, "--json", "-", "--quiet"]);
    assert_eq!((text(&quiet.stderr), quiet.stdout == output.stdout), ("", true));
}

#[test]
fn a_process_that_is_not_there_or_has_ended_is_said_in_a_line() {
    let file = laws("doctor-pid-ended", 100);
    let file = file.to_str().unwrap();
    let said = failure(&["doctor", "--pid", "2147483647", "--laws", file], 1);
    assert!(said.contains("there is no process 2147483647"), "{said}");
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id().to_string();
    let status = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    while !status().contains("\nState:\tZ") {
        std::thread::yield_now();
    }
    let said = failure(&["doctor", "--pid", &pid, "--laws", file], 1);
    child.wait().unwrap();
    assert!(said.contains(&format!("process {pid} has ended")), "{said}");
}

#[test]
fn a_process_with_nothing_that_matters_is_told_that_nothing_was_measured() {
    // A thread of the kernel's: it has no mappings, and no VM.
    let is_there = fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n");
    if !is_there || !geteuid().is_root() {
        let _ = writeln!(stderr(), "not run: only root on a host sees a thread of the kernel's");
        return;
    }
    let told = joined(&success(&["doctor", "--pid", "2"]));
    assert!(told.starts_with("Process 2 (kthreadd) has no VM."), "{told}");
    assert!(told.contains("it has none: it has ended, or is the kernel's"), "{told}");
    assert!(told.ends_with("no call of KVM is known to take more by what it has."), "{told}");
    assert!(!told.contains("VMs made here"), "{told}");
}

#[test]
fn a_process_of_another_user_is_said_to_be_closed() {
    if !geteuid().is_root() {
        let _ = writeln!(stderr(), "not run: only root can be another user");
        return;
    }
    let file = laws("doctor-pid-closed", 100);
    // Where another user may read it.
    let readable = std::env::temp_dir().join(format!("mayfly-laws-{}.json", std::process::id()));
    let program = std::env::temp_dir().join(format!("mayfly-{}", std::process::id()));
    fs::copy(file, &readable).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_mayfly"), &program).unwrap();
    let sleeper = Sleeper::new();
    let mut command = Command::new(&program);
    command.args(["doctor", "--pid", &sleeper.pid(), "--laws"]).arg(&readable);
    let output = command.uid(65_534).gid(65_534).output();
    fs::remove_file(&readable).unwrap();
    fs::remove_file(&program).unwrap();
    let output = output.unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("the mappings of process ") && said.contains("Permission denied"),
        "{said}"
    );
    assert!(said.contains("run this command as that process's user, or as root"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_file_without_laws_and_options_of_the_other_examination_are_refused() {
    let sleeper = Sleeper::new();
    let pid = sleeper.pid();
    let file = scratch("doctor-pid-other").join("other.json");
    fs::write(&file, r#"{"schema": "mayfly.record/1"}"#).unwrap();
    let said = failure(&["doctor", "--pid", &pid, "--laws", file.to_str().unwrap()], 2);
    assert!(said.contains("not \"mayfly.laws/1\""), "{said}");
    fs::write(&file, r#"{"schema": "mayfly.laws/2"}"#).unwrap();
    let said = failure(&["doctor", "--pid", &pid, "--laws", file.to_str().unwrap()], 2);
    assert!(said.contains("version 2 of mayfly.laws"), "{said}");
    fs::write(&file, r#"{"schema": "mayfly.laws/1""#).unwrap();
    let said = failure(&["doctor", "--pid", &pid, "--laws", file.to_str().unwrap()], 2);
    assert!(said.contains("is not JSON: EOF while parsing"), "{said}");
    for wrong in [
        &["doctor", "--laws", "laws.json"][..],
        &["doctor", "--pid", "0"],
        &["doctor", "--pid", "-1"],
        &["doctor", "--pid", &pid, "--openmetrics", "-"],
        &["doctor", "--pid", &pid, "--fail-if", "waits > 0"],
        &["doctor", "--pid", &pid, "--laws", "/nonexistent/laws.json"],
    ] {
        failure(wrong, 2);
    }
}
