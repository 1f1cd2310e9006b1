//! Tables in a document, between markers.

use crate::table::Table;

/// What is wrong with a document.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkerError {
    /// A marker is missing, stands there twice, or stands behind its end.
    #[error("the marker '{0}' is missing, misplaced, or not once in the document")]
    Marker(String),
    /// The text between the markers does not have the form that `make figures` writes.
    #[error("the table '{name}' is not as `make figures` writes it: {what}")]
    Form {
        /// Which table.
        name: String,
        /// The first difference.
        what: String,
    },
}

/// The document with `text` between the markers of `name`.
///
/// # Errors
///
/// A marker is missing.
pub fn replace(document: &str, name: &str, text: &str) -> Result<String, MarkerError> {
    let (before, _, after) = split(document, name)?;
    Ok(format!("{before}{}\n{}", text.trim_end(), after))
}

/// Whether a document has each of its tables in the form in which `make figures` writes it, below the command that measures
/// it, and has the markers of the host.
///
/// # Errors
///
/// The first table that is missing or different.
pub fn check<'a>(
    document: &str,
    tables: impl IntoIterator<Item = &'a Table>,
) -> Result<(), MarkerError> {
    for table in tables {
        let (before, text, _) = split(document, table.name)?;
        let wrong = |what| MarkerError::Form { name: table.name.to_owned(), what };
        table.is_form_of(text).map_err(wrong)?;
        let command = table.command();
        if !unbroken(before).contains(&command) {
            return Err(wrong(format!("{command} does not stand before it")));
        }
    }
    split(document, HOST).map(drop)
}

/// A text without the ends of its lines.
fn unbroken(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The name of the markers around the facts of the host that all tables were measured on.
pub const HOST: &str = "host";

/// The text before, between and behind the markers of `name`. The markers belong to the text outside.
pub(crate) fn split<'a>(
    document: &'a str,
    name: &str,
) -> Result<(&'a str, &'a str, &'a str), MarkerError> {
    let once = |text: &'a str, marker: &str| {
        let missing = || MarkerError::Marker(marker.trim().to_owned());
        let at = text.find(marker).ok_or_else(missing)?;
        let is_once = text[at + marker.len()..].find(marker).is_none();
        if is_once { Ok(at) } else { Err(missing()) }
    };
    let (begin, end) = (format!("<!-- figures: {name} -->\n"), format!("<!-- end of {name} -->"));
    let first = once(document, &begin)? + begin.len();
    let last = once(document, &end)?;
    if last < first {
        return Err(MarkerError::Marker(end));
    }
    Ok((&document[..first], &document[first..last], &document[last..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# A\n\n<!-- figures: one -->\nold\n<!-- end of one -->\n\nB\n";

    #[test]
    fn what_is_between_the_markers_is_replaced_and_nothing_else() {
        let new = replace(DOCUMENT, "one", "| new |\n").unwrap();
        assert_eq!(new, "# A\n\n<!-- figures: one -->\n| new |\n<!-- end of one -->\n\nB\n");
        assert_eq!(replace(&new, "one", "old").unwrap(), DOCUMENT);
    }

    #[test]
    fn a_marker_that_is_missing_twice_there_or_behind_its_end_is_named() {
        let missing = |document: &str| replace(document, "one", "").unwrap_err().to_string();
        assert!(missing("no marker").contains("<!-- figures: one -->"));
        assert!(missing(&DOCUMENT.repeat(2)).contains("not once"));
        assert!(missing("<!-- figures: one -->\n").contains("<!-- end of one -->"));
        assert!(missing("<!-- end of one --><!-- figures: one -->\n").contains("end of one"));
    }
}
