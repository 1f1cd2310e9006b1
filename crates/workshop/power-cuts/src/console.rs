//! What a guest has said in one life.

use std::io::{BufRead, BufReader, Read};

/// The lines that are shown of a console.
const SHOWN: usize = 200;

/// A console's whole lines.
#[derive(Debug, Default)]
pub(crate) struct Console(Vec<String>);

impl Console {
    /// Reads it to its end.
    pub(crate) fn read(from: impl Read) -> Self {
        let (mut from, mut lines, mut bytes) = (BufReader::new(from), Vec::new(), Vec::new());
        // A line without an end was cut off, and with it perhaps the last digits of a number.
        while from.read_until(b'\n', &mut bytes).is_ok() && bytes.ends_with(b"\n") {
            lines.push(String::from_utf8_lossy(&bytes).trim_end().to_owned());
            bytes.clear();
        }
        Self(lines)
    }

    /// Up to which number it says to have flushed.
    pub(crate) fn said(&self) -> Option<u64> {
        self.0.iter().rev().find_map(|line| line.strip_prefix("guest: flushed ")?.parse().ok())
    }

    /// Whether it says to have checked its disk.
    pub(crate) fn has_found(&self) -> bool {
        self.0.iter().any(|line| line.starts_with("guest: found"))
    }

    /// Whether it says that something is wrong.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.iter().any(|line| line.contains("FAILED") || line.contains("panicked"))
    }

    /// Prints its last lines.
    pub(crate) fn show(&self) {
        self.0.iter().skip(self.0.len().saturating_sub(SHOWN)).for_each(|line| eprintln!("{line}"));
    }
}
