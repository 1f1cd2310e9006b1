//! The domain under torture, in the style of rcutorture (`kernel/rcu/rcutorture.c`): real threads, real barriers,
//! whatever the machine and the scheduler make of it.
//!
//! Updaters replace an element of a pool and age what they replaced: published, unpublished, and after its grace period
//! poisoned. A reader looks at the element it found until it leaves, and must never see it poisoned or used again.
//! Elements are pool memory for good, so that a failure is a count and not a crash.
//!
//! `MAYFLY_TORTURE_SECONDS` says how long all rounds together take (8), `MAYFLY_TORTURE_SEED` which choices the threads
//! make. How they interleave is the machine's affair.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod barrier;
mod choices;

use std::collections::VecDeque;
use std::env;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mayfly_platform::Host;
use mayfly_srcu::{Callback, Config, Limits, Pace, Reader, Section, Srcu, WorkerThread};

use choices::Choices;

/// Elements of the pool. A poisoned one is used again after all others, so it stays poisoned for a while.
const ELEMENTS: usize = 256;
/// What each thread has to have done before a round ends, per kind of thing that it does.
const AT_LEAST: u64 = 20;
/// A round that has not come that far by then has hung.
const PATIENCE: Duration = Duration::from_secs(60);

const READERS: u64 = 3;
const UPDATERS: u64 = 2;

/// How far an element is.
const PUBLISHED: u32 = 0;
const UNPUBLISHED: u32 = 1;
const POISONED: u32 = 2;

const POISON: u64 = 0xdead_beef_dead_beef;

/// What is read. Each word holds the same stamp, another one for each use of the element.
struct Element {
    age: AtomicU32,
    words: [AtomicU64; 4],
}

impl Element {
    fn new() -> Self {
        Self { age: AtomicU32::new(POISONED), words: [const { AtomicU64::new(POISON) }; 4] }
    }

