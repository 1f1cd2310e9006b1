//! `mayfly report`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mayfly_record::{Record, Sink};
use mayfly_report::{Page, Report};

use crate::args;
use crate::failure::Failure;
use crate::output::Stream;

/// Shows records.
pub(crate) fn report(options: &args::Report) -> Result<(), Failure> {
    if let Some(record) = replaced(options) {
        let record = record.display();
        return Err(Failure::usage(format!(
            "{record} is a record to be read: the page would replace it"
        )));
    }
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

/// The record whose file the page would be written to, by whatever name.
fn replaced(options: &args::Report) -> Option<&Path> {
    let file = |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file);
    let number = |path: &Path| file(path).map(|file| (file.dev(), file.ino()));
    let page = number(options.output.as_deref()?)?;
    options.records.iter().map(AsRef::as_ref).find(|record| number(record) == Some(page))
}

/// A record; one that cannot be read is a mistake of whoever named it.
pub(crate) fn read(path: &Path) -> Result<Record, Failure> {
    Record::read(path).map_err(|error| Failure::usage(error.to_string()))
}
