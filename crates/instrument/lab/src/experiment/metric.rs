//! What an experiment measures.

/// Something that an experiment measures.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name in records, words joined by underscores.
    pub name: &'static str,
    /// What is timed, in one line: from where to where.
    pub summary: &'static str,
}
