//! Which crates import which, and what the rules say of it.

mod common;
mod here;

use std::path::Path;

use common::{repository, write};
use here::here;
use mayfly_structure::imports;
use tempfile::TempDir;

/// Two crates in core, and one in each of three folders more.
const RULES: &str = r#"
[folders]
core = []
hosted = ["core"]
metal = ["core"]
instrument = ["core", "hosted", "metal/steps"]

[crates.core]
platform = []
vm = ["platform"]

[crates.hosted]
machine = []

[crates.metal]
arm64 = []
steps = []

[crates.instrument]
cli = []
"#;

const SHARED: &str = r#"
[workspace]
members = ["crates/*/*"]

[workspace.dependencies]
mayfly-platform = { path = "crates/core/platform" }
mayfly-vm = { path = "crates/core/vm" }
mayfly-machine = { path = "crates/hosted/machine" }
mayfly-arm64 = { path = "crates/metal/arm64" }
mayfly-steps = { path = "crates/metal/steps" }
disguised = { package = "mayfly-machine", path = "crates/hosted/machine" }
serde = "1"
"#;

/// A repository that follows its rules, with this added to a crate's manifest and this to the rules.
fn planted(package: &str, dependencies: &str, rules: &str) -> TempDir {
    let root =
        repository(&[("Cargo.toml", SHARED), ("crates/imports.toml", &format!("{RULES}{rules}"))]);
    for (path, own) in [
        ("core/platform", "[dependencies]\nserde = \"1\"\n"),
        ("core/vm", "[dependencies]\nmayfly-platform.workspace = true\n"),
        (
            "hosted/machine",
            "[target.'cfg(unix)'.dependencies]\nmayfly-vm = { workspace = true, features = [] }\n",
        ),
        (
            "metal/arm64",
            "[target.'cfg(any())'.dev-dependencies]\nmayfly-vm = { path = \"../../core/vm\" }\n",
        ),
        ("metal/steps", ""),
        ("instrument/cli", "[build-dependencies]\nmayfly-steps.workspace = true\n"),
    ] {
        let name = path.rsplit('/').next().unwrap();
        let more = if path == package { dependencies } else { "" };
        let manifest = format!("[package]\nname = \"mayfly-{name}\"\n{own}{more}");
        write(root.path(), &format!("crates/{path}/Cargo.toml"), &manifest);
    }
    root
}

fn faults(root: &Path) -> Vec<String> {
    imports::check(root).unwrap().faults.iter().map(ToString::to_string).collect()
}

#[test]
fn the_crates_of_this_repository_import_what_the_rules_allow() {
    let faults = faults(here());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn what_follows_the_rules_has_no_fault() {
    let root = planted("", "", "");
    assert_eq!(faults(root.path()), Vec::<String>::new());
}

#[test]
fn an_import_that_no_rule_allows_is_found_in_every_section_by_every_name() {
    let machine = "mayfly-machine.workspace = true";
    for (package, section, dependency) in [
        // Upwards, from a folder to one above it.
        ("core/platform", "[dev-dependencies]", machine),
        ("core/platform", "[build-dependencies]", machine),
        ("core/platform", "[build_dependencies]", machine),
        ("core/platform", "[dev_dependencies]", machine),
        ("core/platform", "[target.'cfg(target_os = \"linux\")'.dependencies]", machine),
        ("core/platform", "[target.'cfg(target_os = \"linux\")'.dev-dependencies]", machine),
        ("core/platform", "[target.'cfg(target_os = \"linux\")'.build-dependencies]", machine),
        ("core/platform", "[target.x86_64-unknown-linux-gnu.dependencies]", machine),
        ("metal/steps", "[dependencies]", machine),
        // Upwards within a folder.
        ("core/platform", "[dev-dependencies]", "mayfly-vm = { workspace = true }"),
        // Across: hosted and metal never import each other.
        ("hosted/machine", "[dependencies]", "mayfly-arm64.workspace = true"),
        ("metal/arm64", "[dependencies]", machine),
        // One crate of a folder is allowed, and no other.
        ("instrument/cli", "[dependencies]", "mayfly-arm64.workspace = true"),
        // By another name, here and in the workspace.
        (
            "metal/arm64",
            "[dependencies]",
            "other = { package = \"mayfly-machine\", version = \"0.1\" }",
        ),
        ("metal/arm64", "[dependencies]", "disguised.workspace = true"),
        // By a path of its own.
        ("metal/arm64", "[dependencies]", "other = { path = \"../../hosted/machine\" }"),
        (
            "metal/arm64",
            "[dependencies]",
            "other = { path = \"../../../crates/hosted/./machine\" }",
        ),
        // By a version, as from a registry.
        ("metal/arm64", "[dependencies]", "mayfly-machine = \"0.1\""),
        // As a table of its own.
        ("metal/arm64", "[dependencies.mayfly-machine]", "workspace = true"),
    ] {
        let text = format!("{section}\n{dependency}\n");
        let root = planted(package, &text, "");
        let faults = faults(root.path());
        assert_eq!(faults.len(), 1, "{package}: {text}{faults:?}");
        let place = format!("crates/{package}/Cargo.toml:");
        assert!(faults[0].starts_with(&place), "{}", faults[0]);
        assert!(faults[0].contains(&format!("does not let {package} import ")), "{}", faults[0]);
    }
}

#[test]
fn a_fault_names_the_line_and_the_section() {
    let root = planted(
        "core/vm",
        "[dev-dependencies]\nserde = \"1\"\nmayfly-machine.workspace = true\n",
        "",
    );
    let faults = faults(root.path());
    let begins = "crates/core/vm/Cargo.toml:7: [dev-dependencies] has `mayfly-machine`, and crates/imports.toml does not \
                  let core/vm import hosted/machine";
    assert!(faults[0].starts_with(begins), "{}", faults[0]);
}

const EXCEPTION: &str =
    "[[exception]]\ncrate = \"core/vm\"\nimports = \"hosted/machine\"\nwhy = \"tests run on it\"\n";

#[test]
fn an_exception_lets_a_dev_dependency_import_upwards_and_no_other() {
    let allowed =
        planted("core/vm", "[dev-dependencies]\nmayfly-machine.workspace = true\n", EXCEPTION);
    assert_eq!(faults(allowed.path()), Vec::<String>::new());

    let not_dev = planted("core/vm", "mayfly-machine.workspace = true\n", EXCEPTION);
    assert_eq!(faults(not_dev.path()).len(), 2, "the import, and the exception that nothing needs");

    let other = planted(
        "core/platform",
        "[dev-dependencies]\nmayfly-machine.workspace = true\n",
        EXCEPTION,
    );
    assert_eq!(faults(other.path()).len(), 2);
}

#[test]
fn an_exception_that_nothing_needs_is_a_fault() {
    let root = planted("", "", EXCEPTION);
    let faults = faults(root.path());
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].starts_with("crates/imports.toml:21: no dev-dependency needs the exception"),
        "{}",
        faults[0]
    );
}

