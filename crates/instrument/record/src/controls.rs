//! Control characters in foreign text: shown on a terminal, they would move the cursor, change colours or worse.

use std::mem;

use serde_json::{Map, Value};

/// Has every string of `value`, and every name, say `\u{1b}` where it has that character.
pub(crate) fn escape(value: &mut Value) {
    match value {
        Value::String(text) => escape_text(text),
        Value::Array(values) => values.iter_mut().for_each(escape),
        Value::Object(fields) => {
            let escaped = |(mut name, mut value): (String, Value)| {
                escape_text(&mut name);
                escape(&mut value);
                (name, value)
            };
            *fields = mem::take(fields).into_iter().map(escaped).collect::<Map<_, _>>();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The same of one text.
pub(crate) fn escape_text(text: &mut String) {
    if text.contains(char::is_control) {
        let escaped =
            |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
        *text = text.chars().map(escaped).collect();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::escape;

    #[test]
    fn control_characters_are_told_and_not_done() {
        let mut value = json!({
            "plain": ["µs, „text“", 7, null],
            "\u{1b}[2J": {"answer": ["\u{1b}[31mred", "two\nlines", "\u{9b}8m", "\u{7f}"]},
        });
        escape(&mut value);
        let expected = json!({
            "plain": ["µs, „text“", 7, null],
            "\\u{1b}[2J": {"answer": ["\\u{1b}[31mred", "two\\nlines", "\\u{9b}8m", "\\u{7f}"]},
        });
        assert_eq!(value, expected);
    }
}
