//! `mayfly report`.

use std::path::Path;

use mayfly_record::{Record, Sink};
use mayfly_report::{Page, Report};

use crate::args;
use crate::failure::Failure;
use crate::output::Stream;

/// Shows records.
pub(crate) fn report(options: &args::Report) -> Result<(), Failure> {
    // Before anything else is opened: the number of a stream is then that of a stream.
    let sink = options.output.as_deref().map(Sink::open).transpose().map_err(Failure::runtime)?;
    let records =
        options.records.iter().map(|path| read(path)).collect::<Result<Vec<Record>, Failure>>()?;
    if let Some(sink) = sink {
        return sink.write(&Page::new(&records).to_string()).map_err(Failure::runtime);
    }
    let shown: Vec<String> = records
        .iter()
        .map(|record| {
            let report = Report::new(record).full(options.full).colour(Stream::Out.colour());
            report.width(Stream::Out.width()).to_string()
        })
        .collect();
    Stream::Out.write(&shown.join("\n"))
}

/// A record; one that cannot be read is a mistake of whoever named it.
pub(crate) fn read(path: &Path) -> Result<Record, Failure> {
    Record::read(path).map_err(|error| Failure::usage(error.to_string()))
}
