//! `scripts/trace-branches`, the work of `action.yml`: what it compares, and when it fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

#[path = "common/records.rs"]
mod common;

use common::{scratch, text};

const ACTION: &str = include_str!("../../../../action.yml");
const SCRIPT: &str = include_str!("../../../../scripts/trace-branches");

fn git(directory: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]);
    let output = command.args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
}

/// A repository whose last commit but one has a program that ends with 3, and the last one that ends well.
fn repository(name: &str) -> PathBuf {
    let top = scratch(name);
    git(&top, &["init", "--quiet"]);
    for program in ["exit 3\n", "sleep 0.01\n", "sleep 0.01 # the same\n"] {
        fs::write(top.join("vmm"), program).unwrap();
        git(&top, &["add", "vmm"]);
        git(&top, &["commit", "--quiet", "--message", "a"]);
    }
    top
}

fn run(top: &Path, variables: &[(&str, &str)]) -> (Output, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/trace-branches");
    let mut command = Command::new(script);
    command.arg("results").current_dir(top).stdin(Stdio::null());
    command.env("MAYFLY", env!("CARGO_BIN_EXE_mayfly")).env("COMMAND", "sh vmm");
    command.envs([("RUNS", "2"), ("RECORDER", "ptrace")]);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let comment = fs::read_to_string(top.join("results/comment.md")).unwrap_or_default();
    (output, comment)
}

#[test]
fn a_branch_is_compared_with_its_base_and_fails_at_its_bounds() {
    let top = repository("branches");
    let (output, comment) = run(&top, &[("BASE", "HEAD^"), ("FAIL_IF", "total.p50 > 100s")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(comment.contains("`sh vmm`, 2 runs each") && comment.contains("| total"), "{comment}");
    assert!(comment.contains("8 metrics compared") || comment.contains(" compared: "), "{comment}");
    // The second of the bounds is not kept.
    let bounds = "total.p50 > 100s\ntotal.p50 > 1ms\n";
    let (output, comment) = run(&top, &[("BASE", "HEAD^"), ("FAIL_IF", bounds)]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(comment.contains("**Failed:** total.p50 > 1ms: "), "{comment}");
    assert!(comment.contains("| total"), "{comment}");
    let left = Command::new("git").args(["worktree", "list"]).current_dir(&top).output().unwrap();
    assert_eq!(text(&left.stdout).lines().count(), 1);
}

#[test]
fn without_a_base_that_runs_nothing_is_compared_and_bounds_hold_all_the_same() {
    let top = repository("no-base");
    for (base, why) in [
        ("", "There is no base to compare with."),
        ("nowhere", "could not be checked out"),
        ("HEAD^^", "could not be built or run"),
    ] {
        let (output, comment) = run(&top, &[("BASE", base)]);
        assert_eq!(output.status.code(), Some(0), "{base}: {}", text(&output.stderr));
        assert!(comment.contains(why) && !comment.contains("| total"), "{base}: {comment}");
        assert!(!top.join("results/base.json").exists(), "{base}");
        let (output, _) = run(&top, &[("BASE", base), ("FAIL_IF", "total.p50 > 1ms")]);
        assert_eq!(output.status.code(), Some(1), "{base}");
    }
}

#[test]
fn a_command_or_a_build_that_fails_is_the_script_s_end() {
    let top = repository("fails");
    let (output, comment) = run(&top, &[("COMMAND", "echo why it failed; exit 7")]);
    assert_eq!(output.status.code(), Some(7));
    assert!(text(&output.stderr).contains("why it failed"), "{}", text(&output.stderr));
    assert!(comment.contains("**Failed:**"), "{comment}");
    let (output, _) = run(&top, &[("BUILD", "false")]);
    assert_eq!(output.status.code(), Some(1));
    let (output, _) = run(&top, &[("BUILD", "test -e vmm"), ("MAYFLY", "/nowhere/mayfly")]);
    assert_eq!(output.status.code(), Some(127));
}

#[test]
fn the_action_names_no_input_and_no_variable_that_is_not_there() {
    let declared = |name: &str| ACTION.contains(&format!("\n  {name}:\n    description: "));
    let uses = ACTION.split("inputs.").skip(1);
    let names: Vec<&str> = uses
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_lowercase() && c != '-').next())
        .collect();
    assert!(names.len() > 8 && names.iter().all(|name| declared(name)), "{names:?}");
    for name in
        ["MAYFLY", "COMMAND", "BUILD", "RUNS", "FAIL_IF", "FAIL_IF_SLOWER", "BASE", "RECORDER"]
    {
        assert!(ACTION.contains(&format!("\n        {name}: ")), "{name}");
        assert!(
            SCRIPT.contains(&format!("${{{name}")) || SCRIPT.contains(&format!("${name}")),
            "{name}"
        );
    }
}
