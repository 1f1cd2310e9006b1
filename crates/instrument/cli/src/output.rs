//! Where the command writes.

use std::io::{self, ErrorKind, Write};

use mayfly_report::WIDTH;

use crate::failure::Failure;

/// Below it nothing but single words would stand in a line.
const NARROWEST: usize = 30;

/// One of the two standard streams.
#[derive(Clone, Copy)]
pub(crate) enum Stream {
    Out,
    Err,
}

impl Stream {
    /// Writes all of `text`. That a reader went away, as `head` does, is no failure.
    pub(crate) fn write(self, text: &str) -> Result<(), Failure> {
        self.goes_on(text).map(|_| ())
    }

    /// The same; says whether there is a reader still.
    pub(crate) fn goes_on(self, text: &str) -> Result<bool, Failure> {
        let written = match self {
            Self::Out => write_all(io::stdout().lock(), text),
            Self::Err => write_all(io::stderr().lock(), text),
        };
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::runtime(format_args!("cannot write the output: {error}")))
            }
            written => Ok(written.is_ok()),
        }
    }

    /// How many columns a line may have here: those of the terminal, or of `COLUMNS`, which comes first; no more than are
    /// legible.
    pub(crate) fn width(self) -> usize {
        let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let term = match self {
            Self::Out => console::Term::stdout(),
            Self::Err => console::Term::stderr(),
        };
        let found = || term.size_checked().map(|(_, columns)| usize::from(columns));
        let columns = said.filter(|columns| *columns > 0).or_else(found);
        columns.unwrap_or(WIDTH).clamp(NARROWEST, WIDTH)
    }

    /// Whether to colour what is written here: a terminal that can, and no `NO_COLOR`.
    pub(crate) fn colour(self) -> bool {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        !refused
            && match self {
                Self::Out => console::colors_enabled(),
                Self::Err => console::colors_enabled_stderr(),
            }
    }
}

fn write_all(mut stream: impl Write, text: &str) -> io::Result<()> {
    stream.write_all(text.as_bytes())?;
    stream.flush()
}
