//! `mayfly laws`, as a person and as another program see it.

use std::fs;
use std::io::{Write, stderr};

use mayfly_kvm::Kvm;
use serde_json::Value;

#[path = "common/records.rs"]
mod common;

use common::{failure, scratch, success, text};

#[test]
fn what_it_is_told_wrong_is_said_before_anything_is_measured() {
    let said = failure(&["laws", "exit", "--against", "irqfds"], 2);
    assert!(
        said.contains("exit is not measured against irqfds; there are exit/slots, exit/logged-slots, exit/ioeventfds"),
        "{said}"
    );
    for wrong in [
        &["laws", "create-wm"][..],
        &["laws", "--against", "mapping"],
        &["laws", "--rounds", "4"],
        &["laws", "--rounds", "many"],
        &["laws", "--quiet", "--full"],
        &["laws", "--quiet"],
        &["laws", "--list", "--json", "x"],
    ] {
        failure(wrong, 2);
    }
    for option in ["--seed", "--rounds", "--up-to"] {
        let said = failure(&["laws", option, "-1"], 2);
        assert!(said.contains(&format!("'-1' for '{option} <N>'")), "{said}");
    }
    let said = failure(&["laws", "create-vm", "--json", "/nonexistent/laws.json"], 1);
    assert!(said.contains("/nonexistent/laws.json"), "{said}");
}

#[test]
fn what_would_be_measured_is_listed_call_by_call() {
    let all = success(&["laws", "--list"]);
    assert!(all.lines().count() > 30, "{all}");
    let some = success(&["laws", "close-vm", "create-vm", "--against", "age", "--list"]);
    assert_eq!(some, "close-vm/age\n");
}

/// What this host's calls take is whatever it is. But every kernel that has MMU notifiers locks all mappings of the process
/// when a VM is created.
#[test]
fn a_call_is_measured_told_and_written() {
    if let Err(error) = Kvm::open() {
        let _ = writeln!(stderr(), "not run: {error}");
        return;
    }
    let file = scratch("laws").join("laws.json");
    let path = file.to_str().unwrap();
    let told = success(&[
        "laws",
        "create-vm",
        "--against",
        "mappings",
        "--rounds",
        "5",
        "--full",
        "--json",
        path,
    ]);
    assert!(
        told.contains("\ncreate-vm/mappings (KVM_CREATE_VM), mappings of the process\n"),
        "{told}"
    );
    let kept: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(kept["schema"], "mayfly.laws/1");
    let law = &kept["laws"][0];
    assert_eq!((&law["call"], &law["dimension"]), (&"create-vm".into(), &"mappings".into()));
    let points = law["points"].as_array().unwrap();
    let median = |point: &Value| {
        let mut all: Vec<u64> =
            point["cpu_ns"].as_array().unwrap().iter().map(|time| time.as_u64().unwrap()).collect();
        assert_eq!(all.len(), 5);
        all.sort_unstable();
        all[2]
    };
    let (first, last) = (&points[0], &points[points.len() - 1]);
    assert!(last["n"].as_u64().unwrap() >= 100 * first["n"].as_u64().unwrap());
    assert!(median(last) > median(first), "{last} beside {first}");
    assert!(points.iter().filter(|point| point["held_out"] == true).count() >= 2);
    assert!(law["law"]["shape"].is_string(), "{law}");
}

#[test]
fn a_call_that_this_process_has_no_files_for_is_skipped_with_the_reason() {
    if let Err(error) = Kvm::open() {
        let _ = writeln!(stderr(), "not run: {error}");
        return;
    }
    // A shell, for the limit is to be the command's alone.
    let mut shell = std::process::Command::new("sh");
    let command = r#"ulimit -n 120 && exec "$0" laws add-irqfd --against irqfds"#;
    let output = shell.args(["-c", command, env!("CARGO_BIN_EXE_mayfly")]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let told = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("by the files that are left (RLIMIT_NOFILE), and a law needs 100"));
    assert!(text(&output.stderr).contains("nothing that was asked for could run"));
}

#[test]
fn a_bound_that_nothing_can_be_meant_by_is_refused_before_anything_is_measured() {
    for (bound, said) in [
        ("create-vm/mappings.at(10) > 4", "is a time"),
        ("create-vm/mappings.exponent > 4ms", "is not a time"),
        ("create-vm/mappings.p50 > 4ms", "names no figure of a law"),
        ("create-wm/mappings.growth > 4", "--list has all"),
        ("close-vm/mappings.growth > 4", "is not among what is to be measured"),
        ("create-vm/mappings.growth", "is not a threshold"),
    ] {
        let wrong = failure(&["laws", "create-vm", "--fail-if", bound], 2);
        assert!(wrong.contains(said), "{wrong}");
    }
}
