//! Reading the record of a trace back.

use std::path::Path;

use mayfly_record::{Document, ReadError};

use crate::record::Trace;

/// The schema's name, without its version, and the version that this code writes and reads.
const NAME: &str = "mayfly.trace";
const VERSION: u32 = 1;

/// No time is longer, in nanoseconds: a hundred years. So sums of a few are still numbers.
const LONGEST: u64 = 100 * 366 * 86_400 * 1_000_000_000;

impl Trace {
    /// Whether a document is a trace, of any version.
    pub fn is_in(document: &Document) -> bool {
        document.is_of(NAME)
    }

    /// The trace that a document is; `path` is what errors call it.
    ///
    /// # Errors
    ///
    /// It is none of a version known here, or is damaged.
    pub fn of(document: Document, path: &Path) -> Result<Self, ReadError> {
        let trace: Self = document.shaped(NAME, VERSION)?;
        let is_sane = trace.times().all(|time| time <= LONGEST);
        if is_sane { Ok(trace) } else { Err(ReadError::Time { path: path.into() }) }
    }

    /// Every time that is added to another somewhere.
    fn times(&self) -> impl Iterator<Item = u64> {
        let calls = self.calls.iter().flat_map(|one| [one.at, one.took.unwrap_or(0)]);
        let samples = self.samples.iter().flat_map(|one| [one.at, one.took]);
        let phases = self.phases.iter().flat_map(|one| [one.at, one.took, one.in_calls]);
        let wakes = self.wakes.iter().flat_map(|one| [one.since, one.at]);
        let stalls = self.stalls.iter().flat_map(|one| [one.at, one.took]);
        let accounts = self.accounts.iter().flat_map(|one| [one.at, one.ran, one.queued]);
        let lives = self.lives.iter().flat_map(|one| [one.at, one.took]);
        let threads = self.threads.iter();
        let threads =
            threads.flat_map(|one| [one.at, one.ending.unwrap_or(0), one.gone.unwrap_or(0)]);
        let begun = self.from.as_ref().map_or(0, |from| from.at);
        [self.span, begun]
            .into_iter()
            .chain(calls)
            .chain(samples)
            .chain(phases)
            .chain(stalls)
            .chain(wakes)
            .chain(accounts)
            .chain(lives)
            .chain(threads)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::record::{Call, SCHEMA};

    fn read(text: &str) -> Result<Trace, String> {
        let path = Path::new("t.json");
        let document = Document::parse(text.as_bytes(), path).map_err(|error| error.to_string())?;
        Trace::of(document, path).map_err(|error| error.to_string())
    }

    fn trace() -> Trace {
        let call = Call { tid: 1, at: 5, took: Some(6), name: "open".into(), ..Call::default() };
        Trace { schema: SCHEMA.to_owned(), span: 20, calls: vec![call], ..Trace::default() }
    }

    #[test]
    fn a_trace_reads_back_as_it_was_written() {
        assert_eq!(read(&trace().to_json()).unwrap(), trace());
    }

    #[test]
    fn what_is_no_trace_is_refused_in_a_line_that_says_why() {
        let mut document = serde_json::to_value(trace()).unwrap();
        let mut refused = |pointer: &str, value: serde_json::Value| {
            let place = document.pointer_mut(pointer).unwrap();
            let before = std::mem::replace(place, value);
            let said = read(&document.to_string()).unwrap_err();
            *document.pointer_mut(pointer).unwrap() = before;
            assert!(said.contains("t.json") && !said.contains('\n'), "{said}");
            said
        };
        assert!(refused("/schema", json!("mayfly.trace/2")).contains("version 2"));
        assert!(refused("/schema", json!("mayfly.record/1")).contains("\"mayfly.trace/1\""));
        assert!(refused("/calls/0/took", json!("long")).contains("calls[0].took"));
        assert!(refused("/calls/0/took", json!(u64::MAX)).contains("hundred years"));
        assert!(refused("/span", json!(u64::MAX)).contains("hundred years"));
    }

    #[test]
    fn what_a_program_was_called_does_not_drive_the_terminal() {
        let mut trace = trace();
        trace.calls[0].name = "\u{1b}[2J".into();
        assert_eq!(read(&trace.to_json()).unwrap().calls[0].name, "\\u{1b}[2J");
    }
}
