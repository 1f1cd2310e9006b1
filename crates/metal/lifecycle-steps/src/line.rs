//! The lines in which a measurement is printed on a console. They are read strictly.
//!
//! A console has other lines as well, before, after and between these. A line that begins with [`Line::MARK`] is one of
//! these. It is an error if such a line is malformed, if a measurement does not end, or if it has lost a line.

use core::fmt;

use crate::row::Row;

/// Instructions and time of one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Retired at EL0, EL1 and EL2. On x86-64 nothing tells them apart, and the last has all.
    pub levels: [u64; 3],
    /// Virtual time, which goes on while nothing runs.
    pub nanoseconds: u64,
}

/// When a sample ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Until {
    /// When the caller has control back.
    Caller,
    /// After [`SETTLE_MILLISECONDS`](crate::times::SETTLE_MILLISECONDS) more, in which the work is done that was left
    /// to other threads.
    All,
}

impl Until {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Caller, Self::All];

    /// The name in lines and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::All => "all",
        }
    }
}

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// What was done.
    pub row: Row,
    /// Until when it is counted.
    pub until: Until,
    /// How often it was done.
    pub times: u32,
    /// What it took, for all times together.
    pub spent: Spent,
}

impl Line {
    /// How all of them begin.
    pub const MARK: &'static str = "mayfly-life";
    /// The first line.
    pub const BEGIN: &'static str = "mayfly-life begin";

    /// The last line: it has the number of lines between it and the first.
    pub fn end(lines: u32) -> impl fmt::Display {
        End(lines)
    }
}

struct End(u32);

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} end lines={}", Line::MARK, self.0)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, until, times, spent: Spent { levels: [el0, el1, el2], nanoseconds } } =
            self;
        let (mark, row, until) = (Self::MARK, row.name(), until.name());
        write!(
            f,
            "{mark} row={row} until={until} times={times} el0={el0} el1={el1} el2={el2} ns={nanoseconds}"
        )
    }
}

/// What is wrong with a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong<'a> {
    /// There is no [`Line::BEGIN`].
    NotBegun,
    /// There is no [`Line::end`].
    NotEnded,
    /// A line is malformed.
    Line(&'a str),
    /// The number of samples is not what the last line says.
    Lost {
        /// The number in the last line.
        said: u32,
        /// The number of samples.
        found: u32,
    },
}

impl fmt::Display for Wrong<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBegun => f.write_str("it has not begun to measure"),
            Self::NotEnded => f.write_str("its measurement did not end"),
            Self::Line(line) => write!(f, "one of its lines is malformed: '{line}'"),
            Self::Lost { said, found } => {
                write!(
                    f,
                    "its last line says that it has printed {said} samples, and {found} have arrived"
                )
            }
        }
    }
}

impl core::error::Error for Wrong<'_> {}

/// A line of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It begins.
    Begin,
    /// A sample.
    Sample(Line),
    /// It is over, after so many samples.
    End(u32),
}

impl Told {
    /// Reads a line; `None` for other lines.
    fn read(line: &str) -> Option<Result<Self, Wrong<'_>>> {
        let line = line.trim_end();
        let rest = line.strip_prefix(Line::MARK)?;
        Some(rest.strip_prefix(' ').and_then(Self::read_rest).ok_or(Wrong::Line(line)))
    }

    fn read_rest(rest: &str) -> Option<Self> {
        if rest == "begin" {
            return Some(Self::Begin);
        }
        if let Some(lines) = rest.strip_prefix("end lines=") {
            return number(lines).and_then(|lines| u32::try_from(lines).ok()).map(Self::End);
        }
        let mut words = rest.split(' ');
        let mut next = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
        let row = Row::named(next("row")?)?;
        let until = next("until")?;
        let until = Until::ALL.into_iter().find(|one| one.name() == until)?;
        let times = u32::try_from(number(next("times")?)?).ok().filter(|times| *times > 0)?;
        let levels = [number(next("el0")?)?, number(next("el1")?)?, number(next("el2")?)?];
        let nanoseconds = number(next("ns")?)?;
        let line = Line { row, until, times, spent: Spent { levels, nanoseconds } };
        words.next().is_none().then_some(Self::Sample(line))
    }
}

