//! The program's process before it executes the program: it waits for its turn, installs the filter, and reports why
//! an execution failed.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};

use super::launch::{Launch, Output};
use crate::filter;
use crate::sys::process::{self, Forked};
use crate::sys::signals;

/// What it says, a byte each.
const NO_FILTER: u8 = b'f';
const GAVE_UP_RIGHTS: u8 = b'n';
/// Followed by the error's number.
const NOT_EXECUTED: u8 = b'x';

/// A process that is to be the program when it is told to.
pub(super) struct Waiting {
    pub(super) pid: i32,
    go: OwnedFd,
    status: OwnedFd,
}

impl Waiting {
    /// Starts it; `filtered` says whether it takes the filter. This process is a guardian from now on.
    pub(super) fn start(
        launch: &Launch,
        arguments: &[CString],
        null: &OwnedFd,
        filtered: bool,
    ) -> io::Result<Self> {
        let (turn, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let (status, tell) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&status, true)?;
        let pid = match process::fork()? {
            Forked::Parent(pid) => pid,
            Forked::Child => {
                drop(go);
                become_program(launch, arguments, &turn, &tell, null, filtered);
            }
        };
        // Only now: the program has what this process was given. The front end may be gone when it is written to; and the
        // terminal has no say in when this process ends.
        signals::ignore(&signals::NOT_FOR_GUARDIANS);
        // They were set for the program, which ends with this process.
        process::lift_limits();
        Ok(Self { pid, go, status })
    }

    /// What has to stay open until its turn.
    pub(super) fn descriptors(&self) -> [i32; 2] {
        [self.go.as_raw_fd(), self.status.as_raw_fd()]
    }

    /// It is its turn. What it says can be read from what is returned, and does not block.
    pub(super) fn go(self) -> io::Result<File> {
        File::from(self.go).write_all(&[0])?;
        Ok(File::from(self.status))
    }

    /// It never gets its turn, and so it ends.
    pub(super) fn cancel(self) {
        drop(self.go);
        process::reap(self.pid);
    }
}

/// What it has said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// The filter could not be had.
    pub(super) no_filter: bool,
    /// For the filter it gave up what set-user-ID programs would give.
    pub(super) gave_up_rights: bool,
    /// The error by which nothing was executed.
    pub(super) not_executed: Option<i32>,
}

impl Said {
    /// Reads what it has said until now.
    pub(super) fn read(mut status: File) -> Self {
        let mut told = Vec::new();
        let _ = status.read_to_end(&mut told);
        Self::of(&told)
    }

    fn of(told: &[u8]) -> Self {
        let mut said = Self::default();
        let mut rest = told;
        while let Some((word, after)) = rest.split_first() {
            rest = after;
            match *word {
                NO_FILTER => said.no_filter = true,
                GAVE_UP_RIGHTS => said.gave_up_rights = true,
                NOT_EXECUTED => {
                    let error = after.first_chunk().copied();
                    said.not_executed = error.map(i32::from_le_bytes);
                    rest = &[];
                }
                _ => {}
            }
        }
        said
    }
}

/// Waits for its turn, takes the filter if there is to be one, and executes the program.
fn become_program(
    launch: &Launch,
    arguments: &[CString],
    turn: &OwnedFd,
    tell: &OwnedFd,
    null: &OwnedFd,
    filtered: bool,
) -> ! {
    if rustix::io::read(turn, &mut [0]) != Ok(1) {
        process::exit(127);
    }
    // Rust's runtime ignores it, and so may this process's parent, as systemd does.
    if !signals::pipe_was_ignored() {
        process::default_signal(libc::SIGPIPE);
    }
    if launch.output == Output::Null {
        let _ = redirect_all(null);
    }
    let installed = if filtered { process::install_filter(&filter::program()) } else { Ok(false) };
    let said = match installed {
        Ok(false) => None,
        Ok(true) => Some(GAVE_UP_RIGHTS),
        Err(_) => Some(NO_FILTER),
    };
    if let Some(said) = said {
        let _ = rustix::io::write(tell, &[said]);
    }
    let error = process::execute(arguments).raw_os_error().unwrap_or(0);
    let mut said = vec![NOT_EXECUTED];
    said.extend(error.to_le_bytes());
    let _ = rustix::io::write(tell, &said);
    process::exit(127)
}

/// Gives this process a file as all its standard streams.
pub(super) fn redirect_all(to: &OwnedFd) -> io::Result<()> {
    rustix::stdio::dup2_stdin(to)?;
    rustix::stdio::dup2_stdout(to)?;
    Ok(rustix::stdio::dup2_stderr(to)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_process_says_is_read_in_any_order_and_half_of_it_is_nothing() {
        let error = [NOT_EXECUTED, 2, 1, 0, 0];
        let none = Said::default();
        assert_eq!(Said::of(&[]), none);
        assert_eq!(Said::of(&error), Said { not_executed: Some(258), ..none });
        assert_eq!(Said::of(&error[..4]), none);
        let all = [&[GAVE_UP_RIGHTS, NO_FILTER][..], &error].concat();
        let said = Said { no_filter: true, gave_up_rights: true, not_executed: Some(258) };
        assert_eq!(Said::of(&all), said);
        // An error's number may look like a word.
        let error = [NOT_EXECUTED, NO_FILTER, 0, 0, 0];
        assert_eq!(Said::of(&error), Said { not_executed: Some(102), ..none });
    }
}
