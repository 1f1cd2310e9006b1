//! Looks at threads while they wait, without stopping them, and keeps what was seen.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use super::accounts::Accounts;
use super::both_ends::BothEnds;
use super::clock::Clock;
use super::faults::OwnFaults;
use super::limits::Limits;
use super::look::{Look, Looker, Seen};
use super::marker::Marker;
use super::object;
use super::usage::Own;
use crate::record::{Account, Sample};

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
/// Samples that are kept of the beginning, and as many of the end.
const MOST: usize = 50_000;
/// Threads that are looked at each time.
const MOST_THREADS: usize = 64;

/// What the sampler and the follower share.
#[derive(Default)]
pub(super) struct Watched {
    /// The threads that are looked at, and whether each has run a vCPU.
    threads: Mutex<Vec<(i32, bool)>>,
    /// When something last happened.
    last: AtomicU64,
    /// The thread that looks, which may pause for long.
    looks: OnceLock<Thread>,
    /// Whether to end.
    pub(super) over: AtomicBool,
    /// Whether the record is no longer wanted.
    pub(super) abandoned: AtomicBool,
}

impl Watched {
    /// Something has happened at this time: a thread that has paused looks again.
    pub(super) fn happens(&self, now: u64) {
        let before = self.last.swap(now, Ordering::AcqRel);
        if let Some(looks) = self.looks.get().filter(|_| now.saturating_sub(before) >= LIVELY) {
            looks.unpark();
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<(i32, bool)>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, tid: i32) {
        self.threads().push((tid, false));
    }

    /// A thread runs a vCPU, from now on or again.
    pub(super) fn runs(&self, tid: i32) {
        self.threads().iter_mut().filter(|one| one.0 == tid).for_each(|one| one.1 = true);
    }

    pub(super) fn remove(&self, tid: i32) {
        self.threads().retain(|one| one.0 != tid);
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
    /// When what marks the beginning first happened.
    pub(super) marked: Option<u64>,
    /// When the control group was seen to have been held back, and for how long by then.
    pub(super) throttled: Vec<(u64, u64)>,
}

/// Begins to look, until `watched` is over; `is_abandoned` is asked each time.
pub(super) fn start(
    watched: Arc<Watched>,
    clock: Clock,
    awaited: Option<Marker>,
    is_abandoned: impl Fn() -> bool + Send + 'static,
) -> std::io::Result<Looking> {
    let marking =
        awaited.map(|marker| marked_at(marker, Arc::clone(&watched), clock)).transpose()?;
    let mut own_faults = OwnFaults::ready();
    let builder = thread::Builder::new().name("sampler".to_owned());
    builder.spawn(move || {
        let _ = watched.looks.set(thread::current());
        let (mut book, mut limits) = (Samples::new(), Limits::default());
        let mut looker = Looker::default();
        let mut pause = OFTEN;
        while !watched.over.load(Ordering::Acquire) {
            if is_abandoned() {
                watched.abandoned.store(true, Ordering::Release);
                return Looked::default();
            }
            let threads: Vec<(i32, bool)> =
                watched.threads().iter().copied().take(MOST_THREADS).collect();
            limits.look(threads.first().map(|one| one.0), clock.now());
            let is_watched = |tid| threads.iter().any(|one| one.0 == tid);
            looker.keep(is_watched);
            own_faults.keep(is_watched);
            for (tid, runs) in threads {
                let before = clock.now();
                let Some(mut seen) = looker.look(tid) else { continue };
                if let Seen::At(look) = &mut seen {
                    if runs {
                        look.ran_vcpu(own_faults.of(tid));
                    } else if look.runs_vcpu() {
                        watched.runs(tid);
                    }
                }
                // Of one that was interrupted it is not known in which call it was.
                let took = clock.now().saturating_sub(before);
                let is_kept = took <= SLOW && book.see(tid, before + took / 2, seen);
                if !is_kept {
                    looker.forget(tid);
                }
            }
            let quiet = clock.now().saturating_sub(watched.last.load(Ordering::Acquire));
            pause = if quiet < LIVELY { OFTEN } else { (pause * 2).min(SELDOM) };
            thread::park_timeout(pause);
        }
        let marked = marking.and_then(|marking| marking.join().ok()).flatten();
        let (accounts, lost, throttled) = (book.accounts.take(), book.kept.lost(), limits.seen);
        Looked { samples: book.kept.into_vec(), accounts, lost, marked, throttled }
    })
}

/// A thread that waits for what marks the beginning, which the sampler would see too late, and says when it was.
fn marked_at(
    mut marker: Marker,
    watched: Arc<Watched>,
    clock: Clock,
) -> std::io::Result<JoinHandle<Option<u64>>> {
    let is_over =
        move || watched.over.load(Ordering::Acquire) || watched.abandoned.load(Ordering::Acquire);
    thread::Builder::new().name("marker".to_owned()).spawn(move || {
        loop {
            // What happened before the end may be told after it.
            let is_last = is_over();
            let at = marker.happened(if is_last { Duration::ZERO } else { SOON }, clock);
            if at.is_some() || is_last {
                return at;
            }
        }
    })
}

struct Samples {
    kept: BothEnds<Sample, MOST>,
    accounts: Accounts,
    /// Of each thread, which sample is the last, and its processor time and its turns when that began.
    last: HashMap<i32, (usize, u64, u64)>,
    /// Of each thread that was in no call when it was last looked at, what it had had of what no call tells.
    own: HashMap<i32, Own>,
}

impl Samples {
    fn new() -> Self {
        Self {
            kept: BothEnds::default(),
            accounts: Accounts::new(EXACT),
            last: HashMap::new(),
            own: HashMap::new(),
        }
    }

    /// Says whether it is known where a thread is now that sleeps on.
    fn see(&mut self, tid: i32, now: u64, seen: Seen) -> bool {
        let used = match seen {
            Seen::Asleep(used) => used,
            Seen::Stopped => return true,
            Seen::At(look) => {
                self.add(tid, now, look);
                return true;
            }
        };
        let Some((last, ..)) = self.last.get(&tid).copied() else { return false };
        let Some(sample) = self.kept.get_mut(last) else { return false };
        sample.took = now.saturating_sub(sample.at);
        sample.seen += 1;
        self.accounts.add(tid, now, used);
        true
    }

    fn add(&mut self, tid: i32, now: u64, look: Look) {
        self.accounts.add(tid, now, look.used);
        let Own { faults, system, guest } = self.come(tid, look.own);
        if let Some((last, ran, turns)) = self.last.get(&tid).copied()
            && let Some(sample) = self.kept.get_mut(last)
            && look.is_same(sample)
            // `/proc` does not tell whether a vCPU's thread that runs is in its guest; where it has faults of its own, it is not.
            && !(look.has_run && (faults > 0) != (sample.faults > 0))
        {
            sample.took = now.saturating_sub(sample.at);
            sample.seen += 1;
            sample.ran = look.used.ran.saturating_sub(ran);
            sample.turns = look.turns.saturating_sub(turns);
            sample.faults += faults;
            sample.system += system;
            sample.guest += guest;
            return;
        }
        self.last.insert(tid, (self.kept.count(), look.used.ran, look.turns));
        let Look { call, channel, stack, .. } = look;
        let waits = call.filter(|_| channel.is_some());
        let file = waits.and_then(|call| object::file(tid, call));
        let holder = waits.and_then(|call| object::holder(tid, call));
        self.kept.push(Sample {
            tid,
            at: now,
            seen: 1,
            faults,
            system,
            guest,
            call,
            file,
            holder,
            channel,
            stack,
            ..Sample::default()
        });
    }

    /// What has come since a thread was last looked at, if it was in no call both times.
    fn come(&mut self, tid: i32, now: Option<Own>) -> Own {
        let before = match now {
            Some(now) => self.own.insert(tid, now),
            None => self.own.remove(&tid),
        };
        now.zip(before).map_or_else(Own::default, |(now, before)| now.since(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Used;

    #[test]
    fn looks_that_are_equal_are_one_sample_and_others_are_not() {
        let look = |channel: &str, ran| Look {
            call: None,
            channel: Some(channel.to_owned()),
            stack: vec![],
            used: Used { ran, queued: 0 },
            turns: 7 + ran / 5,
            own: None,
            has_run: false,
        };
        let mut book = Samples::new();
        book.add(1, 10, look("a", 100));
        book.add(2, 11, look("a", 0));
        book.add(1, 20, look("a", 105));
        book.add(1, 30, look("b", 106));
        let all = book.kept.into_vec();
        let seen: Vec<_> = all
            .iter()
            .map(|one| (one.tid, one.at, one.took, one.seen, one.ran, one.turns))
            .collect();
        assert_eq!(seen, [(1, 10, 10, 2, 5, 1), (2, 11, 0, 1, 0, 0), (1, 30, 0, 1, 0, 0)]);
    }

    #[test]
    fn a_sleep_that_goes_on_is_one_sample_until_that_is_not_kept_any_more() {
        let used = Used { ran: 100, queued: 0 };
        let look = || Look {
            call: Some((7, [0; 4])),
            channel: Some("a".to_owned()),
            stack: vec![],
            used,
            turns: 3,
            own: None,
            has_run: false,
        };
        let mut book = Samples::new();
        assert!(!book.see(1, 5, Seen::Asleep(used)), "it was not seen yet");
        assert!(book.see(1, 10, Seen::At(look())) && book.see(1, 20, Seen::Asleep(used)));
        assert!(book.see(1, 30, Seen::At(look())));
        book.last.insert(2, (MOST + 1, 0, 0));
        assert!(!book.see(2, 31, Seen::Asleep(used)));
        let (accounts, samples) = (book.accounts.take(), book.kept.into_vec());
        let told: Vec<_> = samples.iter().map(|one| (one.at, one.took, one.seen)).collect();
        assert_eq!(told, [(10, 20, 3)]);
        let told: Vec<_> = accounts.iter().map(|one| (one.at, one.ran)).collect();
        assert_eq!(told, [(10, 100), (30, 100)]);
    }

    #[test]
    fn faults_count_from_one_look_at_a_running_thread_to_the_next() {
        let look = |faults: Option<(u64, u64)>, stack: &str| Look {
            call: None,
            channel: faults.is_none().then(|| "futex_do_wait".to_owned()),
            stack: vec![stack.to_owned()],
            used: Used::default(),
            turns: 0,
            own: faults.map(|(faults, system)| Own { faults, system, guest: 2 * faults }),
            has_run: false,
        };
        let mut book = Samples::new();
        for (at, faults, stack) in [
            (1, Some((10, 100)), "a"),
            (2, Some((15, 130)), "a"),
            // What is left of an older wait says nothing of what a thread does that runs.
            (3, Some((35, 180)), "b"),
            (4, None, "c"),
            (5, Some((99, 900)), "a"),
        ] {
            book.add(1, at, look(faults, stack));
        }
        let told: Vec<_> =
            book.kept.into_vec().iter().map(|one| (one.at, one.faults, one.system)).collect();
        assert_eq!(told, [(1, 5, 30), (3, 20, 50), (4, 0, 0), (5, 0, 0)]);
    }

    #[test]
    fn a_vcpu_s_thread_that_touches_memory_of_its_own_is_another_sample_than_its_guest() {
        let look = |faults: u64, has_run: bool| {
            let own = Some(Own { faults: 5000, system: 10 * faults, guest: 0 });
            let (call, channel, stack) = (None, None, vec![]);
            let mut look =
                Look { call, channel, stack, used: Used::default(), turns: 0, own, has_run: false };
            if has_run {
                look.ran_vcpu(faults);
            }
            look
        };
        let told = |has_run: bool| -> Vec<(u64, u64, u64, u64)> {
            let mut book = Samples::new();
            for (at, faults) in [(1, 0), (2, 0), (3, 0), (4, 7), (5, 9), (6, 9), (7, 9)] {
                book.add(1, at, look(faults, has_run));
            }
            let told = |one: &Sample| (one.at, one.took, one.faults, one.system);
            book.kept.into_vec().iter().map(told).collect()
        };
        assert_eq!(told(true), [(1, 2, 0, 0), (4, 1, 9, 90), (6, 1, 0, 0)]);
        // Of another thread, no look is another's for that.
        assert_eq!(told(false), [(1, 6, 0, 90)]);
    }

    #[test]
    fn time_in_a_guest_counts_from_one_look_to_the_next() {
        let look = |guest: u64| Look {
            call: None,
            channel: None,
            stack: vec![],
            used: Used::default(),
            turns: 0,
            own: Some(Own { guest, ..Own::default() }),
            has_run: false,
        };
        let mut book = Samples::new();
        for (at, guest) in [(1, 10), (2, 10), (3, 30)] {
            book.add(1, at, look(guest));
        }
        let told: Vec<_> = book.kept.into_vec().iter().map(|one| (one.took, one.guest)).collect();
        assert_eq!(told, [(2, 20)]);
    }

    #[test]
    fn of_more_samples_than_are_kept_the_first_and_the_last_are() {
        let look = |name: String| Look {
            call: None,
            channel: Some(name),
            stack: vec![],
            used: Used { ran: 0, queued: 0 },
            turns: 0,
            own: None,
            has_run: false,
        };
        let mut book = Samples::new();
        for at in 0..3 * MOST as u64 {
            book.add(1, at, look(at.to_string()));
        }
        // The last one goes on; another thread's last one is not kept any more, and so it begins anew.
        let last = 3 * MOST as u64 - 1;
        book.add(1, last + 5, look(last.to_string()));
        book.last.insert(2, (MOST + 1, 0, 0));
        book.add(2, last + 6, look((MOST + 1).to_string()));
        assert_eq!(book.kept.lost(), MOST as u64 + 1);
        let all = book.kept.into_vec();
        assert_eq!((all.len(), all[MOST - 1].at), (2 * MOST, MOST as u64 - 1));
        let ends: Vec<_> =
            all[2 * MOST - 2..].iter().map(|one| (one.tid, one.at, one.seen)).collect();
        assert_eq!(ends, [(1, last, 2), (2, last + 6, 1)]);
    }

    #[test]
    fn a_sampler_that_may_have_paused_is_woken_when_something_happens() {
        let watched = Watched::default();
        watched.looks.set(thread::current()).unwrap();
        // Soon after something else it pauses by itself for no longer than it takes to look.
        watched.happens(LIVELY / 2);
        watched.happens(LIVELY);
        let (begun, long) = (std::time::Instant::now(), Duration::from_secs(60));
        watched.happens(3 * LIVELY);
        thread::park_timeout(long);
        assert!(begun.elapsed() < long / 2, "nobody has woken it");
    }
}
