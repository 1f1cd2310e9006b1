//! The platform of an ordinary Linux process.

use rustix::thread::futex;
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::sync::AtomicU32;
use crate::time::Instant;
use crate::{Platform, ReaderBarrier};

/// A Linux process: futexes to wait, `CLOCK_MONOTONIC` for time, `membarrier(2)` (private, expedited; Linux 4.14) as
/// the heavy barrier.
#[derive(Debug)]
pub struct Host {
    barrier: ReaderBarrier,
}

impl Host {
    /// Readers are ordered by `membarrier` where the kernel has it and lets this process register for it, and by fences
    /// of their own elsewhere.
    pub fn new() -> Self {
        let asymmetric = membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        Self { barrier: if asymmetric { ReaderBarrier::Asymmetric } else { ReaderBarrier::Fenced } }
    }

    /// Readers execute a full fence of their own, whatever the kernel offers.
    pub fn fenced() -> Self {
        Self { barrier: ReaderBarrier::Fenced }
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Platform for Host {
    fn wait(&self, word: &AtomicU32, expected: u32) {
        // Every error means "look again": the word has changed (EAGAIN) or a signal came (EINTR).
        let _ = futex::wait(word, futex::Flags::PRIVATE, expected, None);
    }

    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant) {
        if deadline == Instant::NEVER {
            return self.wait(word, expected);
        }
        let left = deadline - self.now();
        if left.is_zero() {
            return;
        }
        let Ok(timeout) = Timespec::try_from(left) else {
            return self.wait(word, expected);
        };
        let _ = futex::wait(word, futex::Flags::PRIVATE, expected, Some(&timeout));
    }

    fn wake(&self, word: &AtomicU32) {
        let everybody = i32::MAX.cast_unsigned();
        let _ = futex::wake(word, futex::Flags::PRIVATE, everybody);
    }

    fn now(&self) -> Instant {
        let now = clock_gettime(ClockId::Monotonic);
        Instant::from_nanos(
            now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned(),
        )
    }

    fn relax(&self) {
        rustix::thread::sched_yield();
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        self.barrier
    }

    fn heavy_barrier(&self) {
        // Going on without it would free memory under a reader. Once registered it fails only for want of a moment's
        // kernel memory (a CPU mask, on kernels built for very many CPUs).
        while let Err(error) = membarrier(MembarrierCommand::PrivateExpedited) {
            assert_eq!(error, rustix::io::Errno::NOMEM, "membarrier was registered");
            rustix::thread::sched_yield();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Ordering;
    use std::sync::Arc;

    #[test]
    fn a_waiter_is_woken_by_a_change_and_not_before() {
        let host = Arc::new(Host::new());
        let word = Arc::new(AtomicU32::new(0));
        let waiter = {
            let (host, word) = (Arc::clone(&host), Arc::clone(&word));
            std::thread::spawn(move || {
                while word.load(Ordering::Acquire) == 0 {
                    host.wait(&word, 0);
                }
                word.load(Ordering::Acquire)
            })
        };
        word.store(7, Ordering::Release);
        host.wake(&word);
        assert_eq!(waiter.join().unwrap(), 7);
    }

    #[test]
    fn a_deadline_in_the_past_does_not_wait() {
        let host = Host::new();
        host.wait_until(&AtomicU32::new(0), 0, Instant::from_nanos(1));
    }

    #[test]
    fn time_does_not_go_backwards() {
        let host = Host::new();
        let mut last = host.now();
        for _ in 0..1000 {
            let now = host.now();
            assert!(now >= last);
            last = now;
        }
    }
}
