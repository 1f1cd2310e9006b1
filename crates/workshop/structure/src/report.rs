//! What a check finds.

use std::fmt;
use std::path::{Path, PathBuf};

/// A fault, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Relative to the repository's root.
    pub file: PathBuf,
    /// From 1.
    pub line: Option<usize>,
    /// What is wrong, and what to do.
    pub what: String,
}

impl Fault {
    pub(crate) fn new(
        file: impl AsRef<Path>,
        line: Option<usize>,
        what: impl Into<String>,
    ) -> Fault {
        Fault { file: file.as_ref().to_path_buf(), line, what: what.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file.display(), self.what),
            None => write!(f, "{}: {}", self.file.display(), self.what),
        }
    }
}

impl std::error::Error for Fault {}

/// What a check prints, and what it finds fault with.
#[derive(Debug, Default)]
pub struct Findings {
    /// What a reader may want to know, faults or not.
    pub text: String,
    /// No fault: the check passes.
    pub faults: Vec<Fault>,
}
