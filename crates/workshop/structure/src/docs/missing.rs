//! A name that a page has and that is not there.

/// What is missing, and where it is named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Missing {
    /// From 1.
    pub(super) line: usize,
    /// As it would stand in the list of others' names.
    pub(super) name: String,
    /// What is wrong, and what to do.
    pub(super) what: String,
}
