//! The three processes of a trace: the front end, which the user starts; the guardian, which traces; and the program.
//!
//! A seccomp filter cannot be removed from a program, and without a tracer each call that the filter checks fails. So
//! the front end, which a user may kill, does not trace. The guardian traces. Signals of the terminal do not reach
//! it. It keeps the trace in memory, and hands it over when the program has ended. If the front end has ended, the
//! guardian keeps nothing more, and lets the program run to its end. If the guardian itself is killed, the kernel
//! kills the program.

use std::cell::Cell;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};

use super::book::Book;
use super::clock::Clock;
use super::denied::denied;
use super::error::Error;
use super::follow::Follower;
use super::launch::{Launch, Recorded};
use super::marker::Marker;
use super::program::{Said, Waiting, redirect_all};
use super::rights;
use super::sampler::{self, Watched};
use crate::record::{Recorder, Trace};
use crate::sys::process::{self, Forked};
use crate::sys::{ptrace, signals};

/// What the guardian says, a line of JSON each.
#[derive(Serialize, Deserialize)]
pub(super) enum Message {
    /// The program's number.
    Started(i32),
    NotExecuted(i32),
    Denied(String),
    /// It cannot be followed by tracefs; the program was not run.
    NoTracefs(String),
    Done(Box<Trace>),
}

/// The signals that are passed on to the program when another process sends them.
pub(super) const PASSED_ON: [i32; 7] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
];

/// Runs a program to its end, and records it.
///
/// Signals of the terminal reach the program by themselves; those that others send to this process are passed on to it.
/// `warn` is given what is to be said before the program runs, a line each. Returns when the program and all that it has
/// started have ended.
///
/// # Errors
/// See [`Error`]. Also where this process has more than one thread, for it forks.
pub fn record(launch: &Launch, warn: &mut dyn FnMut(&str)) -> Result<Recorded, Error> {
    run(launch, warn, follow)
}

/// The work of a guardian, up to its last message.
pub(super) type Life = fn(&Launch, &[CString], &OwnedFd) -> io::Result<Message>;

/// Starts a guardian that does this work.
pub(super) fn run(
    launch: &Launch,
    warn: &mut dyn FnMut(&str),
    life: Life,
) -> Result<Recorded, Error> {
    let program = launch.command.first().ok_or(Error::NoCommand)?;
    let arguments: Vec<CString> = launch
        .command
        .iter()
        .map(|one| CString::new(one.as_bytes()).map_err(|_| Error::Nul))
        .collect::<Result<_, _>>()?;
    let program = program.to_string_lossy().into_owned();
    if let Some(warning) = rights::found(&program).as_deref().and_then(rights::lost_by) {
        warn(&warning);
    }
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    let guardian = match process::fork()? {
        Forked::Parent(pid) => pid,
        Forked::Child => {
            drop(ours);
            process::exit(guard(life, launch, &arguments, &theirs));
        }
    };
    drop(theirs);
    signals::block(&PASSED_ON);
    let heard = signals::descriptor(&PASSED_ON);
    let mut was_interrupted = false;
    let said = listen(&ours, heard.as_ref().ok(), &mut |program, signal, sent| {
        let asks_to_end = signals::ENDING.contains(&signal);
        was_interrupted |= asks_to_end;
        if asks_to_end && launch.delay.is_some() {
            // It runs once more only for a proof, so what it would do with the signal does not matter.
            signals::send(program, libc::SIGKILL);
        } else if sent {
            // Else the terminal has sent it to the program, too.
            signals::send(program, signal);
        }
    });
    process::reap(guardian);
    // What came in the last moment was the program's, too.
    while let Some((signal, _)) = heard.as_ref().ok().and_then(signals::read) {
        was_interrupted |= signals::ENDING.contains(&signal);
    }
    signals::unblock(&PASSED_ON);
    match said? {
        Some(Message::Done(trace)) => Ok(Recorded { trace: *trace, was_interrupted }),
        Some(Message::NotExecuted(error)) => {
            Err(Error::NotExecuted { program, error: io::Error::from_raw_os_error(error) })
        }
        Some(Message::Denied(why)) => Err(Error::Denied(why)),
        Some(Message::NoTracefs(why)) => Err(Error::NoTracefs(why)),
        Some(Message::Started(_)) | None => Err(Error::GuardianDied),
    }
}

