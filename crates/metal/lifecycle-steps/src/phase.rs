//! What is executed in a phase of the life of VMs that run an operating system: the line in which both sides print it.

use core::fmt;

use crate::line::number;

/// Retired instructions, by who executes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// A program of the host's, at EL0: the VMM. Mayfly has none.
    pub vmm: u64,
    /// The host's kernel, if it runs at EL1. Mayfly has none.
    pub el1: u64,
    /// EL2.
    pub el2: u64,
    /// Guests, at EL0 and EL1.
    pub guest: u64,
}

/// A phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase<'a> {
    /// Its name: no blanks.
    pub name: &'a str,
    /// What is executed in it.
    pub executed: Executed,
    /// Virtual time.
    pub nanoseconds: u64,
}

impl<'a> Phase<'a> {
    /// How its line begins.
    pub const MARK: &'static str = "mayfly-phase ";

    /// The phase of a line. `None` if the line is another.
    ///
    /// # Errors
    ///
    /// The line, if it begins as that of a phase, and is malformed.
    pub fn read(line: &'a str) -> Option<Result<Self, &'a str>> {
        let line = line.trim_end();
        let rest = line.strip_prefix(Self::MARK)?;
        Some(Self::read_rest(rest).ok_or(line))
    }

    fn read_rest(rest: &'a str) -> Option<Self> {
        let mut words = rest.split(' ');
        let name = words.next().filter(|name| !name.is_empty())?;
        let mut next = |what: &str| number(words.next()?.strip_prefix(what)?.strip_prefix('=')?);
        let (vmm, el1, el2) = (next("vmm")?, next("el1")?, next("el2")?);
        let executed = Executed { vmm, el1, el2, guest: next("guest")? };
        let nanoseconds = next("ns")?;
        words.next().is_none().then_some(Self { name, executed, nanoseconds })
    }
}

impl fmt::Display for Phase<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, executed: Executed { vmm, el1, el2, guest }, nanoseconds } = self;
        let mark = Self::MARK;
        write!(f, "{mark}{name} vmm={vmm} el1={el1} el2={el2} guest={guest} ns={nanoseconds}")
    }
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;

    #[test]
    fn a_phase_is_read_as_it_is_printed_and_nothing_else_is() {
        let executed = Executed { vmm: 1, el1: 2, el2: u64::MAX, guest: 4 };
        let phase = Phase { name: "boot", executed, nanoseconds: 5 };
        let line = format!("{phase}\r\n");
        assert_eq!(Phase::read(&line), Some(Ok(phase)));
        assert_eq!(Phase::read("mayfly: boot"), None);
        let line = line.trim_end();
        let wrong = [
            line.replace(" ns=5", ""),
            line.replace("vmm=1", "vmm=-1"),
            line.replace("el1=2", "el1="),
            line.replace("el2", "el3"),
            line.replace("boot ", " "),
            format!("{line} more"),
        ];
        for line in &wrong {
            assert_eq!(Phase::read(line), Some(Err(&**line)));
        }
    }
}
