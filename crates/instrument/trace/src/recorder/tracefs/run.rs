//! The guardian of a program that is followed by tracefs: it keeps what is read in memory, hands it over at the end, and
//! takes the instances away. Nothing of the program hangs on it; where the front end is gone it ends at once.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mayfly_record::units::duration;

use super::place::Place;
use super::reader::Reader;
use super::told::Told;
use crate::record::{End, Recorder};
use crate::recorder::book::Book;
use crate::recorder::clock::Clock;
use crate::recorder::descriptors::is_of_kvm;
use crate::recorder::follow::Follower;
use crate::recorder::guardian::{Message, is_closed, live_apart, say};
use crate::recorder::launch::Launch;
use crate::recorder::ledger::Ledger;
use crate::recorder::marker::Marker;
use crate::recorder::proc::{command_of, lives, process_of, threads_of};
use crate::recorder::program::{Said, Waiting};
use crate::recorder::sampler::{self, Looking, Watched};
use crate::recorder::usage;
use crate::sys::process;
use crate::sys::ptrace::{self, Change};
use crate::sys::signals;

/// Between two readings, in time of the clock and of the events: a processor may write one that is older by less.
const PAUSE: Duration = Duration::from_millis(1);
const LATE: u64 = 200_000;
/// So often it is looked whether a thread is there of which no end was told, in readings.
const SELDOM: u32 = 500;
/// The end that events tell and that of `waitid` agree where they differ by no more, in nanoseconds.
const AGREES: u64 = 5_000_000;

/// Starts the program, and follows it to its end: a guardian's life.
pub(in crate::recorder) fn record(
    launch: &Launch,
    arguments: &[CString],
    to_front: &OwnedFd,
) -> io::Result<Message> {
    let null = process::null()?;
    let waiting = Waiting::start(launch, arguments, &null, false)?;
    let pid = waiting.pid;
    let reader = match Place::find().and_then(|place| Ok((Reader::start(&place, &[pid])?, place))) {
        Ok(reader) => reader,
        Err(error) => {
            waiting.cancel();
            return Ok(Message::NoTracefs(error.to_string()));
        }
    };
    let [go, status] = waiting.descriptors();
    apart(&null, &[to_front.as_raw_fd(), go, status], &reader)?;
    let command = launch.command.iter().map(|one| one.to_string_lossy().into_owned()).collect();
    let marker = launch.marker.as_ref().map(|mark| Marker::of(mark, pid)).transpose()?;
    let mut recording = Recording::start(to_front, pid, command, reader, marker)?;
    recording.follower.ensure(pid, None);
    let _ = say(to_front, &Message::Started(pid));
    let status = waiting.go()?;
    let front = to_front.try_clone()?;
    recording.run(&|| is_closed(&front), true);
    if let Some(error) = Said::read(status).not_executed {
        return Ok(Message::NotExecuted(error));
    }
    Ok(recording.done())
}

/// Follows a process that runs already: the guardian's work. `wanted` is closed when the trace is to end.
pub(in crate::recorder) fn attach(
    pid: i32,
    to_front: &OwnedFd,
    wanted: OwnedFd,
) -> io::Result<Message> {
    signals::ignore(&signals::NOT_FOR_GUARDIANS);
    let null = process::null()?;
    let pid = process_of(pid).map_or(pid, |(process, _)| process);
    let Some(first) = threads(pid).filter(|all| !all.is_empty()) else {
        return Ok(Message::Denied(format!("there is no process {pid}")));
    };
    let reader = match Place::find().and_then(|place| Ok((Reader::start(&place, &first)?, place))) {
        Ok(reader) => reader,
        Err(error) => return Ok(Message::NoTracefs(error.to_string())),
    };
    apart(&null, &[to_front.as_raw_fd(), wanted.as_raw_fd()], &reader)?;
    let mut recording = Recording::start(to_front, pid, command_of(pid), reader, None)?;
    // Those that were made meanwhile, by threads that were followed too late.
    let mut known = first;
    while let Some(new) = threads(pid) {
        let new: Vec<i32> = new.into_iter().filter(|tid| !known.contains(tid)).collect();
        if new.is_empty() {
            break;
        }
        for tid in new {
            let _ = recording.reader.follow(tid);
            known.push(tid);
        }
    }
    for tid in known {
        recording.follower.ensure(tid, None);
    }
    recording.learn_descriptors(pid);
    recording.follower.book.trace.attached = true;
    recording.follower.book.note("the process ran before it was traced: earlier calls are missing");
    let _ = say(to_front, &Message::Started(pid));
    let front = to_front.try_clone()?;
    recording.run(&move || is_closed(&wanted) || is_closed(&front), false);
    Ok(recording.done())
}

/// Takes this process away from what it has of the front end's, but for what is kept and what it reads.
fn apart(null: &OwnedFd, kept: &[i32], (reader, place): &(Reader, Place)) -> io::Result<()> {
    let mut kept = kept.to_vec();
    kept.extend(reader.descriptors());
    kept.extend(place.descriptor());
    live_apart(null, &kept)
}

/// The threads of a process that have not ended; none where it is gone.
fn threads(pid: i32) -> Option<Vec<i32>> {
    Some(threads_of(pid)?.into_iter().filter(|tid| lives(*tid)).collect())
}

struct Recording {
    follower: Follower,
    told: Told,
    reader: Reader,
    /// tracefs stays mounted as long as there are instances in it.
    place: Place,
    looking: Looking,
    has_entries: bool,
    /// How the program has ended, and when this process's `waitid` said so, if it is this process's child.
    end: Option<(End, u64)>,
}

