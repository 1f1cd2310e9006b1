//! Three threads that defer and wait, again and again: none is held up by what the others go on deferring.
//!
//! Each does `call` of a callback that spins for 100 us, and `synchronize_expedited`, as fast as it can. What is
//! asserted holds on a loaded machine too: how many callbacks one call runs, how much of the CPU it takes, and how
//! many callbacks a thread runs for each that it deferred. How long a call takes on the clock, and how many callbacks a
//! thread runs of all, also depends on whom the scheduler favours: that is printed.

#![cfg(not(any(miri, mayfly_loom, mayfly_shuttle)))]

use std::cell::Cell;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_platform::Host;
use mayfly_srcu::{Callback, Config, Srcu, WorkerThread};
use rustix::time::{ClockId, clock_gettime};

const THREADS: usize = 3;
const LASTS: Duration = Duration::from_secs(5);
const WORK: Duration = Duration::from_micros(100);

thread_local! {
    /// Callbacks that this thread has run.
    static RAN: Cell<u64> = const { Cell::new(0) };
}

fn spinning() -> Callback {
    Callback::try_new(|| {
        RAN.set(RAN.get() + 1);
        let begin = Instant::now();
        while begin.elapsed() < WORK {
            std::hint::spin_loop();
        }
    })
    .unwrap()
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

/// What a thread has seen of its calls.
#[derive(Default)]
struct Seen {
    deferred: u64,
    ran: u64,
    /// The most of any one call.
    most_inline: u64,
    most_cpu: Duration,
    /// By call, on the clock.
    took: Vec<Duration>,
}

impl Seen {
    fn call(&mut self, call: impl FnOnce()) {
        let (ran, cpu, begin) = (RAN.get(), cpu_time(), Instant::now());
        call();
        self.took.push(begin.elapsed());
        self.most_cpu = self.most_cpu.max(cpu_time().saturating_sub(cpu));
        self.most_inline = self.most_inline.max(RAN.get() - ran);
    }
}

fn defer_and_wait(domain: &Srcu) -> Seen {
    let (mut seen, begin) = (Seen::default(), Instant::now());
    while begin.elapsed() < LASTS {
        let callback = spinning();
        seen.call(|| {
            domain.call(callback);
            domain.synchronize_expedited();
        });
        seen.deferred += 1;
    }
    seen.ran = RAN.get();
    seen
}

fn share(domain: &Srcu, run_inline: u64) {
    let start = Barrier::new(THREADS);
    let threads: Vec<Seen> = thread::scope(|scope| {
        let spawn = |_| {
            scope.spawn(|| {
                start.wait();
                defer_and_wait(domain)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let all: u64 = threads.iter().map(|seen| seen.ran).sum();
    let mut took: Vec<_> = threads.iter().flat_map(|seen| &seen.took).collect();
    took.sort_unstable();
    println!(
        "{} calls of each: p50 {:?}, p99.9 {:?}, longest {:?}",
        took.len() / THREADS,
        took[took.len() / 2],
        took[took.len() * 999 / 1000],
        took[took.len() - 1],
    );
    for seen in &threads {
        let per_own = seen.ran as f64 / seen.deferred as f64;
        println!(
            "deferred {}, ran {} ({:.1} % of all, {per_own:.2} for each of its own); in one call {} at most, {:?} of CPU",
            seen.deferred,
            seen.ran,
            100.0 * seen.ran as f64 / all as f64,
            seen.most_inline,
            seen.most_cpu,
        );
        assert!(seen.most_inline <= run_inline + 1, "more than its share in one call");
        assert!(
            seen.most_cpu <= Duration::from_millis(50),
            "{:?} of CPU in one call",
            seen.most_cpu
        );
    }
}

#[test]
fn without_a_worker_nobody_is_held_up_by_what_others_defer() {
    share(&Srcu::try_new(Arc::new(Host::new()), Config::default()).unwrap(), 64);
}

#[test]
fn with_a_worker_and_a_small_share_nobody_is_held_up_by_what_others_defer() {
    let worker = WorkerThread::spawn(Arc::new(Host::new())).unwrap();
    let worker = Some(Arc::clone(worker.worker()));
    let config = Config { run_inline: 1, worker, ..Config::default() };
    share(&Srcu::try_new(Arc::new(Host::new()), config).unwrap(), 1);
}
