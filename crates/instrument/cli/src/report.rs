//! `mayfly report`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mayfly_record::{Record, Sink};
use mayfly_report::{Page, Picture, Report};
use mayfly_trace::{Calls, Text, Trace};

use crate::args;
use crate::failure::Failure;
use crate::kept::{AllKept, read};
use crate::output::Stream;

/// Shows records.
pub(crate) fn report(options: &args::Report) -> Result<(), Failure> {
    if let Some(record) = replaced(options) {
        let record = record.display();
        return Err(Failure::usage(format!(
            "{record} is a record to read: the page would overwrite it"
        )));
    }
    let wants_picture = wants_picture(options)?;
    // Before anything else is opened: the number of a stream is then that of a stream.
    let sink = options.output.as_deref().map(Sink::open).transpose().map_err(Failure::runtime)?;
    let kept = read(options.records.iter().map(PathBuf::as_path))?;
    if let Some(sink) = sink {
        let page = match &kept {
            AllKept::Records(records) if wants_picture => {
                records.iter().map(|one| drawn(one, options)).collect()
            }
            AllKept::Traces(_) if wants_picture => {
                return Err(Failure::usage(
                    "a trace has no picture: give -o a file that ends in .html",
                ));
            }
            AllKept::Laws(_) if wants_picture => {
                return Err(Failure::usage(
                    "laws have a picture each: give -o a file that ends in .html",
                ));
            }
            AllKept::Records(records) => Page::new(records).to_string(),
            AllKept::Traces(traces) => mayfly_trace::Page(traces).to_string(),
            AllKept::Laws(all) => mayfly_laws::Page(all).to_string(),
        };
        return sink.write(&page).map_err(Failure::runtime);
    }
    let shown: Vec<String> = match &kept {
        AllKept::Records(records) => records.iter().map(|one| record(one, options)).collect(),
        AllKept::Traces(traces) => traces.iter().map(|one| trace(one, options)).collect(),
        AllKept::Laws(all) => all.iter().map(|one| laws(one, options)).collect(),
    };
    Stream::Out.write(&shown.join("\n"))
}

fn record(record: &Record, options: &args::Report) -> String {
    let report = Report::new(record).full(options.full).colour(Stream::Out.colour());
    report.width(Stream::Out.width()).to_string()
}

fn trace(trace: &Trace, options: &args::Report) -> String {
    let told = Text(trace).to_string();
    if options.full { format!("{told}\n{}", Calls(trace)) } else { told }
}

fn laws(document: &mayfly_laws::Document, options: &args::Report) -> String {
    mayfly_laws::Text::new(document, Stream::Out.width()).full(options.full).to_string()
}

fn drawn(record: &Record, options: &args::Report) -> String {
    Picture::new(record, options.theme.unwrap_or_default()).to_string()
}

/// Whether the output is to be a picture, by how its name ends.
fn wants_picture(options: &args::Report) -> Result<bool, Failure> {
    let ending = options.output.as_deref().and_then(Path::extension);
    let is_svg = ending.is_some_and(|ending| ending.eq_ignore_ascii_case("svg"));
    match options.records.len() {
        _ if !is_svg && options.theme.is_some() => {
            Err(Failure::usage("--theme is for a picture: give -o a file that ends in .svg"))
        }
        2.. if is_svg => Err(Failure::usage("a picture is of one record: leave out the others")),
        _ => Ok(is_svg),
    }
}

/// The record whose file the page would be written to, by whatever name.
fn replaced(options: &args::Report) -> Option<&Path> {
    let file = |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file);
    let number = |path: &Path| file(path).map(|file| (file.dev(), file.ino()));
    let page = number(options.output.as_deref()?)?;
    options.records.iter().map(AsRef::as_ref).find(|record| number(record) == Some(page))
}
