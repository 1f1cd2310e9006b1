//! Why a file cannot be read as a record: the path, and what is wrong there.

use std::io;
use std::path::PathBuf;

/// Why a file could not be read as a record.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is larger than a record can be.
    #[error("{} has {size} bytes, and a record has {most} at most", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size; or more than is read of a stream.
        size: u64,
        /// The most that is read.
        most: u64,
    },
    /// It is not JSON, or it ends too early.
    #[error("{} is not JSON: {field}{source}", path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// The field that it stops at, as in `results[2].metrics.start.p50: `; nothing where it is in none.
        field: String,
        /// Where it stops being JSON.
        source: serde_json::Error,
    },
    /// It is JSON, but not a Mayfly record.
    #[error("{} is not a Mayfly record: its \"schema\" is {found}, not \"{wanted}\"", path.display())]
    NotARecord {
        /// The file.
        path: PathBuf,
        /// What stands there instead, as JSON; `missing` if nothing.
        found: String,
        /// What would have been right.
        wanted: String,
    },
    /// It was written by a later version of Mayfly.
    #[error("{} is version {version} of {schema}; this Mayfly reads up to version {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// What it is, without its version.
        schema: String,
        /// Its version.
        version: u32,
        /// The latest that this one reads.
        known: u32,
    },
    /// A time in it cannot be one.
    #[error("{} is a damaged record: a time in it is longer than a hundred years", path.display())]
    Time {
        /// The file.
        path: PathBuf,
    },
    /// Its parts do not fit to each other.
    #[error("{} is a damaged record: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// It says that it is a record, but has not a record's shape.
    #[error("{} is a damaged record: {source}", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// Which field, and what is wrong with it.
        source: serde_path_to_error::Error<serde_json::Error>,
    },
}
