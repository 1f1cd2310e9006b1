//! Processes of our own: forked, given a filter, made to execute.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io, ptr};

use libc::{c_char, c_int, c_ulong, pid_t};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getpriority_process, getrlimit, setrlimit};

use super::checked;

/// How long a thread may still be listed when it has been joined: the joining thread is woken before the kernel is done
/// with it.
const LINGERS: Duration = Duration::from_secs(1);

/// The two sides of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forked {
    Parent(pid_t),
    Child,
}

/// Splits this process in two.
///
/// # Errors
/// This process has more than one thread (`EDEADLK`): the child would wait for locks that no thread there will release. Or
/// there is no room for one process more.
pub(crate) fn fork() -> io::Result<Forked> {
    const THREADS: &str = "/proc/self/task";
    let begun = Instant::now();
    while fs::read_dir(THREADS).map_err(|error| of_file(THREADS, &error))?.count() != 1 {
        if begun.elapsed() > LINGERS {
            return Err(io::Error::from_raw_os_error(libc::EDEADLK));
        }
        thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: this process has one thread, as was just seen, so no other could have started one or hold a lock:
    // the child may do all that the parent may.
    let pid = checked(unsafe { libc::fork() })?;
    Ok(if pid == 0 { Forked::Child } else { Forked::Parent(pid) })
}

/// An error that says which file it is about.
fn of_file(path: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// The device that discards everything, for streams that are not to be seen.
pub(crate) fn null() -> io::Result<OwnedFd> {
    const NULL: &str = "/dev/null";
    rustix::fs::open(NULL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| of_file(NULL, &error.into()))
}

/// Ends this process at once: no destructors, nothing that was buffered before the fork is written twice.
pub(crate) fn exit(code: c_int) -> ! {
    // SAFETY: _exit does not return, and touches no memory of ours.
    unsafe { libc::_exit(code) }
}

/// Lifts the limits of this process's processor time and memory, as far as it may: where it has the right, altogether,
/// else to the hard ones.
pub(crate) fn lift_limits() {
    for limited in [Resource::Cpu, Resource::As, Resource::Data, Resource::Nofile] {
        let none = Rlimit { current: None, maximum: None };
        if setrlimit(limited, none).is_err() {
            let Rlimit { maximum, .. } = getrlimit(limited);
            let _ = setrlimit(limited, Rlimit { current: maximum, maximum });
        }
    }
}

/// The nice value with which a process waits least for others.
const HURRIED: i32 = -20;
/// A process that asks for no more at a time, in nanoseconds, is let before one that runs (`sched(7)`, since Linux 6.12).
const AT_A_TIME: u64 = 100_000;

/// Has this thread, and those that it starts, get a processor as soon as a program can that is no real-time one, as far as it
/// may: only root may. A thread that is stopped waits for its tracer, and looks that come late tell less.
///
/// Not as a real-time one: the kernel may try something again until another thread goes on (`d_invalidate` of `fs/dcache.c`,
/// where a process is reaped), and that one may wait for this one's processor.
pub(crate) fn hurry() {
    be_scheduled(HURRIED, AT_A_TIME);
}

/// Whether this thread gets a processor as soon as that.
pub(crate) fn hurries() -> bool {
    getpriority_process(None) == Ok(HURRIED)
}

/// Has this thread get a processor as others do.
pub(crate) fn rest() {
    be_scheduled(0, 0);
}

fn be_scheduled(nice: i32, at_a_time: u64) {
    // SAFETY: all of the structure may be 0; the kernel reads as much of it as its size says; thread 0 is this one.
    unsafe {
        let mut wanted: libc::sched_attr = std::mem::zeroed();
        wanted.size = size_of::<libc::sched_attr>() as u32;
        wanted.sched_policy = libc::SCHED_OTHER as u32;
        wanted.sched_nice = nice;
        wanted.sched_runtime = at_a_time;
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0);
    }
    // A session may be a group of its own, among which the processors are shared first (`sched(7)`).
    let _ = fs::write("/proc/self/autogroup", nice.to_string());
}

/// Leaves the terminal and the group that its signals go to. One that leads its group already stays.
pub(crate) fn leave_terminal() {
    // SAFETY: setsid takes nothing.
    unsafe { libc::setsid() };
}

/// Waits until a child has ended.
pub(crate) fn reap(pid: pid_t) {
    // SAFETY: the status is not asked for.
    while unsafe { libc::waitpid(pid, ptr::null_mut(), 0) } == -1
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Has the kernel do with a signal what it does by itself.
pub(crate) fn default_signal(signal: c_int) {
    // SAFETY: SIG_DFL is no handler of ours that could run.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Puts a filter on this thread and all that it will start, for ever. Where the kernel wants it, gives up first what
/// set-user-ID programs would give; says whether it was.
pub(crate) fn install_filter(program: &[libc::sock_filter]) -> io::Result<bool> {
    let length = program.len().try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    let install = || {
        // SAFETY: `program` describes a slice that outlives the call; the kernel copies it, and does not write.
        checked(unsafe {
            libc::prctl(
                libc::PR_SET_SECCOMP,
                c_ulong::from(libc::SECCOMP_MODE_FILTER),
                &raw const program,
            )
        })
    };
    match install() {
        Ok(_) => return Ok(false),
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {}
        Err(error) => return Err(error),
    }
    // SAFETY: takes numbers alone.
    checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as c_ulong, 0, 0, 0) })?;
    install().map(|_| true)
}

/// Executes a program, found as a shell finds it; returns only where that fails.
pub(crate) fn execute(command: &[CString]) -> io::Error {
    let Some(program) = command.first() else { return io::ErrorKind::InvalidInput.into() };
    let mut arguments: Vec<*const c_char> = command.iter().map(|one| one.as_ptr()).collect();
    arguments.push(ptr::null());
    // SAFETY: the program's name and each argument end with a NUL, their list with a null pointer, and all of them
    // outlive the call.
    unsafe { libc::execvp(program.as_ptr(), arguments.as_ptr()) };
    io::Error::last_os_error()
}

/// Closes all descriptors from 3 on, but these.
pub(crate) fn close_all_but(kept: &[i32]) {
    let mut kept: Vec<c_int> = kept.iter().copied().filter(|fd| *fd > 2).collect();
    kept.sort_unstable();
    let mut from = 3;
    for fd in kept.into_iter().chain([c_int::MAX]) {
        if fd > from {
            // SAFETY: a forked process calls this that ends by `exit`: what owns one of these descriptors was made before
            // the fork, and is neither used nor dropped in it.
            unsafe {
                libc::syscall(libc::SYS_close_range, from, fd - 1, 0);
            }
        }
        from = fd.saturating_add(1);
    }
}
