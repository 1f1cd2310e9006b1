//! `scripts/trace-branches`, the work of `action.yml`: what it compares, and when it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::Deserialize;

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

// What a composite action may have, as far as it is used here. Any other field is refused.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Action {
    name: String,
    description: String,
    branding: Branding,
    inputs: BTreeMap<String, Input>,
    outputs: BTreeMap<String, Result_>,
    runs: Runs,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Branding {
    icon: String,
    color: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    description: String,
    #[serde(default)]
    required: bool,
    default: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Result_ {
    description: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Runs {
    using: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    name: String,
    id: Option<String>,
    r#if: Option<String>,
    /// A step of a composite action has to say it.
    shell: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    run: String,
}

impl Step {
    /// Names of variables that its script uses and does not set.
    fn variables(&self) -> BTreeSet<&str> {
        let is_name = |c: char| c.is_ascii_uppercase() || c == '_';
        let uses = self.run.split('$').skip(1).map(|rest| rest.trim_start_matches('{'));
        let names = uses.map(|rest| rest.split(|c| !is_name(c)).next().unwrap_or_default());
        names.filter(|name| name.len() > 1).collect()
    }
}

fn action(text: &str) -> Result<Action, serde_yaml_ng::Error> {
    serde_yaml_ng::from_str(text)
}

#[test]
fn the_action_has_known_fields_alone_and_its_scripts_are_ones_that_the_shell_takes() {
    let action = action(ACTION).unwrap();
    assert_eq!((&action.name[..], &action.runs.using[..]), ("Mayfly", "composite"));
    assert!(!action.description.is_empty());
    assert_eq!((&action.branding.icon[..], &action.branding.color[..]), ("clock", "orange"));
    for (name, Input { description, required, default }) in &action.inputs {
        assert!(!description.is_empty() && *required == default.is_none(), "{name}");
    }
    // What GitHub sets in each step (docs.github.com, "Variables").
    let given = [
        "GITHUB_ACTION_PATH",
        "GITHUB_OUTPUT",
        "GITHUB_REPOSITORY",
        "GITHUB_STEP_SUMMARY",
        "RUNNER_TEMP",
    ];
    for step in &action.runs.steps {
        assert_eq!(step.shell, "bash", "{}", step.name);
        let checked = Command::new("bash").args(["-n", "-c", &step.run]).output().unwrap();
        assert!(checked.status.success(), "{}: {}", step.name, text(&checked.stderr));
        let own: BTreeSet<&str> = step.env.keys().map(String::as_str).chain(given).collect();
        let unknown: Vec<&str> = step.variables().difference(&own).copied().collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", step.name);
        // Text of a pull request in a script would be run.
        assert!(!step.run.contains("${{"), "{}", step.name);
    }
}

#[test]
fn what_a_step_of_the_action_takes_from_another_or_from_this_repository_is_there() {
    let action = action(ACTION).unwrap();
    let steps = &action.runs.steps;
    let outputs = action.outputs.values();
    assert!(outputs.clone().all(|one| !one.description.is_empty()));
    let mut taken = 0;
    let mut check = |text: &str, before: &[Step]| {
        for rest in text.split("steps.").skip(1) {
            let (id, rest) = rest.split_once(".outputs.").expect("only outputs are taken");
            let output = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next();
            let from = before.iter().find(|one| one.id.as_deref() == Some(id)).expect(id);
            let set = format!("{}=", output.unwrap());
            let mut lines = from.run.lines();
            assert!(
                lines.any(|line| line.contains(&set) && line.contains("GITHUB_OUTPUT")),
                "{set}"
            );
            taken += 1;
        }
    };
    outputs.for_each(|one| check(&one.value, steps));
    for (number, step) in steps.iter().enumerate() {
        let texts = step.r#if.iter().chain(step.env.values());
        texts.for_each(|text| check(text, &steps[..number]));
    }
    assert_eq!(taken, 5);
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let ours = steps.iter().flat_map(|step| step.run.split("$GITHUB_ACTION_PATH/").skip(1));
    let paths: Vec<&str> = ours.filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(paths, ["crates/instrument/cli", "scripts/trace-branches"]);
    assert!(paths.iter().all(|path| top.join(path).exists()));
    assert!(top.join(paths[0]).join("Cargo.toml").is_file());
}

#[test]
fn an_action_with_a_field_that_is_misspelt_or_stands_twice_is_refused() {
    for (right, wrong) in [
        ("      shell: bash\n", ""),
        ("    required: true", "    require: true"),
        ("      shell: bash\n", "      shell: bash\n      shell: sh\n"),
        ("using: composite", "uses: composite"),
    ] {
        let changed = ACTION.replacen(right, wrong, 1);
        assert!(changed != ACTION && action(&changed).is_err(), "{wrong}");
    }
}
