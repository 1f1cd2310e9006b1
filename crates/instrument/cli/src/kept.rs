//! What `report` and `compare` read: records of experiments, and traces.

use std::path::Path;

use mayfly_record::{ReadError, Record};
use mayfly_trace::Trace;

use crate::failure::Failure;

/// What stands in a file.
pub(crate) enum Kept {
    Record(Box<Record>),
    Trace(Box<Trace>),
}

/// Files of one kind.
pub(crate) enum AllKept {
    Records(Vec<Record>),
    Traces(Vec<Trace>),
}

impl Kept {
    /// What a file has; one that cannot be read is a mistake of the user.
    fn read(path: &Path) -> Result<Self, Failure> {
        let kept = |path: &Path| -> Result<Self, ReadError> {
            let document = mayfly_trace::document(path)?;
            if Trace::is_in(&document) {
                return Ok(Self::Trace(Box::new(Trace::of(document, path)?)));
            }
            Ok(Self::Record(Box::new(document.record()?)))
        };
        kept(path).map_err(|error| Failure::usage(error.to_string()))
    }
}

/// Reads files that have to be of one kind.
pub(crate) fn read<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<AllKept, Failure> {
    let (mut records, mut traces) = (Vec::new(), Vec::new());
    for path in paths {
        match Kept::read(path)? {
            Kept::Record(record) => records.push((path, *record)),
            Kept::Trace(trace) => traces.push((path, *trace)),
        }
    }
    if let (Some((record, _)), Some((trace, _))) = (records.first(), traces.first()) {
        return Err(Failure::usage(format!(
            "{} is a trace and {} the record of a run: they have nothing in common",
            trace.display(),
            record.display()
        )));
    }
    if traces.is_empty() {
        return Ok(AllKept::Records(records.into_iter().map(|(_, record)| record).collect()));
    }
    Ok(AllKept::Traces(traces.into_iter().map(|(_, trace)| trace).collect()))
}

/// The record of a run that a file has; one that cannot be read is a mistake of the user.
pub(crate) fn record(path: &Path) -> Result<Record, Failure> {
    Record::read(path).map_err(|error| Failure::usage(error.to_string()))
}
