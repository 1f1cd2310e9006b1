//! The platform of an ordinary Linux process.

use core::num::NonZeroU64;
use std::io::Write as _;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::sync::AtomicU32;
use crate::time::Instant;
use crate::{Context, Identity, Platform, ReaderBarrier};

/// A Linux process: futexes to wait, `CLOCK_MONOTONIC` for time, `membarrier(2)` (private, expedited; Linux 4.14) as
/// the heavy barrier.
///
/// Each barrier interrupts every CPU that runs a thread of the process, and so brings its vCPUs out of their guests for
/// a moment: a process cannot say which of its CPUs are in a guest, so none is left out.
///
/// A process that filters its system calls has to let `membarrier` with command 8 (`PRIVATE_EXPEDITED`) and `futex`
/// (to wait and to wake, private) through for as long as it lives, and `membarrier` with commands 0 and 16 until this is
/// built. Where the filter comes later and answers one of them with an error, the process aborts and says so. One that
/// kills says nothing. One that answers that all went well, and does nothing, cannot be seen, and has memory freed under
/// its readers. `sched_yield` may be refused, but not kill.
#[derive(Debug)]
pub struct Host {
    barrier: ReaderBarrier,
}

impl Host {
    /// Readers are ordered by `membarrier` where the kernel has it and lets this process register for it, and by fences
    /// of their own elsewhere.
    pub fn new() -> Self {
        // Miri has no such call.
        let asymmetric = !cfg!(miri)
            && membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
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

// SAFETY: `heavy_barrier` returns when the kernel has carried it out, and not otherwise; all hosts are one process;
// a thread-local's address is its thread's alone.
unsafe impl Platform for Host {
    fn identity(&self) -> Identity {
        Identity::new(u64::from_be_bytes(*b"process "))
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        Self::sleep(word, expected, None);
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
        Self::sleep(word, expected, Some(&timeout));
    }

    fn wake(&self, word: &AtomicU32) {
        let everybody = i32::MAX.cast_unsigned();
        if let Err(error) = futex::wake(word, futex::Flags::PRIVATE, everybody) {
            refused("futex", error, "those who sleep would sleep on");
        }
    }

    fn now(&self) -> Instant {
        let now = clock_gettime(ClockId::Monotonic);
        Instant::from_nanos(
            now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned(),
        )
    }

    fn relax(&self) {
        // Whether it was done is all the same; a filter may refuse it.
        std::thread::yield_now();
    }

    fn spin(&self) {
        // The kernel may have taken the processor from the thread that is waited for. A CPU is a number here, which a thread
        // keeps while it does not run.
        self.relax();
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        self.barrier
    }

    fn heavy_barrier(&self) {
        // Once registered it fails only for want of a moment's kernel memory (a CPU mask, on kernels built for very
        // many CPUs), or where a filter refuses it, with whatever error.
        for _ in 0..MEMORYS_TRIES {
            match membarrier(MembarrierCommand::PrivateExpedited) {
                Ok(()) => return,
                Err(Errno::NOMEM) => std::thread::yield_now(),
                Err(error) => {
                    refused("membarrier", error, "memory would be freed under its readers")
                }
            }
        }
        refused("membarrier", Errno::NOMEM, "memory would be freed under its readers");
    }

    fn context(&self) -> Option<Context> {
        std::thread_local!(static HERE: u8 = const { 0 });
        let address = HERE.try_with(|here| core::ptr::from_ref(here).addr() as u64).ok()?;
        NonZeroU64::new(address).map(Context::new)
    }
}

impl Host {
    fn sleep(word: &AtomicU32, expected: u32, timeout: Option<&Timespec>) {
        match futex::wait(word, futex::Flags::PRIVATE, expected, timeout) {
            // The word has changed, a signal came, or it is time: the thread that waits looks again.
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
            Err(error) => refused("futex", error, "whoever waits would spin"),
        }
    }
}

/// So often the kernel may say that it has no memory for a barrier at the moment.
const MEMORYS_TRIES: u32 = 1 << 20;

/// Ends the process, which cannot go on without a system call that was there when it began.
#[cold]
fn refused(call: &str, error: Errno, otherwise: &str) -> ! {
    // Where no thread reads standard error, that is no reason to panic and to live on.
    let _ = std::writeln!(
        std::io::stderr(),
        "mayfly: {call} was refused ({error}), and {otherwise}: aborting. A seccomp filter that was installed after \
         start-up has to let it through: membarrier(8), futex."
    );
    std::process::abort()
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
    fn each_thread_is_a_context_of_its_own() {
        let host = Host::new();
        let here = host.context().unwrap();
        assert_eq!(host.context(), Some(here));
        let there = std::thread::spawn(move || Host::fenced().context().unwrap()).join().unwrap();
        assert_ne!(here, there);
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
