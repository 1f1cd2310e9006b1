//! Writes README's tables: `figures README.md DIRECTORY`, where the directory has one of records for each run.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mayfly_figures::{Runs, replace, tables};
use mayfly_record::{Record, Sink};

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [document, records] = &arguments[..] else {
        eprintln!("usage: figures README.md DIRECTORY");
        return ExitCode::from(2);
    };
    match write(document, records) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(document: &Path, records: &Path) -> Result<(), Box<dyn Error>> {
    let runs: Result<Vec<Vec<Record>>, _> = entries(records)?
        .into_iter()
        .filter(|path| path.is_dir())
        .map(|run| -> Result<Vec<Record>, Box<dyn Error>> {
            let is_record = |path: &PathBuf| path.extension().is_some_and(|of| of == "json");
            entries(&run)?
                .iter()
                .filter(|path| is_record(path))
                .map(|of| Ok(Record::read(of)?))
                .collect()
        })
        .collect();
    let runs = Runs::new(runs?)?;
    let mut text = replace(&fs::read_to_string(document)?, mayfly_figures::HOST, &runs.told())?;
    for table in tables() {
        text = replace(&text, table.name, &table.markdown(&runs))?;
    }
    Sink::open(document)?.write(&text)?;
    Ok(())
}

/// What is in a directory, by name.
fn entries(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}