/// Hears what the guardian says, to its end; gives what was said last. Meanwhile `signalled` is given each signal that
/// comes, with the program's number, and whether it was a process that sent it.
pub(super) fn listen(
    guardian: &OwnedFd,
    heard: Option<&OwnedFd>,
    signalled: &mut dyn FnMut(i32, i32, bool),
) -> Result<Option<Message>, Error> {
    let mut file = File::from(guardian.try_clone()?);
    let (mut text, mut program, mut last) = (Vec::new(), None, None);
    loop {
        let mut polled = vec![PollFd::new(guardian, PollFlags::IN)];
        polled.extend(heard.map(|heard| PollFd::new(heard, PollFlags::IN)));
        match poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other.map_err(io::Error::from)?,
        };
        let has_said = !polled[0].revents().is_empty();
        while let (Some(heard), Some(program)) = (heard, program) {
            let Some((signal, sent)) = signals::read(heard) else { break };
            signalled(program, signal, sent);
        }
        if !has_said {
            if program.is_none() {
                // A signal, and no program yet to pass it to; it stays pending.
                std::thread::sleep(Duration::from_millis(1));
            }
            continue;
        }
        let mut part = vec![0; 1 << 16];
        let read = match file.read(&mut part) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Ok(last);
        }
        text.extend_from_slice(&part[..read]);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let message = serde_json::from_slice(&line).map_err(io::Error::from)?;
            if let Message::Started(pid) = message {
                program = Some(pid);
            }
            last = Some(message);
        }
    }
}

/// Says something to the front end, which may be gone.
pub(super) fn say(to_front: &OwnedFd, message: &Message) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    File::from(to_front.try_clone()?).write_all(&line)
}

/// The guardian's work; returns its exit code, which is not used.
fn guard(life: Life, launch: &Launch, arguments: &[CString], to_front: &OwnedFd) -> i32 {
    let message = match life(launch, arguments, to_front) {
        Ok(message) => message,
        Err(error) => Message::Denied(format!("cannot trace: {error}")),
    };
    i32::from(say(to_front, &message).is_err())
}

/// Starts the program, and follows it to its end.
fn follow(launch: &Launch, arguments: &[CString], to_front: &OwnedFd) -> io::Result<Message> {
    let null = process::null()?;
    let waiting = Waiting::start(launch, arguments, &null, true)?;
    let pid = waiting.pid;
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_EXITKILL;
    if let Err(error) = ptrace::seize(pid, options) {
        let why = denied(pid, &error);
        waiting.cancel();
        return Ok(Message::Denied(why));
    }
    let [go, status] = waiting.descriptors();
    live_apart(&null, &[to_front.as_raw_fd(), go, status])?;
    let clock = Clock::start();
    let mut command = Vec::new();
    command.extend(launch.command.iter().map(|one| one.to_string_lossy().into_owned()));
    let watched = Arc::new(Watched::default());
    let front = to_front.try_clone()?;
    let marker = launch.marker.as_ref().map(|mark| Marker::of(mark, pid)).transpose()?;
    let looking = sampler::start(Arc::clone(&watched), clock, marker, move || is_closed(&front))?;
    let _ = say(to_front, &Message::Started(pid));
    let mut book = Book::new(clock, command);
    book.trace.recorder = Recorder::Ptrace;
    let mut follower = Follower::new(book, Arc::clone(&watched), pid, launch.delay.clone());
    follower.ensure(pid, None);
    let (told, status) = (Rc::new(Cell::new(Said::default())), waiting.go()?);
    let heard = Rc::clone(&told);
    follower.executed = Some(Box::new(move || {
        heard.set(Said::read(status));
        !heard.get().no_filter
    }));
    follower.run()?;
    if let Some(executed) = follower.executed.take() {
        // It has not executed anything. It has said why, or a signal came first and ended it as it would the program.
        executed();
        if let Some(error) = told.get().not_executed {
            return Ok(Message::NotExecuted(error));
        }
        follower.book.note("the program was ended before it was executed");
    }
    watched.over.store(true, Ordering::Release);
    let mut trace = follower.book.finish(looking);
    if !follower.filtered {
        trace.recorder = Recorder::PtraceEveryCall;
    }
    if told.get().gave_up_rights {
        trace.notes.push(
            "set-user-ID programs that it executed got no extra rights: without root, a seccomp filter requires no_new_privs"
                .to_owned(),
        );
    }
    Ok(Message::Done(Box::new(trace)))
}

/// Takes this process away from the terminal, and from all descriptors but those that are kept and `null`, which is its
/// standard streams from now on. The program, which is a process of its own by now, keeps its priority.
pub(super) fn live_apart(null: &OwnedFd, kept: &[i32]) -> io::Result<()> {
    process::leave_terminal();
    process::hurry();
    redirect_all(null)?;
    let kept: Vec<i32> = kept.iter().copied().chain([null.as_raw_fd()]).collect();
    process::close_all_but(&kept);
    signals::block(&[libc::SIGCHLD]);
    Ok(())
}

/// Whether the other end of a pipe is closed.
pub(super) fn is_closed(pipe: &OwnedFd) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
        && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}
