//! The choice between the two recorders.

use super::error::Error;
use super::guardian;
use super::launch::{Launch, Recorded};
use super::rights::{self, is_32_bit};
use super::{attach, tracefs};

/// Which recorder is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// tracefs where it can be had, else `ptrace`.
    #[default]
    Auto,
    /// tracefs, or none.
    Tracefs,
    /// `ptrace`.
    Ptrace,
}

/// Records a program as [`record`](crate::record()) does, by the recorder that is chosen. Where tracefs should be there and
/// is not, `warn` is given why.
///
/// # Errors
/// As there; [`Error::NoTracefs`] where it was to be that and cannot.
pub fn record_by(
    choice: Choice,
    launch: &Launch,
    warn: &mut dyn FnMut(&str),
) -> Result<Recorded, Error> {
    let program = launch.command.first().and_then(|one| rights::found(&one.to_string_lossy()));
    // Its calls have no events; and those that are held back have to be stopped.
    let is_for_ptrace = launch.delay.is_some() || program.is_some_and(|one| is_32_bit(&one));
    if choice == Choice::Ptrace || (choice == Choice::Auto && (is_for_ptrace || !may())) {
        return guardian::record(launch, warn);
    }
    match after(guardian::run(launch, warn, tracefs::record)) {
        Err(Error::NoTracefs(why)) if choice == Choice::Auto => {
            warn(&without(&why));
            guardian::record(launch, warn)
        }
        recorded => recorded,
    }
}

/// The same of a process that runs.
///
/// # Errors
/// As [`attach`](crate::attach()) and [`record_by`] have them.
pub fn attach_by(choice: Choice, pid: i32, warn: &mut dyn FnMut(&str)) -> Result<Recorded, Error> {
    let by_ptrace = |warn: &mut dyn FnMut(&str)| {
        warn(&format!(
            "tracing process {pid} by ptrace, which stops it at every system call; ^C ends the trace, not the process"
        ));
        attach::attach(pid)
    };
    if choice == Choice::Ptrace {
        return by_ptrace(warn);
    }
    // ptrace interrupts what the threads wait in, which some programs take for an error: that is for the user to ask for.
    if choice == Choice::Auto && !may() {
        return Err(Error::WouldInterrupt("it requires root".to_owned()));
    }
    match after(attach::run(pid, tracefs::attach)) {
        Err(Error::NoTracefs(why)) if choice == Choice::Auto => Err(Error::WouldInterrupt(why)),
        recorded => recorded,
    }
}

/// Removes what a killed guardian has left.
fn after(recorded: Result<Recorded, Error>) -> Result<Recorded, Error> {
    if !matches!(recorded, Err(Error::GuardianDied)) {
        return recorded;
    }
    tracefs::clean();
    Err(Error::ReaderDied)
}

/// Whether this user can be expected to have tracefs.
fn may() -> bool {
    rustix::process::geteuid().is_root()
}

fn without(why: &str) -> String {
    format!("tracefs cannot be used ({why}): using ptrace instead")
}