#[test]
fn an_exception_has_a_reason() {
    let rules = EXCEPTION.replace("tests run on it", " ");
    let root = planted("core/vm", "[dev-dependencies]\nmayfly-machine.workspace = true\n", &rules);
    let faults = faults(root.path());
    assert_eq!(faults.len(), 1);
    assert!(faults[0].contains("an exception without a reason"), "{}", faults[0]);

    let missing = EXCEPTION.replace("why = \"tests run on it\"\n", "");
    let root = planted("", "", &missing);
    let fault = imports::check(root.path()).unwrap_err().to_string();
    assert!(fault.contains("missing field `why`"), "{fault}");
}

#[test]
fn a_crate_that_no_rule_names_is_a_fault() {
    for path in ["core/new", "elsewhere/new"] {
        let root = planted("", "", "");
        let manifest = format!("crates/{path}/Cargo.toml");
        write(root.path(), &manifest, "[package]\nname = \"mayfly-new\"\n");
        let faults = faults(root.path());
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(
            faults[0].starts_with(&format!("{manifest}: is named by no rule")),
            "{}",
            faults[0]
        );
    }
}

#[test]
fn a_manifest_that_is_not_where_crates_are_is_a_fault() {
    for path in ["crates/new", "crates/core/vm/fuzz"] {
        let root = planted("", "", "");
        write(root.path(), &format!("{path}/Cargo.toml"), "[package]\nname = \"new\"\n");
        let faults = faults(root.path());
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].starts_with(&format!("{path}/Cargo.toml: ")), "{}", faults[0]);
    }
}

#[test]
fn a_path_to_what_is_no_crate_is_a_fault() {
    let root = planted("core/vm", "new = { path = \"../../../elsewhere\" }\n", "");
    let faults = faults(root.path());
    assert_eq!(faults.len(), 1);
    assert!(faults[0].contains("`new` from elsewhere, which is no crate"), "{}", faults[0]);
}

#[test]
fn rules_that_are_wrong_are_faults() {
    for (from, to, what) in [
        ("vm = [\"platform\"]", "vm = [\"gone\"]", "names gone"),
        ("platform = []", "platform = [\"vm\"]", "an order"),
        ("hosted = [\"core\"]", "hosted = [\"core\", \"gone\"]", "import gone"),
        ("\"metal/steps\"", "\"metal/steps\", \"metal/gone\"", "import metal/gone"),
        ("steps = []", "steps = []\ngone = []", "names gone"),
    ] {
        let root = planted("", "", "");
        write(root.path(), "crates/imports.toml", &RULES.replace(from, to));
        let faults = faults(root.path());
        assert!(
            faults
                .iter()
                .any(|fault| fault.starts_with("crates/imports.toml: ") && fault.contains(what)),
            "{what}: {faults:?}"
        );
    }
}
