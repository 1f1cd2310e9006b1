//! What is made of a trace when it is there: a timeline.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn mayfly(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The one line that a command says which fails with `code`.
fn failure(arguments: &[&str], code: i32) -> String {
    let output = mayfly(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.starts_with("mayfly: ") && said.lines().count() == 1, "{said}");
    said.to_owned()
}

/// A directory of a test's own, in one that goes with the build.
fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A program whose processes sleep, the one while the other does.
const SLEEPS: &str = "sleep 0.03 & sleep 0.02; sleep 0.01; wait";

#[test]
fn a_timeline_has_each_call_of_the_record_once_with_its_time_and_thread() {
    let scratch = scratch("timeline");
    let (record, timeline) = (scratch.join("t.json"), scratch.join("t.perfetto.json"));
    let options = ["trace", "--quiet", "--json", record.to_str().unwrap(), "--timeline"];
    let program = [timeline.to_str().unwrap(), "--", "sh", "-c", SLEEPS];
    let output = mayfly(&[&options[..], &program[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (record, timeline) = (json(&record), json(&timeline));
    let ns = |time: &Value| (time.as_f64().unwrap() * 1e3).round() as i64;
    let events = timeline["traceEvents"].as_array().unwrap();
    let mut shown: Vec<_> = events
        .iter()
        .filter(|one| one["cat"] == "call" || one["cat"] == "kvm")
        .map(|one| {
            let times = (ns(&one["ts"]), Some(ns(&one["dur"])));
            (one["pid"].as_i64(), one["tid"].as_i64(), times, one["name"].as_str())
        })
        .collect();
    let mut recorded: Vec<_> = record["calls"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|call| call["took"].is_u64())
        .map(|call| {
            let times = (call["at"].as_i64().unwrap(), call["took"].as_i64());
            (call["pid"].as_i64(), call["tid"].as_i64(), times, call["name"].as_str())
        })
        .collect();
    let sleeps = recorded.iter().filter(|(.., name)| *name == Some("sleep")).count();
    assert_eq!(sleeps, 3, "{recorded:?}");
    assert_eq!(record["calls"].as_array().unwrap().len(), shown.len());
    shown.retain(|one| recorded.contains(one));
    shown.sort();
    recorded.sort();
    assert_eq!(shown, recorded);
    let phases = events.iter().filter(|one| one["cat"] == "phase").count();
    assert_eq!(phases, record["phases"].as_array().unwrap().len());
    assert!(phases > 0);
}

#[test]
fn a_timeline_that_cannot_be_kept_is_said_before_or_after_and_costs_the_program_nothing() {
    let scratch = scratch("no-timeline");
    let (ran, record) = (scratch.join("ran"), scratch.join("t.json"));
    let (touch, record) = (format!("touch {}", ran.display()), record.to_str().unwrap());
    let fails = |options: &[&str], code| {
        let program = ["--", "sh", "-c", &touch];
        failure(&[&["trace", "--quiet"][..], options, &program[..]].concat(), code)
    };
    let said = fails(&["--timeline", "/no/such/directory/t.json"], 1);
    assert!(said.contains("/no/such/directory"), "{said}");
    fails(&["--timeline", "-", "--json", "-"], 2);
    fails(&["--timeline", record, "--json", record], 2);
    assert!(!ran.exists());
    fails(&["--timeline", "/dev/full", "--json", record], 1);
    assert!(ran.exists() && json(Path::new(record))["calls"].is_array());
}
