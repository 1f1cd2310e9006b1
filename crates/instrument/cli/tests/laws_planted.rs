//! `mayfly laws` as a whole program, against a KVM that is not there (`examples/fake_kvm.rs`): each call takes as long as a
//! law says that the program knows nothing of.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mayfly_record::Chance;
use serde_json::Value;

#[path = "common/records.rs"]
mod common;

use common::{failure, mayfly, scratch, success, text};

/// What is measured, and up to how many there are of what grows.
const DIMENSIONS: [(&str, u64); 5] =
    [("mappings", 30_000), ("vms", 200), ("vcpus", 128), ("slots", 4096), ("slot-pages", 262_144)];
/// What laws are planted for. Of others a part of the time is the command's own, which maps what a vCPU shares with the
/// kernel, and frees what a VM had.
const PAIRS: [(&str, &[&str]); 6] = [
    ("create-vm", &["mappings", "vms"]),
    ("close-vm", &["mappings", "vms", "slot-pages"]),
    ("create-vcpu", &["vms", "vcpus", "slots"]),
    ("add-slot", &["mappings", "vms", "vcpus", "slots", "slot-pages"]),
    ("delete-slot", &["mappings", "vcpus", "slots", "slot-pages"]),
    ("start-dirty-log", &["vcpus", "slots", "slot-pages"]),
];
/// Of what there are soon as many as are wanted.
const QUICK: [&str; 3] = ["vms", "vcpus", "slot-pages"];

/// A law that is planted: what a call takes more at the last number than without any, and where its bend or step is, or its
/// exponent.
struct Planted {
    call: &'static str,
    dimension: &'static str,
    form: &'static str,
    end: u64,
    to: u64,
    number: f64,
}

impl Planted {
    fn name(&self) -> String {
        format!("{}/{}", self.call, self.dimension)
    }

    fn line(&self) -> String {
        let Self { call, dimension, form, end, to, number } = self;
        format!("{call} {dimension} {form} {end} {to} {number}\n")
    }
}

/// A law for each pair of a call and what grows, three of twenty constants, in an order that chance decides.
fn laws(chance: &mut Chance) -> Vec<Planted> {
    let mut forms = [
        "constant", "constant", "constant", "log", "log", "log", "linear", "linear", "linear",
        "power", "power", "power", "power", "bend", "bend", "bend", "step", "step", "step",
        "nlogn",
    ];
    chance.shuffle(&mut forms);
    let pairs = PAIRS.iter().flat_map(|(call, of)| of.iter().map(move |what| (*call, *what)));
    let law = |((call, dimension), form)| {
        let (_, to) = DIMENSIONS.into_iter().find(|(name, _)| *name == dimension).unwrap();
        let first = if dimension == "slot-pages" { 16.0 } else { 1.0 };
        let place = (40 + chance.below(30)) as f64 / 100.0;
        let number = match form {
            "power" => (40 + chance.below(180)) as f64 / 100.0,
            "bend" | "step" => (first * (to as f64 / first).powf(place)).round(),
            _ => 0.0,
        };
        let end = 1_500_000 + chance.below(3_000_000);
        Planted { call, dimension, form, end, to, number }
    };
    pairs.zip(forms).map(law).collect()
}

/// The library, which is built with the tests.
fn library() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_mayfly")).parent().unwrap();
    let library = built.join("examples/libfake_kvm.so");
    assert!(
        library.is_file(),
        "cargo test builds {}; so does cargo build --examples",
        library.display()
    );
    library
}

