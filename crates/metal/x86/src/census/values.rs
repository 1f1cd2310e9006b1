//! What was read, each with its kind and its number; and whether it shows the pattern.

use core::fmt::Write as _;

use crate::kernel::console::Console;

/// A pattern that is an address in its canonical form, and its complement.
pub(super) const PATTERNS: [u64; 2] = [PATTERN, !PATTERN];
const PATTERN: u64 = 0x0000_5ac3_a596_3ce1;

/// What has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    General,
    Control,
    Debug,
    Xcr,
    /// Of the area of XSAVE: eight bytes from there on.
    Vector,
    /// `TSC_AUX`, by RDTSCP.
    CounterAux,
    /// The upper bits of the counter.
    Counter,
    Cpuid,
    Msr,
    Port,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) number: u32,
    pub(super) value: u64,
}

/// The most that are read at a time.
const MOST: usize = 512;

/// All that were read.
pub(super) struct Values {
    values: [Found; MOST],
    count: usize,
}

impl Values {
    pub(super) const fn new() -> Self {
        Self { values: [Found { kind: Kind::General, number: 0, value: 0 }; MOST], count: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    pub(super) fn push(&mut self, kind: Kind, number: u32, value: u64) {
        self.values[self.count] = Found { kind, number, value };
        self.count += 1;
    }

    pub(super) fn all(&self) -> &[Found] {
        &self.values[..self.count]
    }
}

/// Whether four bytes of it are four of a pattern's.
pub(super) fn shows(value: u64) -> bool {
    // The others of a pattern are nearly zeros.
    let parts = |of: u64, last: u32| (0..=last).map(move |byte| (of >> (8 * byte)) as u32);
    PATTERNS
        .into_iter()
        .any(|pattern| parts(pattern, 2).any(|wanted| parts(value, 4).any(|part| part == wanted)))
}

/// Prints numbers that rise, as ranges.
pub(super) fn say_ranges(what: &str, numbers: impl Iterator<Item = u32>) {
    let console = &mut Console;
    let _ = write!(console, "{}: {what}:", crate::NAME);
    let mut range = None;
    let mut print = |range: Option<(u32, u32)>| match range {
        Some((first, last)) if first == last => _ = write!(console, " {first:x}"),
        Some((first, last)) => _ = write!(console, " {first:x}-{last:x}"),
        None => {}
    };
    for number in numbers {
        range = match range {
            Some((first, last)) if last + 1 == number => Some((first, number)),
            _ => {
                print(range);
                Some((number, number))
            }
        };
    }
    print(range);
    let _ = Console.write_str("\r\n");
}
