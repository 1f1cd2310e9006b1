//! Signals that are waited for instead of handled.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, mem, ptr};

use libc::{c_int, pid_t, sigset_t};

use super::checked;

static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

// Rust's runtime ignores SIGPIPE before `main`, and does not say what was before.
// SAFETY: the C library calls what this section points to, before `main` and on the one thread there is. It gives three
// arguments, which a C function need not take.
#[used]
#[unsafe(link_section = ".init_array")]
static ASK_OF_PIPE: extern "C" fn() = ask_of_pipe;

extern "C" fn ask_of_pipe() {
    // SAFETY: all bits zero are a value of this plain structure.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: no action is set, and the present one is written to a local of ours.
    let asked = unsafe { libc::sigaction(libc::SIGPIPE, ptr::null(), &raw mut action) };
    let ignored = asked == 0 && action.sa_sigaction == libc::SIG_IGN;
    PIPE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Whether this program was started to ignore SIGPIPE.
pub(crate) fn pipe_was_ignored() -> bool {
    PIPE_WAS_IGNORED.load(Ordering::Relaxed)
}

fn set(signals: &[c_int]) -> sigset_t {
    // SAFETY: all bits zero are a value of this plain structure, and sigemptyset makes it an empty set.
    let mut set: sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is a local of ours.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: the same; a number that is no signal is refused by sigaddset, and left out.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    set
}

/// Holds signals back from this thread, and from those that it starts.
pub(crate) fn block(signals: &[c_int]) {
    let set = set(signals);
    // SAFETY: the set is initialised, and the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) };
}

/// Lets signals through to this thread again.
pub(crate) fn unblock(signals: &[c_int]) {
    let set = set(signals);
    // SAFETY: the set is initialised, and the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut()) };
}

/// Has this process ignore signals.
pub(crate) fn ignore(signals: &[c_int]) {
    for signal in signals {
        // SAFETY: SIG_IGN is no handler of ours that could run.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

/// Signals that ask this process to end.
pub(crate) const ENDING: [c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Signals that are not to end, or stop, a guardian.
pub(crate) const NOT_FOR_GUARDIANS: [i32; 8] = [
    libc::SIGPIPE,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGTSTP,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Those signals, held back from this thread, and from those that it starts, until this is dropped.
pub(crate) struct Asked(io::Result<OwnedFd>);

impl Asked {
    /// Holds them back.
    pub(crate) fn listen() -> Self {
        block(&ENDING);
        Self(descriptor(&ENDING))
    }

    /// Whether one has come since this was asked last.
    pub(crate) fn has_come(&self) -> bool {
        self.0.as_ref().is_ok_and(|heard| read(heard).is_some())
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // What came in the last moment was meant for what is over.
        while self.has_come() {}
        unblock(&ENDING);
    }
}

/// Waits for one of `signals`, which are blocked, and no longer than `at_most`.
pub(crate) fn wait(signals: &[c_int], at_most: Duration) {
    let set = set(signals);
    let time = libc::timespec {
        tv_sec: at_most.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // SAFETY: both are initialised, and what was signalled is not asked for.
    unsafe { libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const time) };
}

/// A descriptor that blocked signals are read from.
pub(crate) fn descriptor(signals: &[c_int]) -> io::Result<OwnedFd> {
    let set = set(signals);
    // SAFETY: the set is initialised.
    let fd = checked(unsafe {
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    })?;
    // SAFETY: the kernel has just made this descriptor, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The next signal that came, and whether another process sent it, and not the kernel for a terminal.
pub(crate) fn read(from: &OwnedFd) -> Option<(c_int, bool)> {
    // SAFETY: all bits zero are a value of this plain structure.
    let mut info: libc::signalfd_siginfo = unsafe { mem::zeroed() };
    let size = mem::size_of_val(&info);
    // SAFETY: the kernel writes at most `size` bytes to `info`.
    let read = unsafe { libc::read(from.as_raw_fd(), (&raw mut info).cast(), size) };
    let sent = info.ssi_code == libc::SI_USER || info.ssi_code == libc::SI_QUEUE;
    (read == size.cast_signed()).then_some((info.ssi_signo.cast_signed(), sent))
}

/// Sends a signal.
pub(crate) fn send(pid: pid_t, signal: c_int) {
    // SAFETY: kill takes numbers alone; a process that is gone is an error that changes nothing.
    unsafe { libc::kill(pid, signal) };
}
