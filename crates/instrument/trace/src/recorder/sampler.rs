//! Looks at threads while they wait, without stopping them: what `/proc` says of their system call, of where in the
//! kernel they are, and of how long they ran.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::accounts::Accounts;
use super::clock::Clock;
use super::marker::Marker;
use super::usage::used;
use crate::record::{Account, Sample, Used};

/// Between two looks, while something happens.
const OFTEN: Duration = Duration::from_millis(1);
/// While nothing does; it is come to by steps.
const SELDOM: Duration = Duration::from_millis(128);
/// So long after the end the marker is given up.
const SOON: Duration = Duration::from_millis(20);
/// A look that took longer does not say when it was, in nanoseconds.
const SLOW: u64 = 500_000;
/// So long after something has happened the looks are often.
const LIVELY: u64 = 300_000_000;
/// What a look says of a thread's processor time is as exact as this, in nanoseconds.
pub(super) const EXACT: u64 = 50_000;
/// Samples that are kept.
const MOST: usize = 100_000;
/// Functions of a stack that are kept.
const DEPTH: usize = 24;
/// Threads that are looked at each time.
const MOST_THREADS: usize = 64;

/// What the sampler and the follower share.
#[derive(Default)]
pub(super) struct Watched {
    /// The threads that are looked at.
    pub(super) threads: Mutex<Vec<i32>>,
    /// When something last happened.
    pub(super) last: AtomicU64,
    /// Whether to end.
    pub(super) over: AtomicBool,
    /// Whether the record is no longer wanted.
    pub(super) abandoned: AtomicBool,
}

impl Watched {
    pub(super) fn add(&self, tid: i32) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(tid);
    }

    pub(super) fn remove(&self, tid: i32) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| *one != tid);
    }
}

/// A thread that looks; it gives what it saw.
pub(super) type Looking = JoinHandle<Looked>;

/// What was seen.
#[derive(Default)]
pub(super) struct Looked {
    pub(super) samples: Vec<Sample>,
    pub(super) accounts: Vec<Account>,
    /// How many samples were too many.
    pub(super) lost: u64,
    /// When the marker was first written to.
    pub(super) marked: Option<u64>,
}

/// Begins to look, until `watched` is over; `is_abandoned` is asked each time.
pub(super) fn start(
    watched: Arc<Watched>,
    clock: Clock,
    file: Option<Marker>,
    is_abandoned: impl Fn() -> bool + Send + 'static,
) -> std::io::Result<Looking> {
    let marking = file.map(|file| marked_at(file, Arc::clone(&watched), clock)).transpose()?;
    let builder = thread::Builder::new().name("sampler".to_owned());
    builder.spawn(move || {
        let mut book = Samples::new();
        let mut pause = OFTEN;
        while !watched.over.load(Ordering::Acquire) {
            if is_abandoned() {
                watched.abandoned.store(true, Ordering::Release);
                return Looked::default();
            }
            let threads: Vec<i32> = {
                let threads = watched.threads.lock().unwrap_or_else(PoisonError::into_inner);
                threads.iter().copied().take(MOST_THREADS).collect()
            };
            for tid in threads {
                let before = clock.now();
                let Some(look) = Look::at(tid) else { continue };
                // Of one that was interrupted it is not known in which call it was.
                let took = clock.now().saturating_sub(before);
                if took <= SLOW {
                    book.add(tid, before + took / 2, look);
                }
            }
            let quiet = clock.now().saturating_sub(watched.last.load(Ordering::Acquire));
            pause = if quiet < LIVELY { OFTEN } else { (pause * 2).min(SELDOM) };
            thread::sleep(pause);
        }
        let marked = marking.and_then(|marking| marking.join().ok()).flatten();
        Looked { samples: book.done, accounts: book.accounts.take(), lost: book.lost, marked }
    })
}

/// A thread that waits until the marker is written to, which the sampler would see too late, and says when it was.
fn marked_at(
    file: Marker,
    watched: Arc<Watched>,
    clock: Clock,
) -> std::io::Result<JoinHandle<Option<u64>>> {
    let is_over =
        move || watched.over.load(Ordering::Acquire) || watched.abandoned.load(Ordering::Acquire);
    thread::Builder::new().name("marker".to_owned()).spawn(move || {
        while !is_over() {
            if file.is_written(SOON) {
                return Some(clock.now());
            }
        }
        None
    })
}

/// What was seen of a thread in one look.
#[derive(Debug, PartialEq, Eq)]
struct Look {
    call: Option<(u64, [u64; 4])>,
    channel: Option<String>,
    stack: Vec<String>,
    /// What it has had of the processors in all.
    used: Used,
}

