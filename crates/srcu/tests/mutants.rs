//! No step of the protocol can be left out: without it a test fails that is named here.
//!
//! The crates are copied to `target/srcu-mutants`, and for each step built there with that step changed in their text;
//! the test that misses it has to fail, and passes without a change. That takes a build each, so it is a part of its
//! own, of which `make test` has a sample:
//!
//!     make mutants
//!
//! That the texts are there to be changed, all tests of the crate say.

#![cfg(not(any(miri, mayfly_loom, mayfly_shuttle)))]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A step, how it is changed (what text for which), and the test that then fails, of which file.
struct Mutant {
    step: &'static str,
    file: &'static str,
    edits: &'static [(&'static str, &'static str)],
    by: Checker,
    test: (&'static str, &'static str),
    /// What the failing test says.
    says: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Checker {
    /// Every value that a load may return.
    Loom,
    /// The machine itself, under an optimised build.
    Machine,
    /// The code that is emitted.
    Emitted,
    /// Undefined behaviour, found by interpretation; the nightly toolchain has to have it.
    Miri,
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "a grace period passes the heavy barrier",
        file: "domain.rs",
        edits: &[("            self.world.heavy_barrier();\n", "")],
        by: Checker::Machine,
        test: (
            "cold_stores",
            "no_version_is_freed_under_a_reader_whose_announcement_is_in_its_store_buffer",
        ),
        says: "left: ",
    },
    Mutant {
        step: "an asymmetric reader that enters passes a compiler barrier",
        file: "reader.rs",
        edits: &[(
            "section.store(word + 1, Ordering::Release);
            compiler_barrier();",
            "section.store(word + 1, Ordering::Release);",
        )],
        by: Checker::Emitted,
        test: ("emitted_code", "a_readers_barriers_stand_where_the_protocol_has_them"),
        says: "not in this order",
    },
    Mutant {
        step: "an asymmetric reader that leaves passes a compiler barrier",
        file: "reader.rs",
        edits: &[(
            "        } else {
            compiler_barrier();
        }
        if line.awaited",
            "        }
        if line.awaited",
        )],
        by: Checker::Emitted,
        test: ("emitted_code", "a_readers_barriers_stand_where_the_protocol_has_them"),
        says: "not in this order",
    },
    Mutant {
        step: "a starting grace period looks for readers behind its fence",
        file: "domain.rs",
        edits: &[(
            "        fence(Ordering::SeqCst);
        if !self.fenced && !self.registry.is_empty() {",
            "        let is_empty = self.registry.is_empty();
        fence(Ordering::SeqCst);
        if !self.fenced && !is_empty {",
        )],
        by: Checker::Loom,
        test: (
            "loom_callbacks",
            "a_grace_period_without_heavy_barrier_has_no_reader_that_others_rely_on_it_for",
        ),
        says: "nothing ordered the two",
    },
    Mutant {
        step: "who would free at once looks for readers behind a fence",
        file: "domain.rs",
        edits: &[(
            "        fence(Ordering::SeqCst);
        self.registry.is_empty() && self.anonymous.is_empty()",
            "        self.registry.is_empty() && self.anonymous.is_empty()",
        )],
        by: Checker::Loom,
        test: ("loom", "what_is_dropped_at_once_for_want_of_readers_is_found_by_none_that_comes"),
        says: "Causality violation",
    },
    Mutant {
        step: "a reader that registers passes a fence",
        file: "registry.rs",
        edits: &[("        // [registered]\n        fence(Ordering::SeqCst);\n", "")],
        by: Checker::Loom,
        test: (
            "loom_registry",
            "a_writer_that_finds_nobody_registered_is_found_by_whoever_registers_later",
        ),
        says: "Causality violation",
    },
    Mutant {
        step: "a reader that goes has read before it is uncounted",
        file: "registry.rs",
        edits: &[(
            "self.0.fetch_sub(1, Ordering::Release);",
            "self.0.fetch_sub(1, Ordering::Relaxed);",
        )],
        by: Checker::Loom,
        test: ("loom_registry", "a_writer_that_finds_nobody_any_more_comes_after_what_they_read"),
        says: "Causality violation",
    },
    Mutant {
        step: "who asks for a grace period does so behind a fence",
        file: "domain.rs",
        edits: &[("        // [request]\n        fence(Ordering::SeqCst);\n", "")],
        by: Checker::Loom,
        test: ("loom", "of_two_synchronisers_neither_joins_a_grace_period_that_has_sampled"),
        says: "Causality violation",
    },
    Mutant {
        step: "what was unpublished before it was deferred is known to who collects it",
        file: "backlog.rs",
        edits: &[(
            "                head.as_ptr(),
                Ordering::AcqRel,",
            "                head.as_ptr(),
                Ordering::Relaxed,",
        )],
        by: Checker::Loom,
        test: (
            "loom_callbacks",
            "what_a_grace_period_under_way_comes_too_late_for_waits_for_the_next",
        ),
        says: "Causality violation",
    },
    Mutant {
        step: "who asks for haste does so before he looks whether readers have left",
        file: "deferral.rs",
        edits: &[(
            "        self.expedited.fetch_max(period, Ordering::Release);
        // [haste]
        fence(Ordering::SeqCst);\n",
            "        self.expedited.fetch_max(period, Ordering::Release);\n",
        )],
        by: Checker::Loom,
        test: (
            "lib",
            "worker::tests::\
             who_asks_for_haste_finds_that_the_reader_left_or_the_reader_finds_that_it_was_asked",
        ),
        says: "nobody calls the worker",
    },
    Mutant {
        step: "who finds nothing deferred comes after what the callbacks did",
        file: "backlog.rs",
        edits: &[(
            "self.held.now.fetch_sub(Amount::new(count, bytes).0, Ordering::Release);",
            "self.held.now.fetch_sub(Amount::new(count, bytes).0, Ordering::Relaxed);",
        )],
        by: Checker::Loom,
        test: (
            "loom_callbacks",
            "whoever_sees_that_nothing_is_deferred_sees_what_the_callbacks_did",
        ),
        says: "Causality violation",
    },
    Mutant {
        step: "a barrier turns to the other phase",
        file: "deferral.rs",
        edits: &[("        self.gate().runners.turn();\n", "")],
        by: Checker::Loom,
        test: ("loom", "a_barrier_waits_for_callbacks_that_another_thread_is_running"),
        says: "Causality violation",
    },
    Mutant {
        step: "the last runner of a phase says that it is through",
        file: "runners.rs",
        edits: &[("        self.awaited = !are_through;\n", "")],
        by: Checker::Loom,
        test: ("loom_callbacks", "a_barrier_waits_for_two_threads_that_each_run_callbacks"),
        says: "deadlock",
    },
    Mutant {
        step: "a domain is taken off the roster with its last handle",
        file: "handle.rs",
        edits: &[("            worker.forget(self.0);\n", "            let _ = worker;\n")],
        by: Checker::Miri,
        test: (
            "grace_periods",
            "a_domain_goes_with_its_last_handle_though_its_worker_is_never_turned",
        ),
        says: "Undefined Behavior",
    },
];

#[test]
fn each_step_is_where_it_is_changed() {
    for mutant in MUTANTS {
        changed(&workspace(), mutant);
    }
}

#[test]
#[ignore = "builds the crate once a step; make mutants"]
fn without_any_one_step_the_test_that_is_named_fails() {
    let copy = Copy::make();
    let tests: BTreeSet<_> = MUTANTS.iter().map(|mutant| (mutant.by, mutant.test)).collect();
    for (by, test) in tests {
        let (passes, said) = copy.run(by, test);
        assert!(passes, "without a change:\n{said}");
    }
    let missed: Vec<_> = MUTANTS.iter().filter(|mutant| !copy.is_killed(mutant)).collect();
    assert!(missed.is_empty(), "{:?}", missed.iter().map(|mutant| mutant.step).collect::<Vec<_>>());
}

#[test]
#[ignore = "builds the crate; a part of scripts/test"]
fn without_some_step_that_loom_sees_the_test_that_is_named_fails() {
    let copy = Copy::make();
    for mutant in MUTANTS.iter().filter(|mutant| mutant.by == Checker::Loom).step_by(4) {
        assert!(copy.is_killed(mutant), "nobody misses that {}", mutant.step);
    }
}

/// The workspace, copied to where it can be changed.
struct Copy {
    target: PathBuf,
    source: PathBuf,
}

impl Copy {
    fn make() -> Self {
        let target = workspace().join("target/srcu-mutants");
        let source = target.join("source");
        let _ = fs::remove_dir_all(&source);
        for file in ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"] {
            copy(&workspace().join(file), &source.join(file));
        }
        copy_tree(&workspace().join("crates"), &source.join("crates"));
        Self { target: target.join("build"), source }
    }

    /// Whether the test that is named fails without this step, and says why.
    fn is_killed(&self, mutant: &Mutant) -> bool {
        let (path, text, other) = changed(&self.source, mutant);
        fs::write(&path, other).unwrap();
        let (passes, said) = self.run(mutant.by, mutant.test);
        fs::write(&path, text).unwrap();
        // Miri ends the process where it finds something.
        let is_failure = mutant.by == Checker::Miri || said.contains("test result: FAILED");
        let is_killed = !passes && is_failure && said.contains(mutant.says);
        println!(
            "{}: {} ({:?}, {})",
            mutant.step,
            if is_killed { "killed" } else { "SURVIVES" },
            mutant.by,
            mutant.test.1
        );
        if !is_killed {
            println!("{said}");
        }
        is_killed
    }

    /// Runs a test. Returns whether it passes, and what was said.
    fn run(&self, by: Checker, (file, test): (&str, &str)) -> (bool, String) {
        let tests = match file {
            "lib" => vec!["--lib"],
            file => vec!["--test", file],
        };
        let (mut cargo, how) = match by {
            Checker::Miri => (Command::new("cargo"), vec!["+nightly", "miri", "test"]),
            _ => (Command::new(env!("CARGO")), vec!["test", "--release"]),
        };
        cargo
            .args(how)
            .args(["--package", "mayfly-srcu"])
            .args(tests)
            .args(["--", "--exact", test, "--include-ignored"])
            .current_dir(&self.source)
            .env("CARGO_TARGET_DIR", &self.target)
            .env_remove("RUSTFLAGS")
            .env("RUST_BACKTRACE", "0");
        if by == Checker::Loom {
            // As scripts/test has it, whose build of the checker serves here too.
            cargo
                .env("CARGO_TARGET_DIR", workspace().join("target/loom"))
                .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
                .env("RUSTFLAGS", "--cfg mayfly_loom")
                .env("LOOM_MAX_PREEMPTIONS", "3");
        }
        if by == Checker::Miri {
            cargo
                .env("CARGO_TARGET_DIR", workspace().join("target/miri"))
                .env("MIRIFLAGS", "-Zmiri-disable-isolation")
                .env("RUSTFLAGS", "--cfg rustix_use_libc");
        }
        let output = cargo.output().unwrap();
        let said = [output.stderr, output.stdout].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The file of a mutant, what it says, and what it says without the step. Each text is there once.
fn changed(source: &Path, mutant: &Mutant) -> (PathBuf, String, String) {
    let path = source.join("crates/srcu/src").join(mutant.file);
    let text = fs::read_to_string(&path).unwrap();
    let other = mutant.edits.iter().fold(text.clone(), |text, (from, to)| {
        let found = text.matches(from).count();
        assert_eq!(found, 1, "in {}, to change that {}:\n{from}", mutant.file, mutant.step);
        text.replace(from, to)
    });
    (path, text, other)
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
