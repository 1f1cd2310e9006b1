//! What an experiment can be told.

/// A parameter that an experiment reads.
#[derive(Debug, PartialEq, Eq)]
pub struct Param {
    /// The name on the command line, without the dashes.
    pub name: &'static str,
    /// What is taken where the user sets nothing.
    pub default: &'static str,
    /// What it means to this experiment, in one line.
    pub summary: &'static str,
}