    fn fill(&self, value: u64) {
        for word in &self.words {
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// What was done how often.
#[derive(Clone, Copy, Debug)]
enum Did {
    Read,
    ReadAnonymously,
    Nested,
    SleptInside,
    SawUnpublished,
    Registered,
    PassedReaderOn,
    Synchronised,
    SynchronisedExpedited,
    Called,
    CalledExpedited,
    TriedToCall,
    Polled,
    Barrier,
}

const DID: [Did; 14] = [
    Did::Read,
    Did::ReadAnonymously,
    Did::Nested,
    Did::SleptInside,
    Did::SawUnpublished,
    Did::Registered,
    Did::PassedReaderOn,
    Did::Synchronised,
    Did::SynchronisedExpedited,
    Did::Called,
    Did::CalledExpedited,
    Did::TriedToCall,
    Did::Polled,
    Did::Barrier,
];

struct Torture {
    domain: Srcu,
    elements: Vec<Element>,
    /// Elements that nobody uses, in the order in which they were freed.
    free: Mutex<VecDeque<usize>>,
    present: AtomicUsize,
    stamp: AtomicU64,
    /// A reader that changes hands.
    passing: Mutex<Option<Reader>>,
    did: [AtomicU64; DID.len()],
    replaced: AtomicU64,
    poisoned: AtomicU64,
    failures: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Torture {
    fn new(domain: Srcu) -> Arc<Self> {
        let elements: Vec<_> = (0..ELEMENTS).map(|_| Element::new()).collect();
        elements[0].fill(0);
        elements[0].age.store(PUBLISHED, Ordering::Relaxed);
        Arc::new(Self {
            passing: Mutex::new(Some(domain.reader().unwrap())),
            domain,
            elements,
            free: Mutex::new((1..ELEMENTS).collect()),
            present: AtomicUsize::new(0),
            stamp: AtomicU64::new(0),
            did: [const { AtomicU64::new(0) }; DID.len()],
            replaced: AtomicU64::new(0),
            poisoned: AtomicU64::new(0),
            failures: Mutex::new(Vec::new()),
            stop: AtomicBool::new(false),
        })
    }

    fn did(&self, what: Did) {
        self.did[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn has_done(&self, what: Did) -> u64 {
        self.did[what as usize].load(Ordering::Relaxed)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Notes a failure, and ends the round. (A panic in the worker's thread would fail no test.)
    fn fail(&self, what: impl Display) {
        let mut failures = self.failures.lock().unwrap();
        if failures.len() < 10 {
            failures.push(what.to_string());
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Looks at the element that is present until the section ends, with delays between.
    fn read(&self, choices: &mut Choices, _inside: &impl Section) {
        let number = self.present.load(Ordering::Acquire);
        let element = &self.elements[number];
        let stamp = element.words[0].load(Ordering::Relaxed);
        for _ in 0..=choices.below(3) {
            if choices.delay() {
                self.did(Did::SleptInside);
            }
            let words = element.words.each_ref().map(|word| word.load(Ordering::Relaxed));
            let age = element.age.load(Ordering::Relaxed);
            if words != [stamp; 4] || stamp == POISON || age == POISONED {
                self.fail(format_args!(
                    "element {number}, read as {stamp:#x}, is {words:x?} at age {age}"
                ));
            }
            if age == UNPUBLISHED {
                self.did(Did::SawUnpublished);
            }
        }
    }

    fn reader(&self, mut choices: Choices) {
        let mut reader = self.domain.reader().unwrap();
        while !self.is_stopped() {
            match choices.below(64) {
                0 => {
                    // Replaced first, so that another record is leased.
                    drop(std::mem::replace(&mut reader, self.domain.reader().unwrap()));
                    self.did(Did::Registered);
                }
                1 => {
                    if let Some(passed) = self.passing.lock().unwrap().as_mut() {
                        std::mem::swap(passed, &mut reader);
                        self.did(Did::PassedReaderOn);
                    }
                }
                2..=11 => {
                    let section = self.domain.read_lock();
                    self.read(&mut choices, &section);
                    self.did(Did::ReadAnonymously);
                }
                12..=21 => {
                    let outer = reader.lock();
                    self.read(&mut choices, &outer);
                    let (inner, shared) = (reader.lock(), self.domain.read_lock());
                    // The inner guard keeps the section, though the outer one ends first.
                    drop(outer);
                    self.read(&mut choices, &inner);
                    drop(inner);
                    self.read(&mut choices, &shared);
                    self.did(Did::Nested);
                }
                _ => {
                    let section = reader.lock();
                    self.read(&mut choices, &section);
                    self.did(Did::Read);
                }
            }
            if choices.below(16) == 0 {
                choices.delay();
            }
        }
    }

    /// The grace period of `number` is over.
    fn poison(&self, number: usize) {
        let element = &self.elements[number];
        let age = element.age.swap(POISONED, Ordering::Relaxed);
        if age != UNPUBLISHED {
            self.fail(format_args!("element {number} is freed at age {age}"));
        }
        element.fill(POISON);
        self.poisoned.fetch_add(1, Ordering::Relaxed);
        self.free.lock().unwrap().push_back(number);
    }

    fn poisoning(this: &Arc<Self>, number: usize) -> Callback {
        let torture = Arc::clone(this);
        Callback::try_new(move || torture.poison(number)).unwrap()
    }

    /// Publishes a fresh element. Returns the old one.
    fn replace(&self) -> Option<usize> {
        let fresh = self.free.lock().unwrap().pop_front()?;
        let element = &self.elements[fresh];
        element.fill(self.stamp.fetch_add(1, Ordering::Relaxed) + 1);
        element.age.store(PUBLISHED, Ordering::Relaxed);
        let old = self.present.swap(fresh, Ordering::AcqRel);
        self.elements[old].age.store(UNPUBLISHED, Ordering::Relaxed);
        self.replaced.fetch_add(1, Ordering::Relaxed);
        Some(old)
    }

    fn updater(this: &Arc<Self>, mut choices: Choices) {
        while !this.is_stopped() {
            let Some(old) = this.replace() else {
                // All of them wait for their grace periods.
                this.domain.synchronize_expedited();
                thread::yield_now();
                continue;
            };
            match choices.below(6) {
                0 => {
                    this.domain.synchronize();
                    this.poison(old);
                    this.did(Did::Synchronised);
                }
                1 => {
                    this.domain.synchronize_expedited();
                    this.poison(old);
                    this.did(Did::SynchronisedExpedited);
                }
                2 => {
                    this.domain.call(Self::poisoning(this, old));
                    this.did(Did::Called);
                }
                3 => {
                    this.domain.call_expedited(Self::poisoning(this, old));
                    this.did(Did::CalledExpedited);
                }
                4 => {
                    if let Err(refused) = this.domain.try_call(Self::poisoning(this, old)) {
                        this.domain.call(refused);
                    }
                    this.did(Did::TriedToCall);
                }
                _ => {
                    let cookie = this.domain.start_poll();
                    let mut polls = choices.below(20);
                    while !this.domain.poll(cookie) && polls > 0 {
                        choices.delay();
                        polls -= 1;
                    }
                    this.domain.cond_synchronize(cookie);
                    this.poison(old);
                    this.did(Did::Polled);
                }
            }
            choices.delay();
        }
    }

    /// Waits for grace periods that nobody needs, and for callbacks.
    fn barrier(&self, mut choices: Choices) {
        let ran = Arc::new(AtomicU64::new(0));
        let mut deferred = 0;
        while !self.is_stopped() {
            for _ in 0..choices.below(5) {
                let ran = Arc::clone(&ran);
                let count = move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                };
                self.domain.call(Callback::try_new(count).unwrap());
                deferred += 1;
            }
            if choices.below(2) == 0 {
                self.domain.synchronize();
            }
            self.domain.barrier();
            let ran = ran.load(Ordering::Relaxed);
            if ran != deferred {
                self.fail(format_args!("{deferred} deferred, {ran} run after a barrier"));
            }
            self.did(Did::Barrier);
            thread::sleep(Duration::from_micros(choices.below(500)));
        }
    }

    fn ticker(&self, mut choices: Choices) {
        while !self.is_stopped() {
            self.domain.tick();
            thread::sleep(Duration::from_micros(choices.below(2_000)));
        }
    }

    /// What has not been done often enough to say that it was tried.
    fn missing(&self) -> Vec<Did> {
        DID.into_iter().filter(|what| self.has_done(*what) < AT_LEAST).collect()
    }
}

/// One round: `domain` under torture for `time`, and until everything has been done often enough.
fn round(name: &str, domain: Srcu, seed: u64, time: Duration, ticks: bool) {
    let torture = Torture::new(domain);
    let begin = Instant::now();
    thread::scope(|scope| {
        for reader in 0..READERS {
            let torture = &torture;
            scope.spawn(move || torture.reader(Choices::new(seed, reader)));
        }
        for updater in READERS..READERS + UPDATERS {
            let torture = &torture;
            scope.spawn(move || Torture::updater(torture, Choices::new(seed, updater)));
        }
        scope.spawn(|| torture.barrier(Choices::new(seed, READERS + UPDATERS)));
        if ticks {
            scope.spawn(|| torture.ticker(Choices::new(seed, READERS + UPDATERS + 1)));
        }
        while !torture.is_stopped() {
            thread::sleep(Duration::from_millis(10));
            let missing = torture.missing();
            if begin.elapsed() >= time && missing.is_empty() {
                torture.stop.store(true, Ordering::Relaxed);
            } else if begin.elapsed() > time + PATIENCE {
                torture.fail(format_args!("hardly ever done: {missing:?}"));
            }
        }
    });
    torture.domain.barrier();

    let stats = torture.domain.stats();
    let counts: Vec<_> =
        DID.iter().map(|what| format!("{what:?} {}", torture.has_done(*what))).collect();
    println!("{name}: {}; {stats:?}", counts.join(", "));
    let failures = torture.failures.lock().unwrap();
    assert!(failures.is_empty(), "{name}, seed {seed}: {failures:#?}");
    let (replaced, poisoned) = (&torture.replaced, &torture.poisoned);
    assert_eq!(poisoned.load(Ordering::Relaxed), replaced.load(Ordering::Relaxed), "{name}: lost");
    assert_eq!(torture.free.lock().unwrap().len(), ELEMENTS - 1, "{name}: lost");
    assert_eq!((stats.deferred, stats.deferred_bytes), (0, 0), "{name}");
    assert!(stats.grace_periods > 0 && stats.callbacks > 0 && stats.sleeps > 0, "{name}");
    assert_eq!(stats.heavy_barriers > 0, !torture.domain.is_fenced(), "{name}");
    // It owns its domain.
    drop(torture.passing.lock().unwrap().take());
}

#[test]
fn no_reader_sees_what_was_freed_and_nothing_is_freed_twice_or_lost() {
    let number = |name, default| match env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")),
        Err(_) => default,
    };
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let seed = number("MAYFLY_TORTURE_SEED", clock as u64);
    let seconds = number("MAYFLY_TORTURE_SECONDS", 8);
    println!("MAYFLY_TORTURE_SEED={seed} MAYFLY_TORTURE_SECONDS={seconds}");

    let linux = Pace::Linux { hz: 1000 };
    let rounds = [
        ("asymmetric, ticked", true, Pace::Urgent, false),
        ("asymmetric, worker", true, Pace::Urgent, true),
        ("asymmetric, worker, as Linux", true, linux, true),
        ("fenced, ticked", false, Pace::Urgent, false),
        ("fenced, worker", false, Pace::Urgent, true),
        ("fenced, worker, as Linux", false, linux, true),
    ];
    let time = Duration::from_secs(seconds) / u32::try_from(rounds.len()).unwrap();
    for (name, asymmetric, pace, has_worker) in rounds {
        let host = || if asymmetric { Host::new() } else { Host::fenced() };
        let worker = has_worker.then(|| WorkerThread::spawn(Arc::new(host())).unwrap());
        // Few enough for the bounds to be reached.
        let limits = Limits { soft_count: 16, hard_count: 64, ..Limits::default() };
        let config = Config {
            limits,
            pace,
            worker: worker.as_ref().map(|it| Arc::clone(it.worker())),
            ..Config::default()
        };
        let domain = Srcu::try_new(Arc::new(host()), config).unwrap();
        round(name, domain, seed, time, !has_worker);
    }
}
