//! Every document that has figures: written, or checked.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mayfly_record::{Sink, WriteError};

use crate::document::{HOST, MarkerError, check, replace};
use crate::layout::{RESULTS, tables};
use crate::runs::Runs;
use crate::summary::{README, SUMMARY, check_summary, summary};
use crate::table::Table;

/// Why the documents cannot be written, or are not as they would be written.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// A document cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A document cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A document does not have the tables that belong there.
    #[error("{document}: {source}")]
    Content {
        /// Its path below the root.
        document: &'static str,
        /// What is wrong.
        source: MarkerError,
    },
}

/// Writes every table, the facts of the host and README's summary into the documents below `root`. No document is written
/// unless all of them can be.
///
/// # Errors
///
/// A document cannot be read or written, or does not have its markers.
pub fn write(root: &Path, runs: &Runs) -> Result<(), DocumentError> {
    let mut written: Vec<(&str, String)> = Vec::new();
    for (document, tables) in documents(&tables()) {
        let put = |text: String, table: &Table| replace(&text, table.name, &table.markdown(runs));
        let text = replace(&read(root, document)?, HOST, &runs.told());
        let text = text.and_then(|text| tables.iter().try_fold(text, put));
        written.push((document, text.map_err(of(document))?));
    }
    let results = written.iter().find(|(document, _)| *document == RESULTS);
    let quoted = summary(results.map_or("", |(_, text)| text)).map_err(of(RESULTS))?;
    let readme = replace(&read(root, README)?, HOST, &runs.host());
    let readme = readme.and_then(|text| replace(&text, SUMMARY, &quoted));
    written.push((README, readme.map_err(of(README))?));
    for (document, text) in written {
        Sink::open(&root.join(document))?.write(&text)?;
    }
    Ok(())
}

/// Checks that every document below `root` has the form in which [`write()`] would leave it, and names the documents.
///
/// # Errors
///
/// A document cannot be read, or has something else than its tables between their markers.
pub fn check_all(root: &Path) -> Result<Vec<&'static str>, DocumentError> {
    let mut names = Vec::new();
    for (document, tables) in documents(&tables()) {
        check(&read(root, document)?, tables).map_err(of(document))?;
        names.push(document);
    }
    check_summary(&read(root, README)?, &read(root, RESULTS)?).map_err(of(README))?;
    names.push(README);
    Ok(names)
}

/// The tables of each document.
fn documents(tables: &[Table]) -> impl Iterator<Item = (&'static str, &[Table])> {
    let of_one = tables.chunk_by(|one, other| one.document == other.document);
    of_one.filter_map(|tables| Some((tables.first()?.document, tables)))
}

fn read(root: &Path, document: &str) -> Result<String, DocumentError> {
    let path = root.join(document);
    fs::read_to_string(&path).map_err(|source| DocumentError::Read { path, source })
}

fn of(document: &'static str) -> impl Fn(MarkerError) -> DocumentError {
    move |source| DocumentError::Content { document, source }
}
