//! `structure graph|imports|docs [ROOT]`: checks the repository at ROOT, by default the current directory.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mayfly_structure::docs::{self, Help};
use mayfly_structure::{Findings, graph, imports};

const USAGE: &str = "\
usage: structure graph [ROOT] [--crate NAME]   prints the circles of files, and fails where one is too large
       structure imports [ROOT]                fails where a crate imports what crates/imports.toml does not allow
       structure docs [ROOT]                   fails where the documentation names what is not there";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some(found) = check(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match found {
        Ok(findings) => {
            print!("{}", findings.text);
            for fault in &findings.faults {
                eprintln!("{fault}");
            }
            if findings.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("structure: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the check finds that the words ask for, or `None` where they ask for none.
fn check(words: &[&str]) -> Option<Result<Findings, Box<dyn Error>>> {
    let (words, only) = match words {
        [rest @ .., "--crate", name] => (rest, Some(*name)),
        _ => (words, None),
    };
    let (check, root) = match words {
        [check] => (*check, PathBuf::from(".")),
        [check, root] => (*check, PathBuf::from(root)),
        _ => return None,
    };
    match check {
        "imports" | "docs" if only.is_some() => None,
        "graph" => Some(graph::check(&root, only).map_err(Into::into)),
        "imports" => Some(imports::check(&root).map_err(Into::into)),
        "docs" => Some(documents(&root)),
        _ => None,
    }
}

fn documents(root: &Path) -> Result<Findings, Box<dyn Error>> {
    Ok(docs::check(root, &Help::build(root)?)?)
}
