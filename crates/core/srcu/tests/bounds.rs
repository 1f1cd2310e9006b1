//! What is deferred is bounded, whatever a reader does.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mayfly_platform::Host;
use mayfly_srcu::{Callback, Config, Limits, Rcu, RcuBox, Srcu, WorkerThread};

const REPLACEMENTS: usize = 100_000;
const PARKED: Duration = Duration::from_secs(1);

/// What is replaced: it counts how often it is dropped.
struct Version {
    number: usize,
    drops: Arc<[AtomicUsize]>,
    /// As large as the array of a bus with some devices.
    _array: [u64; 64],
}

impl Version {
    fn boxed(number: usize, drops: &Arc<[AtomicUsize]>) -> RcuBox<Self> {
        let drops = Arc::clone(drops);
        RcuBox::try_new(Self { number, drops, _array: [0; 64] }).unwrap()
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        self.drops[self.number].fetch_add(1, Ordering::Relaxed);
    }
}

fn drop_counts() -> Arc<[AtomicUsize]> {
    (0..=REPLACEMENTS).map(|_| AtomicUsize::new(0)).collect()
}

fn dropped(drops: &[AtomicUsize]) -> usize {
    drops.iter().map(|count| count.load(Ordering::Relaxed)).sum()
}

/// A reader that is inside for [`PARKED`], and as long as `held` says so; it sets a flag when it is about to leave.
fn park<T: Send + Sync + 'static>(
    value: &Arc<Rcu<T>>,
    held: impl Fn() -> bool + Send + 'static,
    look: impl Fn(&T) + Send + 'static,
) -> (JoinHandle<()>, Arc<AtomicBool>) {
    let (value, leaving) = (Arc::clone(value), Arc::new(AtomicBool::new(false)));
    let (inside, reader) = (Arc::new(Barrier::new(2)), value.domain().reader().unwrap());
    let thread = {
        let (inside, leaving) = (Arc::clone(&inside), Arc::clone(&leaving));
        thread::spawn(move || {
            let section = reader.lock();
            let seen = value.load(&section);
            inside.wait();
            thread::sleep(PARKED);
            while held() {
                thread::sleep(Duration::from_millis(1));
            }
            look(seen);
            leaving.store(true, Ordering::SeqCst);
        })
    };
    inside.wait();
    (thread, leaving)
}

