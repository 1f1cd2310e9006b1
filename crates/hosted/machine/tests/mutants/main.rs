//! No step of a protocol can be left out, or put elsewhere: without it a test fails that is named here.
//!
//! The crates are copied to `target/mutants`, and for each step built there with that step changed in their text; the
//! test that misses it has to fail, and to say why, and passes without a change. That takes a build each, so it is a
//! part of its own, of which `make test` has a sample:
//!
//!     make mutants
//!
//! That the texts are there to be changed, all tests of the crate say.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod balloon;
mod buses;
mod caches;
mod copy;
mod devices;
mod disks;
mod dispatch;
mod holds;
mod hwtrace;
mod iobus;
mod memory;
mod memslot;
mod merge;
mod orders;
mod owed;
mod srcu;
mod stage2;
mod vapic;
mod vgic;
mod vm;
mod vmids;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use std::{fmt, fs};

use copy::{Copy, ENDLESS, PATIENT, workspace};

/// A step of a protocol, and how it is changed.
#[derive(Debug)]
struct Mutant {
    step: &'static str,
    /// In which file, what text for which.
    edits: &'static [Edit],
    killer: Killer,
}

/// A text that a file below `crates` has once, and what takes its place.
type Edit = (&'static str, &'static str, &'static str);

/// The test that fails then.
#[derive(Clone, Copy, Debug)]
struct Killer {
    binary: Binary,
    test: &'static str,
    /// What it says when it fails.
    says: &'static str,
}

/// Where tests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Binary {
    by: Checker,
    package: &'static str,
    /// The file of tests, or `lib`.
    file: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Checker {
    /// The machine itself.
    Test,
    /// The same, under an optimised build.
    Machine,
    /// The code that is emitted.
    Emitted,
    /// Every value that a load may return.
    Loom,
    /// Schedules, drawn at random.
    Shuttle,
    /// Undefined behaviour, found by interpretation, which gives loads older values too, by a number of seeds; the
    /// nightly Rust of `scripts/versions` has to be there.
    Miri,
}

impl Killer {
    const fn new(
        by: Checker,
        package: &'static str,
        (file, test): (&'static str, &'static str),
        says: &'static str,
    ) -> Self {
        Self { binary: Binary { by, package, file }, test, says }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Killer { binary: Binary { by, package, .. }, test, .. } = self.killer;
        write!(f, "{package}: {} ({by:?}, {test})", self.step)
    }
}

/// The steps of each protocol, and by which checker the sample has one of them killed.
const PROTOCOLS: [(&[Mutant], Checker); 15] = [
    (caches::MUTANTS, Checker::Test),
    (devices::MUTANTS, Checker::Loom),
    (holds::MUTANTS, Checker::Test),
    (hwtrace::MUTANTS, Checker::Test),
    (iobus::MUTANTS, Checker::Test),
    (memory::MUTANTS, Checker::Test),
    (memslot::MUTANTS, Checker::Loom),
    (merge::MUTANTS, Checker::Test),
    (owed::MUTANTS, Checker::Test),
    (srcu::MUTANTS, Checker::Test),
    (stage2::MUTANTS, Checker::Test),
    (vapic::MUTANTS, Checker::Test),
    (vgic::MUTANTS, Checker::Loom),
    (vm::MUTANTS, Checker::Test),
    (vmids::MUTANTS, Checker::Test),
];

/// The steps of what has neither threads nor hardware. The sample has none of them.
const RULES: [&[Mutant]; 4] = [balloon::MUTANTS, buses::MUTANTS, disks::MUTANTS, dispatch::MUTANTS];

fn all() -> impl Iterator<Item = &'static Mutant> {
    PROTOCOLS.into_iter().flat_map(|(mutants, _)| mutants).chain(RULES.into_iter().flatten())
}

