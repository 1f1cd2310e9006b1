//! What a guest found wrong.

use std::fmt;

use mayfly_memslot::Gpa;

use crate::cache::View;

/// A word that was not what the guest's program says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Where.
    pub gpa: Gpa,
    /// What should have been there.
    pub expected: u64,
    /// What was.
    pub read: u64,
    /// How it was read, and what the other way would have given, where there are two.
    pub other_way: Option<(View, u64)>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gpa, expected, read, other_way } = self;
        write!(f, "{read:#x} instead of {expected:#x} at {gpa}")?;
        match other_way {
            Some((View::Cached, other)) if other == expected => {
                f.write_str(": a line in the cache hides what memory has")
            }
            Some((View::Memory, other)) if other == expected => {
                f.write_str(": memory has not got what a line in the cache holds")
            }
            Some(_) => f.write_str(": neither the cache nor memory has it any more"),
            None => Ok(()),
        }
    }
}