/// A number in digits, and nothing else.
pub(crate) fn number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// Calls `sample` with each sample of the measurement in a console's output.
///
/// # Errors
///
/// [`Wrong`], if the measurement is malformed or incomplete. The samples until then must not be used.
pub fn read(console: &str, mut sample: impl FnMut(Line)) -> Result<(), Wrong<'_>> {
    let (mut has_begun, mut found) = (false, 0);
    for line in console.lines() {
        let Some(told) = Told::read(line) else { continue };
        match told? {
            Told::Begin if !has_begun => has_begun = true,
            Told::Sample(line) if has_begun => {
                found += 1;
                sample(line);
            }
            Told::End(said) if has_begun => {
                return if said == found { Ok(()) } else { Err(Wrong::Lost { said, found }) };
            }
            _ => return Err(Wrong::Line(line.trim_end())),
        }
    }
    Err(if has_begun { Wrong::NotEnded } else { Wrong::NotBegun })
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::{String, ToString};
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn all(console: &str) -> Result<Vec<Line>, Wrong<'_>> {
        let mut lines = Vec::new();
        read(console, |line| lines.push(line)).map(|()| lines)
    }

    fn sample() -> Line {
        let spent = Spent { levels: [1, 22, 333], nanoseconds: 4444 };
        Line { row: Row::VmCreated, until: Until::Caller, times: 5, spent }
    }

    #[test]
    fn a_measurement_is_read_from_between_other_lines() {
        let line = sample();
        let shown = "mayfly-life row=vm-created until=caller times=5 el0=1 el1=22 el2=333 ns=4444";
        assert_eq!(line.to_string(), shown);
        let console = format!(
            "booting\r\n{}\r\n{shown}\r\nsomebody else\r\n{shown}\n{}\r\nand more\n",
            Line::BEGIN,
            Line::end(2)
        );
        assert_eq!(all(&console), Ok([line, line].to_vec()));
    }

    #[test]
    fn a_line_that_is_not_as_it_has_to_be_is_an_error_and_is_shown() {
        let good = sample().to_string();
        let wrong = [
            good.replace("vm-created", "vm-made"),
            good.replace("caller", "nobody"),
            good.replace("times=5", "times=0"),
            good.replace("times=5", "times=-5"),
            good.replace("times=5", "times=4294967296"),
            good.replace("el0=1", "el0="),
            good.replace("el0=1", "el0=+1"),
            good.replace("el1=22", "el1=18446744073709551616"),
            good.replace(" ns=4444", ""),
            good.clone() + " more=1",
            good.replace("el1=22 el2=333", "el2=333 el1=22"),
            good.replace("row=", ""),
            "mayfly-life ".to_string(),
            "mayfly-life end".to_string(),
            "mayfly-life end lines=x".to_string(),
            Line::BEGIN.to_string(),
        ];
        for line in wrong {
            let console = format!("{}\n{line}\n{}\n", Line::BEGIN, Line::end(1));
            assert_eq!(all(&console), Err(Wrong::Line(line.trim_end())));
        }
    }

    #[test]
    fn a_measurement_that_is_not_whole_is_an_error() {
        let (begin, line, end) = (Line::BEGIN, sample(), Line::end(1));
        assert_eq!(all(""), Err(Wrong::NotBegun));
        assert_eq!(all("KVM: nothing\n"), Err(Wrong::NotBegun));
        assert_eq!(all(&format!("{begin}\n{line}\n")), Err(Wrong::NotEnded));
        let lost = format!("{begin}\n{end}\n");
        assert_eq!(all(&lost), Err(Wrong::Lost { said: 1, found: 0 }));
        let early = format!("{line}\n{begin}\n{end}\n");
        assert_eq!(all(&early), Err(Wrong::Line(&line.to_string())));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            row in 0..Row::ALL.len(), is_all: bool, times in 1_u32.., levels: [u64; 3], nanoseconds: u64
        ) {
            let spent = Spent { levels, nanoseconds };
            let until = Until::ALL[usize::from(is_all)];
            let line = Line { row: Row::ALL[row], until, times, spent };
            let console = format!("{}\n{line}\n{}\n", Line::BEGIN, Line::end(1));
            prop_assert_eq!(all(&console), Ok([line].to_vec()));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(mayfly-life |begin|row=|hvc| |=|[0-9]|\n|end lines=|\\PC){0,40}") {
            let _ = all(&text);
            let _ = all(&(String::from(Line::BEGIN) + "\n" + &text));
        }
    }
}