#[test]
fn each_step_is_where_it_is_changed() {
    let crates = workspace().join("crates");
    let missing: Vec<_> = all().filter_map(|mutant| copy::changed(&crates, mutant).err()).collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// `MAYFLY_MUTANTS` names a part of them, by some words of the lines that are printed, with commas between them.
#[test]
#[ignore = "builds the crates once a step; make mutants"]
fn without_any_one_step_the_test_that_is_named_fails() {
    let words = std::env::var("MAYFLY_MUTANTS").unwrap_or_default();
    let is_meant = |mutant: &&Mutant| {
        let line = mutant.to_string();
        words.split(',').all(|word| line.contains(word))
    };
    let mutants = || all().filter(is_meant);
    let copy = Copy::make();
    let mut tests = BTreeMap::<_, BTreeSet<_>>::new();
    for Killer { binary, test, .. } in mutants().map(|mutant| mutant.killer) {
        tests.entry(binary).or_default().insert(test);
    }
    let fail = tests.into_iter().filter(|(binary, tests)| {
        let tests: Vec<_> = tests.iter().copied().collect();
        let begin = Instant::now();
        let (pass, said) = copy.run(binary, &tests, PATIENT);
        let (word, seconds) = (if pass { "pass" } else { "FAIL" }, begin.elapsed().as_secs());
        println!("{word} without a change: {} of {binary:?}, {seconds} s", tests.len());
        if !pass {
            println!("{said}");
        }
        !pass
    });
    let fail: Vec<_> = fail.collect();
    assert!(fail.is_empty(), "without a change these fail: {fail:?}");
    let begin = Instant::now();
    let missed: Vec<_> = mutants().filter(|mutant| !is_killed(&copy, mutant)).collect();
    println!("{} s for all of them", begin.elapsed().as_secs());
    println!("{} of {} survive", missed.len(), mutants().count());
    assert!(missed.is_empty(), "{:?}", missed.iter().map(|mutant| mutant.step).collect::<Vec<_>>());
}

/// Of each protocol one.
#[test]
#[ignore = "builds the crates a few times; a part of scripts/test"]
fn without_some_step_the_test_that_is_named_fails() {
    let copy = Copy::make();
    for (mutants, by) in PROTOCOLS {
        let mutant = mutants.iter().find(|mutant| mutant.killer.binary.by == by).unwrap();
        assert!(is_killed(&copy, mutant), "nobody misses that {}", mutant.step);
    }
}

/// Whether the test that is named fails without this step, and says why.
fn is_killed(copy: &Copy, mutant: &Mutant) -> bool {
    let files = copy::changed(copy.crates(), mutant).unwrap();
    for (path, _, changed) in &files {
        fs::write(path, changed).unwrap();
    }
    let Killer { binary, test, says } = mutant.killer;
    // What is not to end does that soon. What fails may have to wait for its turn on a busy host.
    let limit = if ENDLESS.contains(says) { "60" } else { PATIENT };
    // A race that is the hardware's own has to happen; on a busy host two threads seldom have a processor each.
    let tries = if binary.by == Checker::Machine { 10 } else { 1 };
    let begin = Instant::now();
    let (mut is_killed, mut said) = (false, String::new());
    for _ in 0..tries {
        let passes;
        (passes, said) = copy.run(&binary, &[test], limit);
        // Miri, by any of its seeds, and an abort, end the process where they find something.
        let failures = ["test result: FAILED", "process didn't exit", ENDLESS];
        let is_failure = failures.into_iter().any(|failure| said.contains(failure));
        is_killed = !passes && (binary.by == Checker::Miri || is_failure) && said.contains(says);
        if is_killed {
            break;
        }
    }
    for (path, original, _) in &files {
        fs::write(path, original).unwrap();
    }
    let seconds = begin.elapsed().as_secs();
    println!("{}: {mutant}, {seconds} s", if is_killed { "killed" } else { "SURVIVES" });
    if !is_killed {
        println!("{said}");
    }
    is_killed
}
