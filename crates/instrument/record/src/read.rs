//! Reading a record back.

mod error;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::controls;
use crate::document::{Record, SCHEMA, VERSION};
pub use error::ReadError;

/// Bytes beyond which a file is not read: far more than a record of every experiment has.
const MOST: u64 = 64 << 20;
/// Bytes by which it is told what a file is.
const HEAD: u64 = 4 << 10;

/// A document that is JSON and was read from a file; what it says is to be found out.
#[derive(Debug)]
pub struct Document {
    path: PathBuf,
    content: Value,
}

impl Document {
    /// Reads a file of 64 MiB at most, or of `most` bytes where `is_large` says so of its first kilobytes.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is too large, or is not JSON; the message names the file.
    pub fn read(
        path: &Path,
        is_large: impl FnOnce(&[u8]) -> bool,
        most: u64,
    ) -> Result<Self, ReadError> {
        let failed = |source| ReadError::File { path: path.into(), source };
        let mut file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut text = Vec::new();
        file.by_ref().take(HEAD).read_to_end(&mut text).map_err(failed)?;
        let most = if is_large(&text) { most } else { MOST };
        file.take(most + 1 - text.len() as u64).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > most {
            return Err(ReadError::TooLarge { path: path.into(), size: size.max(most + 1), most });
        }
        Self::parse(&text, path)
    }

    /// The same of its text; `path` is what errors call it. Control characters in it are escaped, so that a terminal may be
    /// shown whatever it says.
    ///
    /// # Errors
    ///
    /// It is not JSON.
    pub fn parse(text: &[u8], path: &Path) -> Result<Self, ReadError> {
        let mut content: Value = serde_json::from_slice(text).map_err(|source| {
            ReadError::NotJson { path: path.into(), field: last_field(text), source }
        })?;
        controls::escape(&mut content);
        Ok(Self { path: path.into(), content })
    }

    /// Whether it says that it has a schema of this name, of any version.
    pub fn is_of(&self, schema: &str) -> bool {
        let said = self.content.get("schema").and_then(Value::as_str);
        said.is_some_and(|said| said.split('/').next() == Some(schema))
    }

    /// What it says, in the shape of a schema that is known up to version `known`. Fields that this version does not know
    /// are ignored.
    ///
    /// # Errors
    ///
    /// It has another schema, a later version, or not the schema's shape; the message names the file, and the field.
    pub fn shaped<T: DeserializeOwned>(self, schema: &str, known: u32) -> Result<T, ReadError> {
        let Self { path, content } = self;
        match version(content.get("schema"), schema) {
            Ok(version) if version <= known => {}
            Ok(version) => {
                let schema = schema.to_owned();
                return Err(ReadError::Newer { path, schema, version, known });
            }
            Err(found) => {
                return Err(ReadError::NotARecord {
                    path,
                    found,
                    wanted: format!("{schema}/{known}"),
                });
            }
        }
        serde_path_to_error::deserialize(content)
            .map_err(|source| ReadError::Shape { path, source })
    }
}

/// Which field the text stops being JSON in, to be followed by what is wrong.
fn last_field(text: &[u8]) -> String {
    /// More would hide what is wrong with it.
    const MOST: usize = 200;
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = serde_path_to_error::deserialize::<_, Value>(&mut json);
    let mut field = read.err().map(|error| error.path().to_string()).unwrap_or_default();
    controls::escape_text(&mut field);
    // A path of which no part is known ends in a question mark.
    if matches!(field.as_str(), "" | "." | "?") || field.chars().count() > MOST {
        return String::new();
    }
    field + ": "
}

impl Record {
    /// Reads a record from a file. Fields that this version does not know are ignored.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not JSON, or is not a record of a version known here; the message names
    /// the file and, in a damaged record, the field.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Document::read(path, |_| false, MOST)?.record()
    }

    /// Reads a record from its text; `path` is what errors call it.
    ///
    /// # Errors
    ///
    /// As [`Record::read`].
    pub fn parse(text: &[u8], path: &Path) -> Result<Self, ReadError> {
        Document::parse(text, path)?.record()
    }
}

impl Document {
    /// The record of experiments that it is.
    ///
    /// # Errors
    ///
    /// As [`Document::shaped`].
    pub fn record(self) -> Result<Record, ReadError> {
        self.shaped(SCHEMA, VERSION)
    }
}

/// The version in a schema name, or what stands there instead.
fn version(schema: Option<&Value>, name: &str) -> Result<u32, String> {
    let Some(schema) = schema else { return Err("missing".to_owned()) };
    schema
        .as_str()
        .and_then(|said| said.strip_prefix(name)?.strip_prefix('/')?.parse().ok())
        .filter(|&version| version > 0)
        .ok_or_else(|| schema.to_string())
}

#[cfg(test)]
mod tests;
