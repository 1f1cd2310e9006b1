//! The workspace, copied to where it can be changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Binary, Checker, Mutant};

/// What is said of a test that does not end.
pub(crate) const ENDLESS: &str = "it does not end";

/// How long what ends may take on a busy host.
pub(crate) const PATIENT: &str = "1h";

/// How often Miri interprets a test, each time by another seed: with other switches between threads, and other ones of
/// the values that a load may return.
const SEEDS: usize = 16;

pub(crate) struct Copy {
    target: PathBuf,
    source: PathBuf,
    crates: PathBuf,
}

impl Copy {
    pub(crate) fn make() -> Self {
        let target = workspace().join("target/mutants");
        let source = target.join("source");
        let _ = fs::remove_dir_all(&source);
        for file in ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"] {
            copy(&workspace().join(file), &source.join(file));
        }
        copy_tree(&workspace().join("crates"), &source.join("crates"));
        Self { target: target.join("build"), crates: source.join("crates"), source }
    }

    pub(crate) fn crates(&self) -> &Path {
        &self.crates
    }

    /// Builds some tests of one binary, and then runs them for no longer than `limit`: under Miri by each of its seeds.
    /// Returns whether there are so many, and all pass every time, and what was said, which ends with [`ENDLESS`] if they
    /// do not end.
    pub(crate) fn run(&self, binary: &Binary, tests: &[&str], limit: &str) -> (bool, String) {
        self.build_or_run(binary, tests, PATIENT, &["--no-run"]);
        self.build_or_run(binary, tests, limit, &[])
    }

    /// Has `timeout` run cargo's test.
    fn build_or_run(
        &self,
        binary: &Binary,
        names: &[&str],
        limit: &str,
        more: &[&str],
    ) -> (bool, String) {
        let tests = match binary.file {
            "lib" => vec!["--lib"],
            file => vec!["--test", file],
        };
        let nightly = format!("+{}", nightly());
        let (program, how) = match binary.by {
            Checker::Miri => ("cargo", vec![&*nightly, "miri", "test"]),
            Checker::Test => (env!("CARGO"), vec!["test"]),
            _ => (env!("CARGO"), vec!["test", "--release"]),
        };
        let mut cargo = Command::new("timeout");
        cargo
            .args(["--kill-after=1", limit, program])
            .args(how)
            .args(["--package", &format!("mayfly-{}", binary.package)])
            .args(tests)
            .args(more)
            .args(["--", "--exact", "--include-ignored"])
            .args(names)
            .current_dir(&self.source)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_TEST_DEBUG", "0")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
            .env_remove("RUSTFLAGS")
            .env("RUST_BACKTRACE", "0");
        // As scripts/test and scripts/miri have it.
        let checker = match binary.by {
            Checker::Loom => Some("loom"),
            Checker::Shuttle => Some("shuttle"),
            _ => None,
        };
        if let Some(checker) = checker {
            cargo
                // Of its own: cargo takes the copy for the workspace, and would leave it a crate without a step.
                .env("CARGO_TARGET_DIR", self.target.join(checker))
                .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
                // But built in less time, most of which would go by for one changed line.
                .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
                .env("CARGO_INCREMENTAL", "1")
                .env("RUSTFLAGS", format!("--cfg mayfly_{checker}"))
                .env("LOOM_MAX_PREEMPTIONS", "3");
        }
        if binary.by == Checker::Miri {
            cargo
                .env("CARGO_TARGET_DIR", self.target.join("miri"))
                .env("MIRIFLAGS", format!("-Zmiri-disable-isolation -Zmiri-many-seeds=0..{SEEDS}"))
                .env("RUSTFLAGS", "--cfg rustix_use_libc");
        }
        let output = cargo.output().unwrap();
        let said = [output.stderr, output.stdout].concat();
        let mut said = String::from_utf8_lossy(&said).into_owned();
        // What `timeout` exits with.
        if output.status.code().is_none_or(|code| code == 124 || code == 137) {
            said.push('\n');
            said.push_str(ENDLESS);
        }
        let runs = if binary.by == Checker::Miri { SEEDS } else { 1 };
        (output.status.success() && all_pass(&said, names.len(), runs), said)
    }
}

/// Whether `said` is of so many runs, in each of which so many tests pass, and none fails. Runs by different seeds are
/// under way at once, and their lines are mixed; but what a harness counts, it writes in one.
fn all_pass(said: &str, tests: usize, runs: usize) -> bool {
    let results = said.matches(" passed; ").count();
    results == runs && said.matches(&format!(". {tests} passed; 0 failed; ")).count() == runs
}

#[test]
fn tests_pass_that_pass_by_each_seed_and_no_others() {
    const ONE: &str = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured\n";
    const MIXED: &str = "test result: oktest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured\n\
                         Trying seed: 5\n. 2 passed; 0 failed; 0 ignored; 0 measured\n";
    const FAILS: &str = "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured\n";
    const FEWER: &str = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\n";
    assert!(all_pass(ONE, 2, 1));
    assert!(all_pass(MIXED, 2, 2));
    assert!(!all_pass(ONE, 2, 2), "a seed is missing");
    assert!(!all_pass(&[ONE, FAILS].concat(), 2, 2), "a seed fails");
    assert!(!all_pass(&[ONE, FAILS, ONE].concat(), 2, 2), "so it does beside others");
    assert!(!all_pass(&[ONE, FEWER].concat(), 2, 2), "a test is missing");
    assert!(!all_pass("error: could not compile", 2, 1));
}

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// The Rust that interprets tests, as scripts/miri has it.
fn nightly() -> String {
    let versions = fs::read_to_string(workspace().join("scripts/versions")).unwrap();
    let named = versions.lines().find_map(|line| line.strip_prefix("nightly="));
    named.expect("scripts/versions names the nightly Rust").to_owned()
}

/// The files of a mutant, what they say, and what they say with the step changed. An error, where a text is not there
/// once.
pub(crate) fn changed(
    crates: &Path,
    mutant: &Mutant,
) -> Result<Vec<(PathBuf, String, String)>, String> {
    let mut files = BTreeMap::new();
    for (file, from, to) in mutant.edits {
        let text = files.entry(file).or_insert_with(|| {
            let text = fs::read_to_string(crates.join(file)).unwrap();
            (text.clone(), text)
        });
        let found = text.1.matches(from).count();
        if found != 1 {
            let step = mutant.step;
            return Err(format!("{found} times in {file}, to change that {step}:\n{from}"));
        }
        text.1 = text.1.replace(from, to);
    }
    let files = files.into_iter();
    Ok(files.map(|(file, (original, changed))| (crates.join(file), original, changed)).collect())
}

fn copy_tree(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &to);
        } else {
            copy(&entry.path(), &to);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(from, to).unwrap();
}
