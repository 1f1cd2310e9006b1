//! What can go wrong before anything is recorded.

use std::io;

/// Why nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no program to run.
    #[error("there is no command to trace")]
    NoCommand,
    /// An argument has a byte in it that the kernel takes for its end.
    #[error("an argument of the command has a NUL byte in it")]
    Nul,
    /// The program cannot be executed.
    #[error("cannot execute {program}: {error}")]
    NotExecuted {
        /// Its name.
        program: String,
        /// Why not.
        error: io::Error,
    },
    /// No process may be traced here.
    #[error("{0}")]
    Denied(String),
    /// There is no tracefs, or it has no events; nothing was run.
    #[error("cannot trace by tracefs: {0}")]
    NoTracefs(String),
    /// Only `ptrace` could attach, and the user has not asked for it.
    #[error(
        "a running process is traced by tracefs, which cannot be used ({0}). --recorder ptrace can be used: it interrupts the calls that the threads wait in, and some programs end because of that"
    )]
    WouldInterrupt(String),
    /// What is needed for it cannot be had.
    #[error("cannot trace: {0}")]
    System(#[from] io::Error),
    /// The guardian is gone, and with it the program.
    #[error(
        "the recorder ended before the program did, so the kernel killed the program: nothing was recorded"
    )]
    GuardianDied,
    /// The same by tracefs, on which the program does not hang.
    #[error(
        "the recorder ended before the program did: the program goes on, and nothing was recorded"
    )]
    ReaderDied,
}
