//! Facts that stand in files of one line.

use std::fs;
use std::path::Path;

/// The first line of a file, if it can be read and is not blank.
pub(super) fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_missing_or_blank_gives_no_fact() {
        assert_eq!(line("/nonexistent/fact"), None);
        assert_eq!(line("/dev/null"), None);
    }
}