impl Look {
    fn at(tid: i32) -> Option<Self> {
        let file = |name: &str| fs::read_to_string(format!("/proc/{tid}/{name}")).ok();
        let channel = file("wchan").filter(|name| name != "0" && !name.is_empty());
        let channel = channel.as_deref().map(function);
        let stack = file("stack").map(|text| stack(&text)).unwrap_or_default();
        // Stopped by its tracer: nothing that it would do by itself.
        let stopped = |name: &str| name.starts_with("ptrace_");
        if channel.as_deref().is_some_and(stopped) || stack.iter().take(3).any(|name| stopped(name))
        {
            return None;
        }
        let call = file("syscall").and_then(|text| system_call(&text));
        Some(Self { call, channel, stack, used: used(tid)? })
    }

    fn is_same(&self, sample: &Sample) -> bool {
        self.call == sample.call && self.channel == sample.channel && self.stack == sample.stack
    }
}

/// The call of `/proc/TID/syscall`; none where the thread runs, or waits outside of one.
fn system_call(text: &str) -> Option<(u64, [u64; 4])> {
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    Some((number, [argument()?, argument()?, argument()?, argument()?]))
}

/// A function's name in the source, without what a compiler has added of its own: `.part.0`, `.isra.0`.
fn function(name: &str) -> String {
    name.split('.').next().unwrap_or_default().to_owned()
}

/// The functions of `/proc/TID/stack`, innermost first.
fn stack(text: &str) -> Vec<String> {
    let functions = text.lines().filter_map(|line| {
        let (_, after) = line.split_once("] ")?;
        let name = function(after.split(['+', ' ']).next()?);
        (!name.is_empty()).then_some(name)
    });
    functions.take(DEPTH).collect()
}

struct Samples {
    done: Vec<Sample>,
    accounts: Accounts,
    /// Of each thread, which sample is the last, and its processor time when that began.
    last: HashMap<i32, (usize, u64)>,
    lost: u64,
}

impl Samples {
    fn new() -> Self {
        let accounts = Accounts::new(EXACT);
        Self { done: Vec::new(), accounts, last: HashMap::new(), lost: 0 }
    }

    fn add(&mut self, tid: i32, now: u64, look: Look) {
        self.accounts.add(tid, now, look.used);
        if let Some((last, ran)) = self.last.get(&tid)
            && let sample = &mut self.done[*last]
            && look.is_same(sample)
        {
            sample.took = now.saturating_sub(sample.at);
            sample.seen += 1;
            sample.ran = look.used.ran.saturating_sub(*ran);
            return;
        }
        if self.done.len() == MOST {
            self.lost += 1;
            return;
        }
        self.last.insert(tid, (self.done.len(), look.used.ran));
        let Look { call, channel, stack, .. } = look;
        self.done.push(Sample { tid, at: now, took: 0, seen: 1, ran: 0, call, channel, stack });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_read_and_what_it_does_not_say_is_left_out() {
        let text = "16 0xc 0x4020ae46 0x7ffc 0x0 0x0 0x0 0x7ffc1 0x7f12\n";
        assert_eq!(system_call(text), Some((16, [0xc, 0x4020_ae46, 0x7ffc, 0])));
        for text in ["running", "-1 0x7ffc1 0x7f12", "", "16", "16 0xc zz 0x1 0x2", "16 12 1 2 3"] {
            assert_eq!(system_call(text), None, "{text}");
        }
        let text = "[<0>] __synchronize_srcu.part.0+0xb1/0x150\n[<0>] kvm_swap_active_memslots+0x51/0xe0 [kvm]\nnonsense\n[<0>] \n";
        assert_eq!(stack(text), ["__synchronize_srcu", "kvm_swap_active_memslots"]);
        assert!(stack(&"[<0>] f+0x1/0x2\n".repeat(1000)).len() <= DEPTH);
    }

    #[test]
    fn looks_that_are_equal_are_one_sample_and_others_are_not() {
        let look = |channel: &str, ran| Look {
            call: None,
            channel: Some(channel.to_owned()),
            stack: vec![],
            used: Used { ran, queued: 0 },
        };
        let mut book = Samples::new();
        book.add(1, 10, look("a", 100));
        book.add(2, 11, look("a", 0));
        book.add(1, 20, look("a", 105));
        book.add(1, 30, look("b", 106));
        let seen: Vec<_> =
            book.done.iter().map(|one| (one.tid, one.at, one.took, one.seen, one.ran)).collect();
        assert_eq!(seen, [(1, 10, 10, 2, 5), (2, 11, 0, 1, 0), (1, 30, 0, 1, 0)]);
    }

    #[test]
    fn a_thread_that_is_gone_is_not_seen_and_one_that_sleeps_is_seen_to() {
        assert_eq!(Look::at(i32::MAX), None);
        let sleeper = thread::spawn(|| {
            let tid = rustix::thread::gettid();
            (tid.as_raw_nonzero().get(), ())
        });
        let (gone, ()) = sleeper.join().unwrap();
        // Its number may be taken again, but not by the time of one look.
        let _ = gone;
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(Look::at(me).is_some_and(|look| look.used.ran > 0));
    }
}
