//! What the Makefile refuses, before it installs or runs anything.

mod here;

use std::process::{Command, Output};

use here::here;

/// Of both architectures, and of arm64 alone.
const BOTH: [&str; 3] = ["metal", "metal-test", "metal-run"];
const ARM64: [&str; 6] =
    ["metal-load", "metal-fuzz", "metal-serve", "metal-fork", "metal-merge", "metal-cuts"];

/// What `make` would run for a target; of its variables, those of a `make` that runs this test are not passed on.
fn make(target: &str, architecture: Option<&str>) -> Output {
    let mut make = Command::new("make");
    make.args(["--no-print-directory", "-n", target]).current_dir(here());
    for name in ["ARCH", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL"] {
        make.env_remove(name);
    }
    make.args(architecture.map(|architecture| format!("ARCH={architecture}")));
    make.output().unwrap()
}

fn is_refused(target: &str, architecture: &str, why: &str) {
    let Output { status, stdout, stderr } = make(target, Some(architecture));
    let (said, why_not) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(!status.success() && said.is_empty(), "{target}: {said}");
    assert!(why_not.contains(why) && why_not.lines().count() == 1, "{target}: {why_not}");
}

#[test]
fn an_architecture_that_there_is_not_is_refused_and_none_is_taken_in_its_place() {
    for target in BOTH {
        for architecture in ["amd64", "aarch64", "x86-64", ""] {
            let why = format!("ARCH is arm64 or x86_64, and not '{architecture}'");
            is_refused(target, architecture, &why);
        }
    }
}

#[test]
fn what_is_of_arm64_alone_is_refused_of_another() {
    for target in ARM64 {
        for architecture in ["amd64", "x86_64"] {
            let why = format!("{target} has arm64 alone, and not ARCH='{architecture}'");
            is_refused(target, architecture, &why);
        }
    }
}

#[test]
fn what_there_is_is_run() {
    let is_run = |target: &str, architecture| {
        let output = make(target, architecture);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("scripts/metal"), "{target}: {output:?}");
        said
    };
    for target in BOTH.into_iter().chain(ARM64) {
        assert_eq!(is_run(target, None), is_run(target, Some("arm64")));
    }
    for target in BOTH {
        is_run(target, Some("x86_64"));
    }
    assert!(is_run("metal", Some("x86_64")).contains("scripts/metal-x86 run"));
    assert!(make("help", Some("amd64")).status.success(), "it has no architecture");
}
