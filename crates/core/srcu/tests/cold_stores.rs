//! Store buffering around the real reader and the real grace period.
//!
//! A reader enters behind stores that miss every cache, so that its announcement stays in the store buffer, and looks at
//! the present version. An updater replaces it, polls a grace period, and takes the old version for free at once. With a
//! heavy barrier that is none, that happens under the reader again and again, which is this test's control; with the
//! machine's, never. What is not optimised is too slow for it:
//!
//!     cargo test --release -p mayfly-srcu --test cold_stores -- --nocapture

#![cfg(not(any(miri, mayfly_loom, mayfly_shuttle)))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_platform::sync::CacheLine;
use mayfly_platform::{Host, Layer, Platform, ReaderBarrier};
use mayfly_srcu::{Config, Srcu};

/// A host whose heavy barrier is none.
struct Feigned(Host);

// SAFETY: it is not what it says, which is what this test is about; what its readers look at is never freed.
unsafe impl Layer for Feigned {
    type Below = Host;

    fn below(&self) -> &Host {
        &self.0
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        ReaderBarrier::Asymmetric
    }

    fn heavy_barrier(&self) {}
}

/// How often the updater took a version for free, and how often the reader was looking at it still.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    freed: u64,
    early: u64,
}

/// Replaces versions on `platform` until `enough` has been seen.
fn replace(platform: Arc<dyn Platform>, enough: impl Fn(Seen) -> bool) -> Seen {
    const COLD_LINES: usize = 1 << 20;
    let domain = Srcu::try_new(platform, Config::default()).unwrap();
    assert!(!domain.is_fenced());
    let reader = domain.reader().unwrap();
    let cold: Vec<_> = (0..COLD_LINES).map(|_| CacheLine(AtomicU64::new(0))).collect();
    let [present, freed, early] = [const { CacheLine(AtomicU64::new(0)) }; 3];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (present, freed, early, stop, cold) = (&present, &freed, &early, &stop, &cold);
        scope.spawn(move || {
            let (mut word, mut line) = (0, 1_usize);
            while !stop.load(Ordering::Relaxed) {
                word += 1;
                for _ in 0..40 {
                    line = line.wrapping_mul(5).wrapping_add(0x9e37_79b9) % COLD_LINES;
                    cold[line].store(word, Ordering::Relaxed);
                }
                let section = reader.lock();
                let version = present.load(Ordering::Acquire);
                // Every version before the one that `freed` names is free.
                if (0..3000).any(|_| freed.load(Ordering::Relaxed) > version) {
                    early.fetch_add(1, Ordering::Relaxed);
                }
                drop(section);
            }
        });
        let mut seen = Seen::default();
        while !enough(seen) {
            let version = seen.freed + 1;
            present.store(version, Ordering::Release);
            let cookie = domain.start_poll();
            while !domain.poll(cookie) {
                std::hint::spin_loop();
            }
            freed.store(version, Ordering::Release);
            seen = Seen { freed: version, early: early.load(Ordering::Relaxed) };
        }
        stop.store(true, Ordering::Relaxed);
        seen
    })
}

#[test]
fn no_version_is_freed_under_a_reader_whose_announcement_is_in_its_store_buffer() {
    const OFTEN: u64 = 100;
    /// Much longer than it takes where nothing else runs. On a busy host there are few occasions: the reader and the updater
    /// have to run at the same time, each on a processor of its own.
    const PATIENCE: Duration = Duration::from_secs(240);
    /// Longer than the scheduler leaves both threads on one CPU, where nothing is ever early.
    const SETTLED: Duration = Duration::from_millis(500);
    if cfg!(debug_assertions) {
        println!(
            "skipped: not optimised, a grace period takes longer than a store stays in its buffer (--release)"
        );
        return;
    }
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skipped: one CPU sees its own stores");
        return;
    }
    if Host::new().reader_barrier() == ReaderBarrier::Fenced {
        println!("skipped: this kernel has no membarrier(2)");
        return;
    }
    let begin = Instant::now();
    let control = replace(Arc::new(Feigned(Host::new())), |seen| {
        let lasted = begin.elapsed();
        seen.early >= OFTEN && lasted > SETTLED || lasted > PATIENCE
    });
    println!("a barrier that is none: {control:?} in {:?}", begin.elapsed());
    assert!(control.early > 0, "nothing was freed early: this test would not see it");
    if control.early < OFTEN {
        println!("skipped: too few early frees to say that they would be seen, in {PATIENCE:?}");
        return;
    }
    // Occasions for as many of them, at this rate.
    let occasions = OFTEN * control.freed / control.early;
    let begin = Instant::now();
    let real = replace(Arc::new(Host::new()), |seen| {
        let lasted = begin.elapsed();
        seen.early > 0 || seen.freed >= occasions && lasted > SETTLED || lasted > PATIENCE
    });
    println!("the machine's: {real:?} in {:?}", begin.elapsed());
    assert_eq!(real.early, 0);
    if real.freed < occasions {
        println!("skipped: too few occasions to say that there are none, in {PATIENCE:?}");
    }
}
