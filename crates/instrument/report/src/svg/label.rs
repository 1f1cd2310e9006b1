//! Texts as a picture has them.

/// A number with the sign that a picture can have, and a terminal's text need not.
pub(super) fn micro(told: &str) -> String {
    told.replace(" us", " µs")
}

/// A text of so many characters at most.
pub(super) fn cut(text: &str, columns: usize) -> String {
    match text.char_indices().nth(columns) {
        None => text.to_owned(),
        Some(_) => text.chars().take(columns - 1).chain(['…']).collect(),
    }
}
