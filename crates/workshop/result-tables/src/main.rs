//! Writes the tables of README and of other documents: `result-tables ROOT DIRECTORY`, where the directory has one of records for
//! each run. `result-tables commands` prints the arguments of `mayfly run` that measure them, a line each.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mayfly_record::{Record, Sink};
use mayfly_result_tables::{HOST, Runs, Table, commands, replace, tables};

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let done = match &arguments[..] {
        [one] if one == Path::new("commands") => {
            println!("{}", commands().join("\n"));
            Ok(())
        }
        [root, records] => write(root, records),
        _ => {
            eprintln!("usage: result-tables ROOT DIRECTORY, or result-tables commands");
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

fn write(root: &Path, records: &Path) -> Result<(), Box<dyn Error>> {
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
    let tables = tables();
    for of_one in tables.chunk_by(|one, other| one.document == other.document) {
        let document = root.join(of_one[0].document);
        let text = replace(&fs::read_to_string(&document)?, HOST, &runs.told())?;
        let put = |text: String, table: &Table| replace(&text, table.name, &table.markdown(&runs));
        let text = of_one.iter().try_fold(text, put)?;
        Sink::open(&document)?.write(&text)?;
    }
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
