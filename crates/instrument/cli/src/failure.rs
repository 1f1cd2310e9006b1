//! How the command fails: one line on standard error, and an exit code.

use std::fmt::Display;
use std::io::{Write, stderr};
use std::process::ExitCode;

use mayfly_lab::Error;

/// Something went wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// What was asked for cannot be: exit code 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// What was asked for did not work: exit code 1.
    pub(crate) fn runtime(message: impl Display) -> Self {
        Self { code: 1, message: message.to_string() }
    }

    /// With an exit code that says more than these.
    pub(crate) fn with_code(code: u8, message: impl Display) -> Self {
        Self { code, message: message.to_string() }
    }

    /// The same, and says more.
    pub(crate) fn and(self, more: &str) -> Self {
        Self { message: format!("{}; {more}", self.message), ..self }
    }

    /// Nothing of what was asked for by name could run: exit code 3.
    pub(crate) fn nothing_ran(why: impl Display) -> Self {
        Self { code: 3, message: format!("nothing that was asked for could run: {why}") }
    }

    /// No bound can be held against a record of which something was lost, as `lost` says: exit code 4, if there is a bound.
    pub(crate) fn if_incomplete<T>(bounds: &[T], lost: Option<String>) -> Result<(), Self> {
        match lost.filter(|_| !bounds.is_empty()) {
            None => Ok(()),
            Some(why) => Err(Self {
                code: 4,
                message: format!("the record is incomplete, and bounds are not checked: {why}"),
            }),
        }
    }

    /// Says it, in exactly one line whatever it quotes, and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        // Standard error may be closed; the exit code still tells.
        let _ = writeln!(stderr(), "mayfly: {}", one_line(&self.message));
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::usage(error.to_string())
    }
}

/// How many there are beside the one that a line names.
pub(crate) fn and_more(more: usize) -> String {
    if more == 0 { String::new() } else { format!(", and {more} more") }
}

/// The text with its control characters escaped: they come from arguments and file names.
fn one_line(text: &str) -> String {
    let escape =
        |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}
