//! What threads use, as `/proc` says.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};

use super::kept::Kept;
use super::proc::fields;
use crate::record::Used;

/// Threads of which files stay open; of more, they are opened each time.
const MOST_KEPT: usize = 256;

/// What each thread uses, asked for at its calls.
#[derive(Default)]
pub(super) struct Meters {
    of: HashMap<i32, Meter>,
}

impl Meters {
    /// What a thread has had of the processors since it began.
    pub(super) fn used(&mut self, tid: i32) -> Option<Used> {
        self.ask(tid, Meter::used)
    }

    /// Bytes that a thread has read since it began.
    pub(super) fn read(&mut self, tid: i32) -> Option<u64> {
        self.ask(tid, Meter::read)
    }

    /// Another thread may get a number when its thread is gone.
    pub(super) fn forget(&mut self, tid: i32) {
        self.of.remove(&tid);
    }

    fn ask<T>(&mut self, tid: i32, what: fn(&Meter) -> Option<T>) -> Option<T> {
        if self.of.len() >= MOST_KEPT && !self.of.contains_key(&tid) {
            return what(&Meter::of(tid));
        }
        what(self.of.entry(tid).or_insert_with(|| Meter::of(tid)))
    }
}

/// Where the kernel tells what one thread uses.
struct Meter {
    processors: Option<Kept>,
    files: Option<Kept>,
}

impl Meter {
    fn of(tid: i32) -> Self {
        Self {
            processors: processors(tid),
            files: Kept::open(format!("/proc/{tid}/task/{tid}/io")),
        }
    }

    fn used(&self) -> Option<Used> {
        self.processors.as_ref()?.read(turns).map(|(used, _)| used)
    }

    fn read(&self) -> Option<u64> {
        let read =
            |text: &str| text.lines().find_map(|line| line.strip_prefix("rchar: "))?.parse().ok();
        self.files.as_ref()?.read(read)
    }
}

/// The file that tells what a thread has had of the processors.
pub(super) fn processors(tid: i32) -> Option<Kept> {
    Kept::open(format!("/proc/{tid}/schedstat"))
}

/// What a thread has had of the processors, and how often it got one.
pub(super) fn turns(schedstat: &str) -> Option<(Used, u64)> {
    let mut numbers = schedstat.split_ascii_whitespace().map(str::parse);
    let used = Used { ran: numbers.next()?.ok()?, queued: numbers.next()?.ok()? };
    Some((used, numbers.next()?.ok()?))
}

/// What it had between two moments.
pub(super) fn between(before: Used, after: Used) -> Used {
    Used {
        ran: after.ran.saturating_sub(before.ran),
        queued: after.queued.saturating_sub(before.queued),
    }
}

/// What a thread that makes no call has had since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Own {
    /// Page faults that waited for no device.
    pub(super) faults: u64,
    /// Time in the kernel, in nanoseconds.
    pub(super) system: u64,
    /// Time in a guest, in nanoseconds.
    pub(super) guest: u64,
}

impl Own {
    /// What has come since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            faults: self.faults.saturating_sub(before.faults),
            system: self.system.saturating_sub(before.system),
            guest: self.guest.saturating_sub(before.guest),
        }
    }
}

/// The file that tells what a thread has had of what no call tells.
pub(super) fn counts(tid: i32) -> Option<Kept> {
    Kept::open(format!("/proc/{tid}/task/{tid}/stat"))
}

/// What a thread has had since it began of what no call tells.
pub(super) fn own(stat: &str) -> Option<Own> {
    // The first of these is the third field; minflt is the tenth, stime the fifteenth, and guest_time the forty-third
    // (proc_pid_stat(5)).
    let mut fields = fields(stat)?.skip(7);
    let faults = fields.next()?.parse().ok()?;
    let second = rustix::param::clock_ticks_per_second().max(1);
    let mut time = |skipped: usize| -> Option<u64> {
        let ticks: u64 = fields.nth(skipped)?.parse().ok()?;
        Some(ticks.saturating_mul(1_000_000_000 / second))
    };
    let (system, guest) = (time(4)?, time(27).unwrap_or(0));
    Some(Own { faults, system, guest })
}

/// Bytes of memory that a process has.
pub(super) fn resident(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Mappings beyond which nobody counts.
const MOST_MAPPINGS: usize = 1 << 20;

/// How many mappings a process has. The kernel takes the lock of its address space, again and again, while they are read.
pub(super) fn mappings(pid: i32) -> Option<u64> {
    let file = BufReader::new(fs::File::open(format!("/proc/{pid}/maps")).ok()?);
    let lines = file.split(b'\n').take(MOST_MAPPINGS).take_while(Result::is_ok);
    Some(lines.count() as u64).filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_some_mappings_and_one_that_is_not_there_has_none() {
        let me = std::process::id().cast_signed();
        assert!(mappings(me).is_some_and(|count| (5..100_000).contains(&count)));
        assert_eq!(mappings(i32::MAX), None);
    }

    #[test]
    fn a_thread_s_page_faults_are_its_own() {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let counts = counts(me).unwrap();
        let before = counts.read(own).unwrap();
        let pages = 2000;
        let memory = vec![1u8; pages * rustix::param::page_size()];
        let after = counts.read(own).unwrap();
        let grown = after.since(before);
        // With huge pages there are fewer.
        assert!(grown.faults > 0 && memory[5] == 1);
        assert!(after.system < 1_000_000_000_000, "{after:?}");
        assert_eq!(after.guest, 0, "it runs no guest");
        assert!(super::counts(i32::MAX).is_none());
    }

    #[test]
    fn what_a_thread_uses_is_told_as_it_grows_and_more_threads_than_are_kept_open_are_told_as_well()
    {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let mut meters = Meters::default();
        let before = (meters.used(me).unwrap(), meters.read(me).unwrap());
        let read = fs::read("/proc/self/status").unwrap().len() as u64;
        while meters.used(me).unwrap().ran == before.0.ran {
            std::thread::yield_now();
        }
        assert!(meters.read(me).unwrap() >= before.1 + read);
        meters.forget(me);
        meters.of.extend((0..MOST_KEPT as i32).map(|tid| (-tid, Meter::of(-tid))));
        assert!(meters.used(me).is_some() && meters.of.len() == MOST_KEPT);
        assert_eq!((meters.used(i32::MAX), meters.read(i32::MAX)), (None, None));
    }
}
