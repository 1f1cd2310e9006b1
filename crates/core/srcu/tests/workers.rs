//! One worker, its domains, and its threads.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use mayfly_platform::sync::AtomicU32;
use mayfly_platform::time::Instant;
use mayfly_platform::{Host, Identity, Layer, Platform, ReaderBarrier};
use mayfly_srcu::{BuildError, Callback, Config, Pace, Srcu, Worker, WorkerThread};

/// A worker's domain that runs nothing itself.
fn of(worker: &Arc<Worker>) -> Srcu {
    let config = Config { run_inline: 0, worker: Some(Arc::clone(worker)), ..Config::default() };
    Srcu::try_new(Arc::new(Host::new()), config).unwrap()
}

/// A callback that blocks until the sender is dropped, and says when it does.
fn blocking() -> (Callback, Receiver<()>, Sender<()>) {
    let (blocks, is_blocked) = mpsc::channel();
    let (free, is_free) = mpsc::channel::<()>();
    let work = move || {
        // Nobody listens any more where the test has failed.
        let _ = blocks.send(());
        let _ = is_free.recv();
    };
    (Callback::try_new(work).unwrap(), is_blocked, free)
}

#[test]
fn with_n_threads_all_but_one_may_be_blocked_and_no_other_domain_waits() {
    for threads in [2, 3, 5] {
        let count = NonZeroUsize::new(threads).unwrap();
        let worker = WorkerThread::spawn_several(Arc::new(Host::new()), count).unwrap();
        let blocked: Vec<_> = (1..threads)
            .map(|_| {
                let domain = of(worker.worker());
                let (callback, is_blocked, free) = blocking();
                domain.call(callback);
                is_blocked.recv().unwrap();
                (domain, free)
            })
            .collect();
        let others = [(); 3].map(|()| of(worker.worker()));
        for round in 0..50 {
            let (ran, has_run) = mpsc::channel();
            for domain in &others {
                let ran = ran.clone();
                let callback = Callback::try_new(move || ran.send(()).unwrap()).unwrap();
                if round % 2 == 0 {
                    domain.call(callback);
                } else {
                    domain.call_expedited(callback);
                }
            }
            for _ in &others {
                has_run.recv().unwrap();
            }
        }
        for (domain, free) in blocked {
            // One that is blocked waits for its own.
            assert_eq!(domain.stats().deferred, 1);
            drop(free);
            domain.barrier();
        }
    }
}

#[test]
fn a_thread_that_is_about_to_be_kept_by_one_domain_has_the_other_thread_watch_what_is_left() {
    let two = NonZeroUsize::new(2).unwrap();
    let worker = WorkerThread::spawn_several(Arc::new(Host::new()), two).unwrap();
    let (keeping, other) = (of(worker.worker()), of(worker.worker()));
    let (first, is_in_first, free_first) = blocking();
    keeping.call(first);
    is_in_first.recv().unwrap();
    let reader = keeping.reader().unwrap();
    let section = reader.lock();
    let (second, is_in_second, free_second) = blocking();
    keeping.call(second);
    // While one thread has the only domain in hand, the other finds nothing to do, and by and by sleeps for good.
    thread::sleep(Duration::from_millis(1_500));
    drop(free_first);
    // From here on the first looks now and then whether the reader has left.
    thread::sleep(Duration::from_millis(50));
    let (ran, has_run) = mpsc::channel();
    // Wakes nobody, since somebody is going to look in time: who is then kept by the first domain.
    other.call(Callback::try_new(move || ran.send(()).unwrap()).unwrap());
    drop(section);
    let seen_to = has_run.recv_timeout(Duration::from_secs(60));
    assert_eq!(seen_to, Ok(()), "nobody looks after the other domain");
    is_in_second.recv().unwrap();
    drop(free_second);
}

#[test]
fn with_one_thread_a_callback_that_blocks_delays_the_others_and_that_is_counted() {
    let worker = WorkerThread::spawn(Arc::new(Host::new())).unwrap();
    let (first, second) = (of(worker.worker()), of(worker.worker()));
    let (callback, is_blocked, free) = blocking();
    first.call(callback);
    is_blocked.recv().unwrap();
    let late = worker.worker().late_turns();
    let (ran, has_run) = mpsc::channel();
    second.call(Callback::try_new(move || ran.send(()).unwrap()).unwrap());
    // Past the 10 ms at which it wants its turn, and 10 more.
    thread::sleep(Duration::from_millis(50));
    assert!(has_run.try_recv().is_err());
    drop(free);
    has_run.recv().unwrap();
    assert!(worker.worker().late_turns() > late, "nobody counted it");
}

