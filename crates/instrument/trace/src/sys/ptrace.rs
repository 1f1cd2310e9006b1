//! `ptrace(2)` and `wait(2)`, with all signals.

use std::{io, mem, ptr};

use libc::{c_int, c_long, c_uint, c_void, pid_t};
// libc has these for glibc alone.
use linux_raw_sys::ptrace::{
    PTRACE_GET_SYSCALL_INFO, PTRACE_SYSCALL_INFO_ENTRY, PTRACE_SYSCALL_INFO_EXIT,
    PTRACE_SYSCALL_INFO_SECCOMP, ptrace_syscall_info,
};

use super::{checked, process};

/// How a stopped thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// To its next filtered call, event or signal.
    Continue,
    /// To the beginning or end of its next system call, at the latest.
    ToSystemCall,
    /// It stays stopped, as job control has it, and events are told.
    Listen,
}

/// What a wait told of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It ended, with this status as `wait(2)` gives it.
    Ended(c_int),
    /// It stopped, with this signal and `PTRACE_EVENT_...`, or 0.
    Stopped { signal: c_int, event: c_int },
}

/// Where in a system call a thread has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// At the beginning of call `number`.
    Entry { arch: u32, number: u64, arguments: [u64; 6] },
    /// The same, told by the filter.
    Filtered { arch: u32, number: u64, arguments: [u64; 6] },
    /// At the end; what it returns, or the negative error number.
    Exit(i64),
    /// In none.
    Elsewhere,
}

/// Begins to follow a process, which goes on.
pub(crate) fn seize(pid: pid_t, options: c_int) -> io::Result<()> {
    // SAFETY: PTRACE_SEIZE takes no address and a word of options, and writes no memory of ours.
    let done = unsafe {
        libc::ptrace(libc::PTRACE_SEIZE, pid, ptr::null_mut::<c_void>(), c_long::from(options))
    };
    checked(done).map(drop)
}

/// Has a stopped thread go on, with `signal` if it is not 0.
pub(crate) fn resume(tid: pid_t, how: Resume, signal: c_int) -> io::Result<()> {
    let request = match how {
        Resume::Continue => libc::PTRACE_CONT,
        Resume::ToSystemCall => libc::PTRACE_SYSCALL,
        Resume::Listen => libc::PTRACE_LISTEN,
    };
    // SAFETY: each of the three takes a signal's number (or ignores it), and no address.
    let done =
        unsafe { libc::ptrace(request, tid, ptr::null_mut::<c_void>(), c_long::from(signal)) };
    checked(done).map(drop)
}

/// The number that an event brings: of a new thread, of the one that called `execve`.
pub(crate) fn event_message(tid: pid_t) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one unsigned long to `message`, which outlives the call.
    let done = unsafe {
        libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, ptr::null_mut::<c_void>(), &raw mut message)
    };
    checked(done).map(|_| message)
}

/// In which system call a stopped thread is. Linux has told since 5.3.
pub(crate) fn system_call(tid: pid_t) -> io::Result<At> {
    // SAFETY: all bits zero are a value of this plain structure.
    let mut info: ptrace_syscall_info = unsafe { mem::zeroed() };
    // Its type is the C library's own choice.
    let request = PTRACE_GET_SYSCALL_INFO as _;
    // SAFETY: the kernel writes at most as many bytes as it is told that `info` has.
    let done = unsafe { libc::ptrace(request, tid, mem::size_of_val(&info), &raw mut info) };
    checked(done)?;
    let arch = info.arch;
    let of_call = &info.__bindgen_anon_1;
    Ok(match u32::from(info.op) {
        PTRACE_SYSCALL_INFO_ENTRY => {
            // SAFETY: `op` says that the kernel has filled in what is for an entry.
            let entry = unsafe { of_call.entry };
            At::Entry { arch, number: entry.nr, arguments: entry.args }
        }
        PTRACE_SYSCALL_INFO_SECCOMP => {
            // SAFETY: `op` says that the kernel has filled in what is for a filter's stop.
            let entry = unsafe { of_call.seccomp };
            At::Filtered { arch, number: entry.nr, arguments: entry.args }
        }
        PTRACE_SYSCALL_INFO_EXIT => {
            // SAFETY: `op` says that the kernel has filled in what is for an exit.
            At::Exit(unsafe { of_call.exit }.rval)
        }
        _ => At::Elsewhere,
    })
}