/// Runs the command in a kernel with these laws.
fn run(file: &Path, seed: u64, laws: &[Planted], arguments: &[&str]) -> Output {
    let mut text = format!("seed {seed}\n");
    for (call, _) in PAIRS {
        writeln!(text, "base {call} {}", 40_000 + Chance::new(seed).below(40_000)).unwrap();
    }
    text.extend(laws.iter().map(Planted::line));
    fs::write(file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    command.arg("laws").args(arguments).stdin(Stdio::null());
    command.env("LD_PRELOAD", library()).env("MAYFLY_PLANTED", file).output().unwrap()
}

/// Whether a law says what was planted: its form, or one that fits as well; of a power, its exponent within 15 %.
fn is_right(planted: &Planted, law: &Value) -> bool {
    let shape = match planted.form {
        "log" => "logarithm",
        "nlogn" => "log-linear",
        form => form,
    };
    let says = |found: &Value| {
        let near = |exponent: f64| (exponent / planted.number - 1.0).abs() <= 0.15;
        match (shape, found["shape"].as_str()) {
            ("power", Some("power")) => near(found["exponent"].as_f64().unwrap_or(0.0)),
            ("power", Some("linear")) => near(1.0),
            (shape, found) => found == Some(shape),
        }
    };
    // A power's document has its interval where the others have the number.
    let others = law["others"].as_array().cloned().unwrap_or_default();
    law["holds"] == true && (says(law) || others.iter().any(says))
}

/// Plants a law for each pair, and counts those that are found, of those with these dimensions. What is said of a constant is
/// checked here.
fn found(seed: u64, dimensions: &[&str]) -> (usize, usize) {
    let directory = scratch(&format!("laws-planted-{seed}-{}", dimensions.len()));
    let (file, json) = (directory.join("planted"), directory.join("laws.json"));
    let planted = laws(&mut Chance::new(seed));
    let (mut right, mut of) = (0, 0);
    for (call, _) in PAIRS {
        let of_call = |law: &&Planted| law.call == call && dimensions.contains(&law.dimension);
        let wanted: Vec<&Planted> = planted.iter().filter(of_call).collect();
        let mut arguments = vec![call, "--quiet", "--json", json.to_str().unwrap()];
        arguments.extend(wanted.iter().flat_map(|law| ["--against", law.dimension]));
        let output = run(&file, seed, &planted, &arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let document: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        for law in wanted {
            let mut all = document["laws"].as_array().unwrap().iter();
            let found = &all.find(|one| one["dimension"] == law.dimension).unwrap()["law"];
            let (is_right, holds) = (is_right(law, found), found["holds"] == true);
            println!(
                "{:<24} {:<9} {:>8} {:<12} {:>6} {:<8} {}",
                law.name(),
                law.form,
                law.number,
                found["shape"].as_str().unwrap_or("none"),
                found["exponent"].to_string().replace("null", ""),
                if holds { "holds" } else { "" },
                if is_right { "right" } else { "WRONG" }
            );
            let grows = holds && found["shape"] != "constant";
            assert!(law.form != "constant" || !grows, "{}: {found}", law.name());
            (right, of) = (right + usize::from(is_right), of + 1);
        }
    }
    println!("seed {seed}: {right} of {of}");
    (right, of)
}

#[test]
fn laws_that_are_planted_in_a_kernel_are_found_and_no_constant_grows() {
    // Mappings and slots take long to make. `make laws-score` has them, too.
    let (right, of) = found(1, &QUICK);
    assert!(of == 12 && right >= 11, "{right} of {of}");
}

/// The seeds that `make laws-score` asks for, with twenty laws each.
#[test]
#[ignore = "some minutes: make laws-score"]
fn of_twenty_laws_that_are_planted_eighteen_are_found() {
    let number = |name: &str, default| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let (first, runs) = (number("MAYFLY_SEED", 1), number("MAYFLY_SCORE", 5));
    for seed in first..first + runs {
        let (right, of) = found(seed, &DIMENSIONS.map(|(name, _)| name));
        assert!(of == 20 && right >= 18, "seed {seed}: {right} of {of}");
    }
}

const LINEAR: Planted = Planted {
    call: "add-slot",
    dimension: "vcpus",
    form: "linear",
    end: 2_000_000,
    to: 128,
    number: 0.0,
};

/// Runs a pair whose law is linear up to `end`, and gives the exit code, what was printed, and the last line of errors.
fn bounded(name: &str, end: u64, bounds: &[&str]) -> (Option<i32>, String, String) {
    let directory = scratch(name);
    let json = directory.join("laws.json");
    let mut arguments = vec!["add-slot", "--against", "vcpus", "--json", json.to_str().unwrap()];
    arguments.extend(bounds.iter().flat_map(|bound| ["--fail-if", bound]));
    let output = run(&directory.join("planted"), 1, &[Planted { end, ..LINEAR }], &arguments);
    let said = text(&output.stderr).lines().last().unwrap_or_default().to_owned();
    (output.status.code(), text(&output.stdout).to_owned(), said)
}

#[test]
fn a_law_is_held_against_bounds_within_what_was_measured() {
    let holds = "add-slot/vcpus.at(128) > 500us";
    let keeps = [
        "add-slot/vcpus.at(128) > 50ms",
        "add-slot/vcpus.growth < 3",
        "add-slot/vcpus.exponent > 1.2",
    ];
    let beyond = "add-slot/vcpus.at(129) > 1ms";
    let (code, told, said) = bounded("laws-bounds", 2_000_000, &keeps);
    assert_eq!(code, Some(0), "{said} {told}");
    let (code, told, said) = bounded("laws-bounds", 2_000_000, &[keeps[0], beyond, holds]);
    assert_eq!(code, Some(1), "what is wrong is said before what is not known: {said}");
    assert!(said.starts_with(&format!("mayfly: {holds}: add-slot/vcpus.at(128) is ")), "{said}");
    assert!(told.contains("1 law found"), "the text is printed all the same: {told}");
    let (code, _, said) = bounded("laws-bounds", 2_000_000, &[beyond]);
    assert_eq!(code, Some(4), "{said}");
    assert!(
        said.ends_with("it was measured from 1 vCPU to 128 vCPUs, and no law is about 129 vCPUs"),
        "{said}"
    );
}

#[test]
fn documents_are_reported_and_compared() {
    let (code, _, said) = bounded("laws-base", 2_000_000, &[]);
    assert_eq!(code, Some(0), "{said}");
    let (code, _, said) = bounded("laws-new", 6_000_000, &[]);
    assert_eq!(code, Some(0), "{said}");
    let file = |name: &str| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).join("laws.json");
        path.to_str().unwrap().to_owned()
    };
    let (base, new) = (file("laws-base"), file("laws-new"));
    let told = success(&["report", &base, "--full"]);
    assert!(
        told.contains("\nadd-slot/vcpus (KVM_SET_USER_MEMORY_REGION), vCPUs of the VM\n"),
        "{told}"
    );
    assert!(told.contains(", of which it sleeps "), "{told}");
    let page = success(&["report", &base, &new, "-o", "-"]);
    assert!(page.starts_with("<!DOCTYPE html>") && page.matches("<svg").count() == 2, "{page}");
    let said = failure(&["report", &base, "-o", &base.replace(".json", ".svg")], 2);
    assert!(said.contains("ends in .html"), "{said}");
    let same = success(&["compare", &base, &base]);
    assert!(same.contains("1 law compared: 0 of another form, 0 slower, 0 faster"), "{same}");
    let output = mayfly(&["compare", &base, &new]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert_eq!(text(&output.stderr), "mayfly: slower: add-slot/vcpus, at 128 vCPUs\n");
    success(&["compare", &new, &base]);
    success(&["compare", &base, &new, "--fail-if", "add-slot/vcpus.last > 20"]);
    let said = mayfly(&["compare", &base, &new, "--fail-if", "last > 1.5"]);
    assert_eq!(said.status.code(), Some(1), "{}", text(&said.stderr));
    let said = failure(&["compare", &base, &new, "--fail-if", "middle > 1.5"], 2);
    assert!(said.contains("CALL/WHAT.first, CALL/WHAT.last, first, last or ratio"), "{said}");
    failure(&["compare", &base, &new, "--fail-if", "last > 1ms"], 2);
    let csv = success(&["compare", &base, &base, "--format", "csv"]);
    assert!(csv.starts_with("call,against,"), "{csv}");
}

#[test]
fn the_doctor_measures_what_matters_to_a_process_itself() {
    let directory = scratch("laws-doctor");
    let file = directory.join("planted");
    let law =
        Planted { call: "create-vm", dimension: "mappings", form: "log", to: 30_000, ..LINEAR };
    fs::write(&file, format!("seed 1\nbase create-vm 6000\n{}", law.line())).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    // This process is one with mappings.
    command.args(["doctor", "--pid", &std::process::id().to_string()]).stdin(Stdio::null());
    let output = command.env("LD_PRELOAD", library()).env("MAYFLY_PLANTED", file).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("The times below are of VMs made here just now."), "{told}");
    assert!(told.contains(" mappings, KVM_CREATE_VM takes about "), "{told}");
}