fn domains() -> [(&'static str, Srcu, Option<WorkerThread>); 2] {
    let worker = WorkerThread::spawn(Arc::new(Host::new())).unwrap();
    let config = Config { worker: Some(Arc::clone(worker.worker())), ..Config::default() };
    [
        (
            "without a worker",
            Srcu::try_new(Arc::new(Host::new()), Config::default()).unwrap(),
            None,
        ),
        ("with a worker", Srcu::try_new(Arc::new(Host::new()), config).unwrap(), Some(worker)),
    ]
}

/// 100,000 replacements by `defer`, with a reader parked inside the first version for a second.
#[test]
fn a_parked_reader_holds_up_who_defers_at_the_bound_and_nothing_is_lost() {
    let limits = Limits::default();
    for (name, domain, _worker) in domains() {
        let drops = drop_counts();
        let value = Arc::new(Rcu::new(&domain, Version::boxed(0, &drops)));
        let below_bound = {
            let domain = domain.clone();
            move || domain.stats().calls_at_bound == 0
        };
        let (reader, leaving) = park(&value, below_bound, |seen| {
            assert_eq!(
                seen.drops[seen.number].load(Ordering::Relaxed),
                0,
                "freed under its reader"
            );
        });
        let mut blocked = 0;
        for number in 1..=REPLACEMENTS {
            let inside_before = !leaving.load(Ordering::SeqCst);
            let at_bound_before = domain.stats().calls_at_bound;
            value.replace(Version::boxed(number, &drops)).defer();
            if domain.stats().calls_at_bound > at_bound_before {
                // It came back because the reader has left, and for no other reason.
                assert!(leaving.load(Ordering::SeqCst), "{name}: the bound was passed");
                blocked += usize::from(inside_before);
            }
        }
        reader.join().unwrap();
        domain.barrier();

        let stats = domain.stats();
        println!(
            "{name}: peak {} callbacks, {} KiB; {} calls at the bound, {blocked} held up; {} grace periods",
            stats.peak_deferred,
            stats.peak_deferred_bytes >> 10,
            stats.calls_at_bound,
            stats.grace_periods,
        );
        assert!(stats.peak_deferred <= limits.hard_count);
        assert!(stats.peak_deferred_bytes <= limits.hard_bytes);
        // A version takes little more than half a KiB, so it is the number that was reached.
        assert_eq!(stats.peak_deferred, limits.hard_count, "{name}: the bound was not reached");
        assert!(stats.calls_at_bound > 0 && blocked == 1, "{name}: {blocked} calls held up");
        assert_eq!((stats.deferred, stats.deferred_bytes), (0, 0));
        assert_eq!(dropped(&drops), REPLACEMENTS);
        // All that filled the backlog was deferred, and the one that was held up; once the reader is gone, what is
        // replaced is freed at once.
        assert!(stats.callbacks > limits.hard_count as u64, "{name}: {} deferred", stats.callbacks);
        drop(value);
        assert!(drops.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{name}: not once");
    }
}

/// The same, where whoever defers would rather be refused than wait.
#[test]
fn at_the_bound_try_call_gives_back_what_it_was_given_and_does_not_wait() {
    let limits = Limits::default();
    for (name, domain, _worker) in domains() {
        let drops = drop_counts();
        let value = Arc::new(Rcu::new(&domain, RcuBox::try_new(0_u8).unwrap()));
        let tried = Arc::new(AtomicBool::new(false));
        let not_tried = {
            let tried = Arc::clone(&tried);
            move || !tried.load(Ordering::SeqCst)
        };
        let (reader, leaving) = park(&value, not_tried, |_| ());
        let mut refused = Vec::new();
        for number in 0..REPLACEMENTS {
            if let Err(callback) = domain.try_call(Version::boxed(number, &drops).into_callback()) {
                refused.push(callback);
            }
        }
        let stats = domain.stats();
        println!(
            "{name}: peak {} callbacks, {} KiB; {} refused",
            stats.peak_deferred,
            stats.peak_deferred_bytes >> 10,
            refused.len()
        );
        assert!(!leaving.load(Ordering::SeqCst));
        assert_eq!(dropped(&drops), 0);
        assert_eq!((stats.deferred, stats.peak_deferred), (limits.hard_count, limits.hard_count));
        assert_eq!(refused.len(), REPLACEMENTS - limits.hard_count);
        assert_eq!(stats.calls_at_bound, refused.len() as u64);
        tried.store(true, Ordering::SeqCst);
        reader.join().unwrap();
        domain.barrier();
        assert_eq!(dropped(&drops), limits.hard_count);

        // What was given back is whole, and can be deferred now.
        for callback in refused {
            domain.call(callback);
        }
        domain.barrier();
        let counts = &drops[..REPLACEMENTS];
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{name}: not once");
    }
}

/// Several threads defer past the bound at once: the count is exact, not approximate.
#[test]
fn threads_that_race_for_the_last_places_do_not_pass_the_bound() {
    let limits = Limits { soft_count: 10, hard_count: 100, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let domain = Srcu::try_new(Arc::new(Host::new()), config).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let section = domain.read_lock();
    let deferrers = [(); 4].map(|()| {
        let (domain, ran) = (domain.clone(), Arc::clone(&ran));
        thread::spawn(move || {
            let deferred = |_: &usize| {
                let ran = Arc::clone(&ran);
                let count = move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                };
                domain.try_call(Callback::try_new(count).unwrap()).is_ok()
            };
            (0..1_000).filter(deferred).count()
        })
    });
    let deferred: usize = deferrers.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!((deferred, domain.stats().peak_deferred), (100, 100));
    drop(section);
    domain.barrier();
    assert_eq!(ran.load(Ordering::Relaxed), 100);
}

#[test]
fn past_the_soft_bound_a_grace_period_does_for_all_that_it_makes_ready_and_the_backlog_stays() {
    const SOFT: usize = 1000;
    const CALLS: usize = 20 * SOFT;
    for run_inline in [1, 100, 128, 5000] {
        let limits = Limits { soft_count: SOFT, hard_count: CALLS, ..Limits::default() };
        let config = Config { limits, run_inline, ..Config::default() };
        let domain = Srcu::try_new(Arc::new(Host::new()), config).unwrap();
        for _ in 0..CALLS {
            domain.call(Callback::try_new(|| ()).unwrap());
        }
        let stats = domain.stats();
        assert!(stats.peak_deferred <= SOFT + 128, "{run_inline}: {stats:?}");
        assert!(stats.grace_periods as usize <= 2 * CALLS / SOFT, "{run_inline}: {stats:?}");
    }
}