/// A world of its own, whose number and clock are as they are set.
#[derive(Default)]
struct World {
    number: u64,
    now: Mutex<u64>,
    sleepers: Mutex<()>,
    woken: Condvar,
}

// SAFETY: readers are fenced; worlds of different numbers are not taken for each other.
unsafe impl Platform for World {
    fn identity(&self) -> Identity {
        Identity::new(self.number)
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        let sleeping = self.sleepers.lock().unwrap();
        if word.load(std::sync::atomic::Ordering::Acquire) == expected {
            drop(self.woken.wait(sleeping));
        }
    }

    fn wait_until(&self, _: &AtomicU32, _: u32, _: Instant) {
        thread::yield_now();
    }

    fn wake(&self, _: &AtomicU32) {
        drop(self.sleepers.lock());
        self.woken.notify_all();
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(*self.now.lock().unwrap())
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        ReaderBarrier::Fenced
    }

    fn heavy_barrier(&self) {}
}

#[test]
fn a_turn_is_late_ten_milliseconds_after_it_was_wanted_and_not_before() {
    const MILLI: u64 = 1_000_000;
    // Wanted 10 ms after the first callback was deferred.
    for (turned_at, late) in [(0, 0), (10 * MILLI, 0), (20 * MILLI, 0), (20 * MILLI + 1, 1)] {
        let world = Arc::new(World::default());
        let worker = Arc::new(Worker::new(world.clone()));
        let config = Config { worker: Some(Arc::clone(&worker)), ..Config::default() };
        let domain = Srcu::try_new(world.clone(), config).unwrap();
        domain.call(Callback::try_new(|| ()).unwrap());
        *world.now.lock().unwrap() = turned_at;
        worker.turn();
        assert_eq!(worker.late_turns(), late, "{turned_at}");
    }
}

/// The host, which counts how often a thread sets out to sleep for a time.
#[derive(Default)]
struct Counting {
    host: Host,
    sleeps: AtomicUsize,
}

// SAFETY: passes the calls that promise something on to the host.
unsafe impl Layer for Counting {
    type Below = Host;

    fn below(&self) -> &Host {
        &self.host
    }

    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant) {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        self.host.wait_until(word, expected, deadline);
    }
}

#[test]
fn threads_of_one_worker_do_not_keep_each_other_awake() {
    const GRACE_PERIODS: usize = 40;
    let counting = Arc::new(Counting::default());
    let two = NonZeroUsize::new(2).unwrap();
    let worker = WorkerThread::spawn_several(counting.clone(), two).unwrap();
    // As Linux's, whose grace periods come from the worker alone, and wait for jiffies.
    let pace = Pace::Linux { hz: 250 };
    let config = Config { pace, worker: Some(Arc::clone(worker.worker())), ..Config::default() };
    let domain = Srcu::try_new(Arc::new(Host::new()), config).unwrap();
    for _ in 0..GRACE_PERIODS {
        domain.synchronize();
    }
    let sleeps = counting.sleeps.load(Ordering::Relaxed);
    // A few for each, and those of who finds nothing to do.
    assert!(sleeps <= 20 * GRACE_PERIODS, "{sleeps} sleeps for {GRACE_PERIODS} grace periods");
}

#[test]
fn a_worker_of_another_world_is_refused() {
    let world = |number| Arc::new(World { number, ..World::default() });
    let build = |domain, worker| {
        let worker = Some(Arc::new(Worker::new(worker)));
        Srcu::try_new(domain, Config { worker, ..Config::default() }).err()
    };
    assert_eq!(build(world(1), world(2)), Some(BuildError::WorkerElsewhere));
    assert_eq!(build(Arc::new(Host::new()), world(1)), Some(BuildError::WorkerElsewhere));
    // Another value of the same world is none of another.
    assert_eq!(build(world(1), world(1)), None);
    assert_eq!(build(Arc::new(Host::new()), Arc::new(Host::fenced())), None);
}

#[test]
fn a_worker_that_nobody_turns_keeps_no_domain() {
    let world = Arc::new(World::default());
    let worker = Arc::new(Worker::new(world.clone()));
    for _ in 0..3 {
        let config = Config { worker: Some(Arc::clone(&worker)), ..Config::default() };
        let domain = Srcu::try_new(world.clone(), config).unwrap();
        let owned = Arc::new(());
        let kept = Arc::clone(&owned);
        domain.call(Callback::try_new(move || drop(kept)).unwrap());
        drop(domain);
        assert_eq!(Arc::strong_count(&owned), 1);
    }
    assert_eq!((Arc::strong_count(&worker), Arc::strong_count(&world)), (1, 2));
}
