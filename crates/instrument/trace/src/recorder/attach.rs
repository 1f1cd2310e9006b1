//! Traces a running program, until it ends or the user ends the trace.
//!
//! No filter can be put on it, so every system call of it stops, twice. The guardian is a process of its own here, too: it
//! lets the program go when the front end is gone. The kernel lets it go if the guardian is.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::pipe::{PipeFlags, pipe_with};

use super::book::Book;
use super::clock::Clock;
use super::denied::denied;
use super::error::Error;
use super::follow::Follower;
use super::guardian::{Message, PASSED_ON, is_closed, listen, live_apart, say};
use super::launch::Recorded;
use super::proc::{command_of, process_of, threads_of};
use super::sampler::{self, Watched};
use crate::record::Recorder;
use crate::sys::process::{self, Forked};
use crate::sys::{ptrace, signals};

/// Records process `pid`, or the one that has a thread `pid`, until it ends, or until this process gets a signal that asks it to end; that is not passed on.
///
/// # Errors
/// There is no such process, or it may not be followed; and as [`record`](crate::record()) has them.
pub fn attach(pid: i32) -> Result<Recorded, Error> {
    run(pid, follow)
}

/// A guardian's life, to the last thing that it has to say: of which process, to whom, and for how long.
pub(super) type Life = fn(i32, &OwnedFd, OwnedFd) -> io::Result<Message>;

/// Has a guardian live so.
pub(super) fn run(pid: i32, life: Life) -> Result<Recorded, Error> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    let (wanted, want) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    let guardian = match process::fork()? {
        Forked::Parent(guardian) => guardian,
        Forked::Child => {
            drop((ours, want));
            let message = life(pid, &theirs, wanted)
                .unwrap_or_else(|error| Message::Denied(format!("cannot trace: {error}")));
            process::exit(i32::from(say(&theirs, &message).is_err()));
        }
    };
    drop((theirs, wanted));
    signals::block(&PASSED_ON);
    let heard = signals::descriptor(&PASSED_ON);
    let mut want = Some(want);
    let said = listen(&ours, heard.as_ref().ok(), &mut |_, signal, _| {
        if signals::ENDING.contains(&signal) {
            want.take();
        }
    });
    process::reap(guardian);
    signals::unblock(&PASSED_ON);
    match said? {
        Some(Message::Done(trace)) => {
            Ok(Recorded { trace: *trace, was_interrupted: want.is_none() })
        }
        Some(Message::Denied(why)) => Err(Error::Denied(why)),
        Some(Message::NoTracefs(why)) => Err(Error::NoTracefs(why)),
        _ => Err(Error::GuardianDied),
    }
}

/// The guardian's life.
fn follow(pid: i32, to_front: &OwnedFd, wanted: OwnedFd) -> io::Result<Message> {
    signals::ignore(&signals::NOT_FOR_GUARDIANS);
    let null = process::null()?;
    live_apart(&null, &[to_front.as_raw_fd(), wanted.as_raw_fd()])?;
    // A thread's number stands for its process: what ends with it is that.
    let pid = process_of(pid).map_or(pid, |(process, _)| process);
    let threads = match seize_all(pid) {
        Ok(threads) => threads,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
            return Ok(Message::Denied(format!("there is no process {pid}")));
        }
        Err(error) => return Ok(Message::Denied(denied(pid, &error))),
    };
    let clock = Clock::start();
    let watched = Arc::new(Watched::default());
    let front = to_front.try_clone()?;
    let looking = sampler::start(Arc::clone(&watched), clock, None, move || is_closed(&front))?;
    let mut follower =
        Follower::new(Book::new(clock, command_of(pid)), Arc::clone(&watched), pid, None);
    follower.filtered = false;
    let abandoned = Arc::clone(&watched);
    follower.leaves =
        Some(Box::new(move || is_closed(&wanted) || abandoned.abandoned.load(Ordering::Acquire)));
    let _ = say(to_front, &Message::Started(pid));
    for tid in &threads {
        follower.ensure(*tid, None);
        // From its next call on it stops at each.
        let _ = ptrace::interrupt(*tid);
    }
    follower.run()?;
    watched.over.store(true, Ordering::Release);
    let mut trace = follower.book.finish(looking);
    (trace.recorder, trace.attached) = (Recorder::PtraceEveryCall, true);
    let note = "the process ran before it was traced: earlier calls are missing, and each call stopped it twice";
    trace.notes.push(note.to_owned());
    Ok(Message::Done(Box::new(trace)))
}

/// Begins to follow every thread, those too that are made meanwhile.
fn seize_all(pid: i32) -> io::Result<BTreeSet<i32>> {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT;
    let mut seized = BTreeSet::new();
    loop {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let threads = threads_of(pid).ok_or_else(gone)?;
        let before = seized.len();
        for tid in threads {
            if seized.contains(&tid) {
                continue;
            }
            match ptrace::seize(tid, options) {
                Ok(()) => {}
                // One that is made by a thread that is followed is followed by itself.
                Err(_) if tid != pid && !seized.is_empty() => continue,
                Err(error) => return Err(error),
            }
            seized.insert(tid);
        }
        if seized.len() == before {
            return Ok(seized);
        }
    }
}
