//! The platform's heavy barrier under torture, without the rest of the domain.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_platform::sync::CacheLine;
use mayfly_platform::{Host, Platform, ReaderBarrier};

use super::AT_LEAST;

/// The protocol's store buffering with nothing else around it: a reader announces itself with a plain store behind
/// stores that miss every cache, and loads a version; an updater replaces the version, passes `barrier`, and looks for
/// the reader. Returns how often the reader had a version that the updater took for free, and how often the updater
/// looked.
fn store_buffering(barrier: impl Fn()) -> (u64, u64) {
    const COLD_LINES: usize = 1 << 20;
    let cold: Vec<_> = (0..COLD_LINES).map(|_| CacheLine(AtomicU64::new(0))).collect();
    let [present, freed, section] = [const { CacheLine(AtomicU64::new(0)) }; 3];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut early, mut word, mut line) = (0, 0, 1_usize);
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..40 {
                    line = line.wrapping_mul(5).wrapping_add(0x9e37_79b9) % COLD_LINES;
                    cold[line].store(word, Ordering::Relaxed);
                }
                section.store(word + 1, Ordering::Relaxed);
                compiler_fence(Ordering::SeqCst);
                let version = present.load(Ordering::Acquire);
                early += u64::from((0..200).any(|_| freed.load(Ordering::Relaxed) > version));
                word += 2;
                section.store(word, Ordering::Release);
            }
            early
        });
        let begin = Instant::now();
        let mut version = 0;
        while begin.elapsed() < Duration::from_millis(500) {
            version += 1;
            present.store(version, Ordering::Release);
            barrier();
            let word = section.load(Ordering::Acquire);
            while word % 2 == 1 && section.load(Ordering::Acquire) == word {
                std::hint::spin_loop();
            }
            freed.store(version, Ordering::Release);
        }
        stop.store(true, Ordering::Relaxed);
        (reader.join().unwrap(), version)
    })
}

#[test]
fn the_heavy_barrier_of_this_machine_makes_up_for_the_fence_that_readers_do_without() {
    let host = Host::new();
    if host.reader_barrier() == ReaderBarrier::Fenced {
        println!("this kernel has no membarrier(2)");
        return;
    }
    let (early, looks) = store_buffering(|| fence(Ordering::SeqCst));
    println!(
        "fence alone: {early} of {looks} looks were too early; whether there are any depends on the processor"
    );
    let (early, looks) = store_buffering(|| {
        fence(Ordering::SeqCst);
        host.heavy_barrier();
    });
    println!("membarrier: {early} of {looks} looks were too early");
    assert!(looks > AT_LEAST);
    assert_eq!(early, 0);
}