impl Recording {
    fn start(
        to_front: &OwnedFd,
        pid: i32,
        command: Vec<String>,
        (reader, place): (Reader, Place),
        marker: Option<Marker>,
    ) -> io::Result<Self> {
        let clock = Clock::start();
        let watched = Arc::new(Watched::default());
        let front = to_front.try_clone()?;
        let looking =
            sampler::start(Arc::clone(&watched), clock, marker, move || is_closed(&front))?;
        let mut book = Book::new(clock, command);
        book.trace.recorder = Recorder::Tracefs;
        book.ledger = Some(Ledger::new());
        let follower = Follower::new(book, watched, pid, None);
        let (told, has_entries, end) = (Told::default(), true, None);
        Ok(Self { follower, told, reader, place, looking, has_entries, end })
    }

    /// Reads until no process is left to follow, or the trace is to end.
    fn run(&mut self, is_over: &dyn Fn() -> bool, is_child: bool) {
        let mut turn = 0u32;
        while !is_over() {
            self.follower.watched.happens(self.last());
            let before = self.follower.book.clock.now();
            self.read(before.saturating_sub(LATE));
            if is_child {
                self.reap();
            }
            if self.follower.followers.threads.is_empty() && (self.end.is_some() || !is_child) {
                break;
            }
            turn = turn.wrapping_add(1);
            if turn.is_multiple_of(SELDOM) || self.end.is_some() {
                self.miss();
            }
            self.weigh();
            if self.has_entries && self.told.all_entered {
                self.has_entries = false;
                self.reader.without_entries();
            }
            signals::wait(&[libc::SIGCHLD], PAUSE);
        }
        self.follower.watched.over.store(true, Ordering::Release);
        self.read(u64::MAX);
        self.told.finish(&mut self.follower);
    }

    fn last(&self) -> u64 {
        self.follower.book.now()
    }

    /// Tells what happened before a time of the trace.
    fn read(&mut self, until: u64) {
        let clock = self.follower.book.clock;
        for (at, event) in self.reader.read(clock.absolute(until)) {
            self.told.tell(&mut self.follower, clock.relative(at), event);
        }
    }

    /// Sees how the program has ended, if it has.
    fn reap(&mut self) {
        while let Ok(Some((pid, change))) = ptrace::wait(false) {
            let now = self.follower.book.clock.now();
            if let Change::Ended(status) = change {
                if pid == self.follower.root {
                    self.end = Some((End::of(status), now));
                }
                ptrace::reap(pid);
            }
        }
    }

    /// Ends threads of which no end was told, since it was lost.
    fn miss(&mut self) {
        let now = self.follower.book.clock.now();
        let threads = self.follower.followers.threads.keys();
        let gone: Vec<i32> = threads.copied().filter(|tid| !lives(*tid)).collect();
        if gone.is_empty() {
            return;
        }
        // It may have been told meanwhile.
        self.read(now);
        let root = self.follower.root;
        for tid in gone {
            let Some(pid) = self.follower.followers.threads.get(&tid).map(|one| one.pid) else {
                continue;
            };
            let waited = self.end.map(|(_, at)| at).filter(|_| pid == root);
            self.told.gone(&mut self.follower, tid, waited.unwrap_or(now));
        }
    }

    /// What each process has of memory, for when it ends.
    fn weigh(&mut self) {
        let processes: Vec<i32> = self.follower.followers.processes.keys().copied().collect();
        let Some(ledger) = &mut self.follower.book.ledger else { return };
        for pid in processes {
            // One that ends has less and less.
            if let Some(bytes) = usage::resident(pid).filter(|bytes| *bytes > 0) {
                ledger.has(pid, bytes.max(ledger.resident(pid).unwrap_or(0)));
            }
        }
    }

    /// What a process that runs has open of KVM's.
    fn learn_descriptors(&mut self, pid: i32) {
        let Some(table) = self.follower.followers.threads.get(&pid).map(|one| one.table) else {
            return;
        };
        let entries = fs::read_dir(format!("/proc/{pid}/fd"));
        let fds = entries.into_iter().flatten().flatten();
        let mut fds: Vec<i32> =
            fds.filter_map(|one| one.file_name().to_str()?.parse().ok()).collect();
        fds.sort_unstable();
        for fd in fds {
            if is_of_kvm(pid, fd) {
                self.follower.descriptors.used(pid, table, fd, 0, &[]);
            }
        }
    }

    fn done(self) -> Message {
        let Self { follower, told, reader, place, looking, end, .. } = self;
        let (count, lost) = (reader.count, reader.lost());
        let root = follower.root;
        let is_gone = !follower.followers.processes.contains_key(&root);
        let mut book = follower.book;
        book.note(match lost {
            0 => format!("{count} events were read, and none was lost"),
            _ => format!(
                "{count} events were read, and {lost} were lost: calls may be missing, and every cause named is only likely"
            ),
        });
        if let (Some((_, at)), Some(process)) = (end, book.process(root)) {
            process.waited = Some(at);
            let differs = process.gone.map_or(0, |gone| gone.abs_diff(at));
            // A thread that is over may leave its processor for good after that.
            process.gone = process.gone.map(|gone| gone.min(at));
            if differs > AGREES {
                book.note(format!(
                    "the recorder was told of the program's end {} before or after the events: where the host is busy, that is the recorder's own delay",
                    duration(differs)
                ));
            }
        }
        let mut trace = book.finish(looking);
        trace.lost_events = lost;
        let told = || told.end(root).filter(|_| is_gone);
        trace.end = end.map(|(end, _)| end).or_else(told);
        drop(reader);
        drop(place);
        Message::Done(Box::new(trace))
    }
}
