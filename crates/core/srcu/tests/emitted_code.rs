//! The barriers of a section, in the code that the compiler emits for one.
//!
//! A compiler barrier orders nothing that a processor of one kind or another would not show to be ordered by chance, so
//! it is looked for: on each way through a section, between the announcement and the load of the pointer, and between
//! leaving and the look at who waits. (Behind the intermediate code that is looked at, such a fence stays where it is:
//! LLVM's code generators move no access past it.)

#![cfg(not(any(miri, mayfly_loom, mayfly_shuttle)))]

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "builds the crate anew; a part of scripts/test"]
fn a_readers_barriers_stand_where_the_protocol_has_them() {
    let ways = Function::find(&emit(), "read_in_one_section").ways();
    println!("{ways:?}");
    for way in &ways {
        for between in between(way, ['S', 'X'], 'P').into_iter().chain(between(way, ['S'], 'A')) {
            assert!(
                between.contains('F'),
                "a store and what is loaded next are not in this order: {way}"
            );
        }
    }
    // A section that is entered, read in, and left, on either kind of domain; on a fenced one by a locked instruction
    // behind the store.
    for way in ["SFPSFA", "SXFPSFA"] {
        assert!(ways.iter().any(|taken| taken == way) || !cfg!(target_arch = "x86_64"), "{ways:?}");
    }
    assert!(ways.iter().any(|way| between(way, ['S'], 'A').is_some()), "{ways:?}");
}

/// What stands between `to`, where it is first, and the last of `from` before that.
fn between<const N: usize>(way: &str, from: [char; N], to: char) -> Option<&str> {
    let (before, _) = way.split_once(to)?;
    before.rfind(from).map(|at| &before[at..])
}

/// The intermediate code of the example.
fn emit() -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let target = workspace.join("target/emitted");
    fs::create_dir_all(&target).unwrap();
    let code = target.join("section.ll");
    let emit = format!("--emit=llvm-ir={}", code.display());
    let status = Command::new(env!("CARGO"))
        .args(["rustc", "--release", "--package", "mayfly-srcu", "--example", "section"])
        .args(["--", &emit, "-Ccodegen-units=1", "-Cdebuginfo=0"])
        .current_dir(&workspace)
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTFLAGS")
        .status()
        .unwrap();
    assert!(status.success());
    fs::read_to_string(code).unwrap()
}

/// A function's blocks by name: what matters of each, and where it goes.
struct Function(HashMap<String, (String, Vec<String>)>);

impl Function {
    fn find(code: &str, name: &str) -> Self {
        let mut lines = code
            .lines()
            .skip_while(|line| !(line.starts_with("define") && line.contains(name)))
            .skip(1)
            .take_while(|line| *line != "}")
            .peekable();
        assert!(lines.peek().is_some(), "there is no {name}");
        let mut blocks = HashMap::new();
        let mut block = String::from("start");
        for line in lines.map(|line| line.replace('"', "")) {
            if let Some((label, _)) = line.split_once(':').filter(|_| !line.starts_with([' ', ';']))
            {
                label.clone_into(&mut block);
            }
            let (does, goes): &mut (String, Vec<String>) = blocks.entry(block.clone()).or_default();
            does.extend(event(&line));
            let labels = line.split("label %").skip(1);
            goes.extend(labels.map(|label| {
                label
                    .split(|c: char| !(c.is_alphanumeric() || "._-$".contains(c)))
                    .next()
                    .unwrap()
                    .into()
            }));
        }
        Self(blocks)
    }

    /// What is done on each way through it, a letter for each event.
    fn ways(&self) -> Vec<String> {
        let (mut ways, mut open) = (Vec::new(), vec![(vec!["start".to_owned()], String::new())]);
        while let Some((path, mut way)) = open.pop() {
            let (does, goes) = &self.0[path.last().unwrap()];
            way.push_str(does);
            let on = goes.iter().filter(|block| !path.contains(block));
            let before = open.len();
            open.extend(
                on.map(|block| ([&path[..], std::slice::from_ref(block)].concat(), way.clone())),
            );
            if open.len() == before {
                ways.push(way);
            }
        }
        ways
    }
}

/// What a line does that matters.
fn event(line: &str) -> Option<char> {
    let line = line.trim_start();
    let has = |part: &str| line.contains(part);
    if line.starts_with("fence") && has("seq_cst") {
        Some('F')
    } else if line.starts_with("store atomic i64") {
        // Of the word that says where the reader is: entering, and leaving.
        Some('S')
    } else if has("atomicrmw xchg") && has("i64") {
        Some('X')
    } else if has("load atomic ptr") {
        Some('P')
    } else if has("load atomic i8") {
        Some('A')
    } else {
        None
    }
}