/// Waits for any thread that is followed, and any child. `None` where nothing has happened and `block` is not set. What is told
/// is told again: of one that has ended, until it is reaped, and of one that has stopped, until it goes on or is kept. So a stop
/// takes one call.
///
/// # Errors
/// `ECHILD` where there is none left.
pub(crate) fn wait(block: bool) -> io::Result<Option<(pid_t, Change)>> {
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
    let flags = flags | if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: all bits zero are a value of this plain structure.
        let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
        // SAFETY: the kernel writes one siginfo_t to `info`, which outlives the call.
        checked(unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) })?;
        // SAFETY: these are of what waitid writes, or zero.
        let (tid, status) = unsafe { (info.si_pid(), info.si_status()) };
        if tid == 0 {
            return Ok(None);
        }
        // As waitpid has it.
        let ended = match info.si_code {
            libc::CLD_EXITED => Some((status & 0xFF) << 8),
            libc::CLD_KILLED => Some(status),
            libc::CLD_DUMPED => Some(status | 0x80),
            _ => None,
        };
        if let Some(status) = ended {
            return Ok(Some((tid, Change::Ended(status))));
        }
        if info.si_code == libc::CLD_TRAPPED {
            let (signal, event) = (status & 0xFF, status >> 8);
            return Ok(Some((tid, Change::Stopped { signal, event })));
        }
        // A child that is not followed, and was stopped.
        keep(tid);
    }
}

/// Has a stop of a thread not be told again while the thread stays stopped.
pub(crate) fn keep(tid: pid_t) {
    // SAFETY: the status is not asked for.
    unsafe {
        let mut info: libc::siginfo_t = mem::zeroed();
        let flags = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
        libc::waitid(libc::P_PID, tid.cast_unsigned(), &raw mut info, flags);
    }
}

/// Reaps a thread or a child that has ended, without haste: the kernel may wait until another thread of its process is gone
/// altogether, and that one may wait for a processor.
pub(crate) fn reap(tid: pid_t) {
    // Where it may not hurry, it is in no haste.
    let hurries = process::hurries();
    if hurries {
        process::rest();
    }
    // SAFETY: the status is not asked for.
    unsafe { libc::waitpid(tid, ptr::null_mut(), libc::__WALL | libc::WNOHANG) };
    if hurries {
        process::hurry();
    }
}

/// Reads memory of another process, as much as there is of `into`; says how much was read.
pub(crate) fn read_memory(pid: pid_t, address: u64, into: &mut [u8]) -> usize {
    let here = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let there = libc::iovec { iov_base: address as *mut c_void, iov_len: into.len() };
    // SAFETY: `here` describes `into`, which is ours alone and outlives the call; what `there` describes is in another
    // process, and the kernel checks it.
    let read = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}

/// What two threads may share.
#[derive(Clone, Copy)]
pub(crate) enum Shared {
    /// One open file: a descriptor of the first, and one of the second.
    File(i32, i32),
    /// The table of descriptors.
    Table,
}

/// Whether two threads share it; `None` where the kernel does not say (`kcmp(2)` may be filtered, or not built).
pub(crate) fn share(one: pid_t, other: pid_t, what: Shared) -> Option<bool> {
    const FILE: c_uint = 0;
    const FILES: c_uint = 2;
    let (kind, first, second) = match what {
        Shared::File(first, second) => (FILE, first, second),
        Shared::Table => (FILES, 0, 0),
    };
    // SAFETY: kcmp takes numbers alone.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, kind, first, second) };
    (order >= 0).then_some(order == 0)
}

/// Has a thread stop, wherever it is.
pub(crate) fn interrupt(tid: pid_t) -> io::Result<()> {
    // SAFETY: PTRACE_INTERRUPT takes neither address nor data.
    let done = unsafe {
        libc::ptrace(libc::PTRACE_INTERRUPT, tid, ptr::null_mut::<c_void>(), 0 as c_long)
    };
    checked(done).map(drop)
}

/// Lets a stopped thread go, for good, with `signal` if it is not 0.
pub(crate) fn detach(tid: pid_t, signal: c_int) -> io::Result<()> {
    // SAFETY: PTRACE_DETACH takes a signal's number, and no address.
    let done = unsafe {
        libc::ptrace(libc::PTRACE_DETACH, tid, ptr::null_mut::<c_void>(), c_long::from(signal))
    };
    checked(done).map(drop)
}
