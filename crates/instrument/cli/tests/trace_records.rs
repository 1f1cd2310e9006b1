//! What is made of a trace when it is there: a timeline, a report, a page, a comparison.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

#[path = "common/records.rs"]
mod common;

use common::{failure, mayfly, scratch, success, text};

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

/// A trace of this program, kept.
fn traced(scratch: &Path, name: &str, script: &str) -> String {
    let path = scratch.join(name);
    let output =
        mayfly(&["trace", "--quiet", "--json", path.to_str().unwrap(), "--", "sh", "-c", script]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_trace_is_reported_as_it_was_printed_and_with_every_call_if_that_is_wanted() {
    let scratch = scratch("trace-report");
    let path = scratch.join("t.json");
    let program = ["--", "sh", "-c", SLEEPS];
    let printed =
        mayfly(&[&["trace", "--json", path.to_str().unwrap()][..], &program[..]].concat());
    let path = path.to_str().unwrap();
    assert_eq!(success(&["report", path]), text(&printed.stderr));
    let full = success(&["report", "--full", path]);
    assert!(full.starts_with(text(&printed.stderr)), "{full}");
    assert_eq!(full.matches("  sleep, ").count(), 3, "{full}");
    assert_eq!(success(&["report", path, path]).matches("recorded by ").count(), 2);
}

#[test]
fn a_page_of_a_trace_has_its_timeline_first() {
    let scratch = scratch("trace-page");
    let trace = traced(&scratch, "t.json", SLEEPS);
    let page = scratch.join("t.html");
    assert_eq!(success(&["report", &trace, "-o", page.to_str().unwrap()]), "");
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    assert!(page.find("<svg").unwrap() < page.find("<table").unwrap());
    assert!(page.matches("<rect class=\"call\"").count() >= 3, "{page}");
    assert!(failure(&["report", &trace, "-o", &trace], 2).contains("would overwrite it"));
}

#[test]
fn two_traces_are_set_side_by_side_and_held_against_bounds() {
    let scratch = scratch("trace-compare");
    let base = traced(&scratch, "1.json", "sleep 0.01");
    let new = traced(&scratch, "2.json", "sleep 0.01; sleep 0.3; sleep 0.01");
    let text = success(&["compare", &base, &new]);
    let sleeps = text.lines().find(|line| line.starts_with("sleep ")).unwrap();
    assert_eq!(sleeps.split_whitespace().collect::<Vec<_>>(), ["sleep", "1", "3", "+2", "3.00x"]);
    let document: Value =
        serde_json::from_str(&success(&["compare", "--format", "json", &base, &new])).unwrap();
    assert_eq!(document["calls"][0]["name"], "sleep");
    for format in ["csv", "markdown"] {
        assert!(success(&["compare", "--format", format, &base, &new]).contains("sleep"));
    }
    let beyond = |bound: &str| {
        let output = mayfly(&["compare", "--fail-if", bound, &base, &new]);
        assert!(output.status.code() != Some(2) || output.stdout.is_empty());
        output.status.code()
    };
    assert_eq!(beyond("calls.ratio > 1"), Some(1));
    assert_eq!(beyond("total.ratio < 1"), Some(0));
    assert_eq!(beyond("total.ratio > 1"), Some(1));
    assert_eq!(beyond("ratio > 1"), Some(1));
    assert_eq!(beyond("start.ratio > 1"), Some(2), "it has no start");
    assert_eq!(beyond("total > 5ms"), Some(2), "that is no ratio");
}

#[test]
fn a_trace_and_the_record_of_a_run_are_not_mixed() {
    let scratch = scratch("mixed");
    let trace = traced(&scratch, "t.json", "true");
    let record = scratch.join("r.json");
    let text = r#"{"schema": "mayfly.record/1", "results": [],
        "host": {"kernel": "6.18.0", "arch": "x86_64", "cpus": 2, "hz": 250, "kvm": true}}"#;
    fs::write(&record, text).unwrap();
    let record = record.to_str().unwrap();
    for arguments in [
        vec!["report", &trace, record],
        vec!["report", record, &trace],
        vec!["report", record, &trace, "-o", "-"],
        vec!["compare", record, &trace],
        vec!["compare", &trace, record],
    ] {
        let said = failure(&arguments, 2);
        let names = ["t.json", "a trace", "r.json", "the record of a run", "nothing in common"];
        assert!(names.iter().all(|name| said.contains(name)), "{said}");
    }
}

#[test]
fn a_trace_that_is_damaged_or_from_later_is_refused_in_a_line() {
    let scratch = scratch("damaged");
    let path = traced(&scratch, "t.json", "sleep 0.01");
    let mut document = json(Path::new(&path));
    let mut refused = |pointer: &str, value: Value| {
        let before = std::mem::replace(document.pointer_mut(pointer).unwrap(), value);
        fs::write(&path, document.to_string()).unwrap();
        *document.pointer_mut(pointer).unwrap() = before;
        failure(&["report", &path], 2)
    };
    assert!(refused("/schema", "mayfly.trace/9".into()).contains("version 9"));
    assert!(refused("/calls/0/name", 7.into()).contains("calls[0].name"));
    assert!(refused("/calls/0/at", u64::MAX.into()).contains("hundred years"));
}

/// A command that gets this as its standard input.
fn fed(input: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn several_runs_are_a_record_of_medians_that_is_reported_compared_and_bounded() {
    let scratch = scratch("runs");
    let (record, inputs) = (scratch.join("r.json"), scratch.join("inputs"));
    let record = record.to_str().unwrap();
    let script = format!("cat >> {}; {SLEEPS}", inputs.display());
    let runs = |bounds: &[&str]| {
        let options = ["trace", "--recorder", "ptrace", "--runs", "6", "--json", record];
        let program = ["--", "sh", "-c", &script];
        fed("line\n", &[&options[..], bounds, &program].concat())
    };
    let output = runs(&["--fail-if", "total.p50 > 100s", "--fail-if", "wait_own_sleep.p50 > 1ms"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains(": 6 runs\n") && said.contains("\ntotal "), "{said}");
    // Each run had the whole of the input.
    assert_eq!(fs::read_to_string(&inputs).unwrap(), "line\n".repeat(6));
    let written = json(Path::new(record));
    assert_eq!(written["schema"], "mayfly.record/1");
    let row = &written["results"][0];
    assert_eq!((&row["experiment"], &row["counters"]["runs"]), (&"trace".into(), &6.into()));
    let total = &row["metrics"]["total"];
    assert_eq!((&total["count"], &total["rounds"]), (&6.into(), &6.into()));
    assert!(total["p50_interval"].is_array() && total["p50"].as_u64() >= Some(30_000_000));
    assert!(success(&["report", record]).contains("total"));
    assert!(success(&["compare", record, record]).contains("metrics compared: 0 more or slower"));
    let output = runs(&["--quiet", "--fail-if", "total.p50 > 1ms"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("total.p50 > 1ms: trace.kvm.program.total.p50 is"));
}

#[test]
fn what_several_runs_cannot_be_is_refused_before_the_first() {
    for (options, code) in [
        (&["--runs", "1"][..], 2),
        (&["--runs", "2", "--prove"], 2),
        (&["--runs", "2", "--fail-if", "wait_nothing > 1ms"], 2),
        (&["--fail-if", "wait_own_sleep > 1ms"], 2),
        (&["--from", "nowhere"], 2),
        (&["--fail-if", "vm1.start > 1ms"], 3),
    ] {
        let program = ["--", "true"];
        let output = fed("", &[&["trace", "--quiet"][..], options, &program].concat());
        assert_eq!(output.status.code(), Some(code), "{options:?}: {}", text(&output.stderr));
    }
}
