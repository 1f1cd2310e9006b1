//! What `report` and `compare` read: records of experiments, traces, and laws.

use std::path::Path;

use mayfly_record::{Document, ReadError, Record};
use mayfly_trace::Trace;

use crate::failure::Failure;

/// Bytes beyond which no file is read: more than a trace has of as many calls as are kept, and than laws have of as many
/// samples as can be asked for.
const MOST: u64 = 512 << 20;

/// What stands in a file.
enum Kept {
    Record(Box<Record>),
    Trace(Box<Trace>),
    Laws(Box<mayfly_laws::Document>),
}

/// Files of one kind.
pub(crate) enum AllKept {
    Records(Vec<Record>),
    Traces(Vec<Trace>),
    Laws(Vec<mayfly_laws::Document>),
}

impl Kept {
    /// What a file has; one that cannot be read is a mistake of the user.
    fn read(path: &Path) -> Result<Self, Failure> {
        let kept = |path: &Path| -> Result<Self, ReadError> {
            let document = Document::read(path, is_large, MOST)?;
            if Trace::is_in(&document) {
                return Ok(Self::Trace(Box::new(Trace::of(document, path)?)));
            }
            if mayfly_laws::Document::is_in(&document) {
                return Ok(Self::Laws(Box::new(mayfly_laws::Document::of(document, path)?)));
            }
            Ok(Self::Record(Box::new(document.record()?)))
        };
        kept(path).map_err(|error| Failure::usage(error.to_string()))
    }

    /// What it is, for a user who has mixed them.
    fn kind(&self) -> &'static str {
        match self {
            Self::Record(_) => "the record of a run",
            Self::Trace(_) => "a trace",
            Self::Laws(_) => "a document of laws",
        }
    }
}

/// Whether a file that begins so may have a schema whose documents are larger than a record.
fn is_large(head: &[u8]) -> bool {
    let has = |name: &str| head.windows(name.len()).any(|part| part == name.as_bytes());
    has(mayfly_trace::SCHEMA) || has(mayfly_laws::SCHEMA)
}

/// Reads files that have to be of one kind.
pub(crate) fn read<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<AllKept, Failure> {
    let mut read: Vec<(&Path, Kept)> = Vec::new();
    for path in paths {
        let kept = Kept::read(path)?;
        if let Some((other, first)) = read.first().filter(|(_, one)| one.kind() != kept.kind()) {
            return Err(Failure::usage(format!(
                "{} is {} and {} {}: they have nothing in common",
                path.display(),
                kept.kind(),
                other.display(),
                first.kind()
            )));
        }
        read.push((path, kept));
    }
    let (mut records, mut traces, mut laws) = (Vec::new(), Vec::new(), Vec::new());
    for (_, kept) in read {
        match kept {
            Kept::Record(record) => records.push(*record),
            Kept::Trace(trace) => traces.push(*trace),
            Kept::Laws(one) => laws.push(*one),
        }
    }
    Ok(match (traces.is_empty(), laws.is_empty()) {
        (false, _) => AllKept::Traces(traces),
        (_, false) => AllKept::Laws(laws),
        _ => AllKept::Records(records),
    })
}

/// The record of a run that a file has; one that cannot be read is a mistake of the user.
pub(crate) fn record(path: &Path) -> Result<Record, Failure> {
    Record::read(path).map_err(|error| Failure::usage(error.to_string()))
}

/// The laws that a file has; one that cannot be read, or has something else, is a mistake of the user.
pub(crate) fn laws(path: &Path) -> Result<mayfly_laws::Document, Failure> {
    let read = Document::read(path, is_large, MOST)
        .and_then(|document| mayfly_laws::Document::of(document, path));
    read.map_err(|error| Failure::usage(error.to_string()))
}
