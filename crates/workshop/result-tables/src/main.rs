//! Writes the tables of results into README and docs.
//!
//! - `result-tables ROOT DIRECTORY` writes them below ROOT. DIRECTORY has a directory of records for each run.
//! - `result-tables commands` prints the arguments of `mayfly run` that measure the tables, one line for each command.
//! - `result-tables check ROOT` checks that the documents have the tables, and prints the documents' names.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mayfly_record::Record;
use mayfly_result_tables::{Runs, check_all, commands, write};

const USAGE: &str =
    "usage: result-tables ROOT DIRECTORY, result-tables commands, or result-tables check ROOT";

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let done = match &arguments[..] {
        [one] if one == Path::new("commands") => {
            println!("{}", commands().join("\n"));
            Ok(())
        }
        [check, root] if check == Path::new("check") => check_all(root)
            .map(|documents| println!("{}", documents.join("\n")))
            .map_err(Into::into),
        [root, records] => runs(records).and_then(|runs| Ok(write(root, &runs)?)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("result-tables: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The records of every run whose directory is in `directory`.
fn runs(directory: &Path) -> Result<Runs, Box<dyn Error>> {
    let runs: Result<Vec<Vec<Record>>, Box<dyn Error>> =
        entries(directory)?.iter().filter(|path| path.is_dir()).map(|run| records(run)).collect();
    Ok(Runs::new(runs?)?)
}

/// The records of one run.
fn records(run: &Path) -> Result<Vec<Record>, Box<dyn Error>> {
    let is_record = |path: &&PathBuf| path.extension().is_some_and(|of| of == "json");
    entries(run)?.iter().filter(is_record).map(|path| Ok(Record::read(path)?)).collect()
}

/// The paths in a directory, by name.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let unread = |error| format!("cannot read {}: {error}", directory.display());
    let mut paths = fs::read_dir(directory)
        .map_err(unread)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<PathBuf>>>()
        .map_err(unread)?;
    paths.sort();
    Ok(paths)
}
