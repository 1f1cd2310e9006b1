//! What a thread has had of the processors.

use std::fs;
use std::ops::{AddAssign, Sub};

use mayfly_record::here::cpu as cpu_here;
use rustix::thread::Pid;

/// What a thread has had of the processors so far, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Nanoseconds of CPU time, in the kernel and out of it.
    pub(crate) cpu: u64,
    /// How often it gave the processor up, and how often it was taken from it; where the host tells.
    pub(crate) switches: Option<Switches>,
}

/// Context switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Switches {
    /// It slept.
    pub(crate) voluntary: u64,
    /// Another thread had its turn.
    pub(crate) involuntary: u64,
}

impl Used {
    /// What the calling thread has had since it was started. Takes about a microsecond, and reads no file.
    pub(crate) fn here() -> Self {
        Self { cpu: cpu_here(), switches: switches_here() }
    }
}

impl Sub for Used {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            switches: self.switches.zip(before.switches).map(|(now, before)| now - before),
        }
    }
}

impl AddAssign for Used {
    fn add_assign(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.switches = self.switches.zip(other.switches).map(|(one, two)| Switches {
            voluntary: one.voluntary + two.voluntary,
            involuntary: one.involuntary + two.involuntary,
        });
    }
}

impl Sub for Switches {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }
}

/// What a thread of this process has had of the processors, in nanoseconds; nothing where it has ended.
///
/// As exact as its own clock, also while it runs: `/proc/PID/task/TID/schedstat` lags by up to a tick then.
pub(crate) fn cpu(thread: Pid) -> Option<u64> {
    // The number of a thread's CPU clock (`MAKE_THREAD_CPUCLOCK`, `include/linux/posix-timers_types.h`), which is what
    // pthread_getcpuclockid(3) computes.
    let clock = (!thread.as_raw_nonzero().get() << 3) | 0b110;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a `timespec` that outlives the call, or fails.
    let read = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let (seconds, nanoseconds) =
        (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    (read == 0).then_some(seconds * 1_000_000_000 + nanoseconds)
}

/// How often the calling thread has lost the processor; nothing where the host does not tell.
fn switches_here() -> Option<Switches> {
    // SAFETY: a struct of integers, each of which may be 0.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: writes a `rusage` that outlives the call, or fails.
    let read = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    let number = |count| u64::try_from(count).ok().filter(|_| read == 0);
    Some(Switches { voluntary: number(usage.ru_nvcsw)?, involuntary: number(usage.ru_nivcsw)? })
}

/// How often a thread of this process has lost the processor; nothing where the host does not tell.
pub(super) fn switches(thread: Pid) -> Option<Switches> {
    let path = format!("/proc/self/task/{}/status", thread.as_raw_nonzero());
    of_status(&fs::read_to_string(path).ok()?)
}

/// `/proc/PID/status`: proc(5).
fn of_status(status: &str) -> Option<Switches> {
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse().ok()
    };
    Some(Switches {
        voluntary: number("voluntary_ctxt_switches")?,
        involuntary: number("nonvoluntary_ctxt_switches")?,
    })
}

/// Keeps the processor until this thread has had so much of it.
#[cfg(test)]
pub(super) fn burn(nanoseconds: u64) {
    let end = cpu_here() + nanoseconds;
    while cpu_here() < end {}
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::thread::gettid;

    use super::*;

    #[test]
    fn a_thread_is_read_by_others_as_it_reads_itself_while_it_runs() {
        let before = cpu(gettid()).unwrap();
        let own = cpu_here();
        burn(2_000_000);
        let (after, own_after) = (cpu(gettid()).unwrap(), cpu_here());
        assert!(before <= own && own + 2_000_000 <= after && after <= own_after);
    }

    #[test]
    fn a_thread_that_has_ended_has_no_figures() {
        let thread = std::thread::spawn(gettid).join().unwrap();
        assert_eq!((cpu(thread), switches(thread)), (None, None));
    }

    #[test]
    fn who_sleeps_gives_the_processor_up() {
        let before = Used::here();
        let seen = switches(gettid()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!((Used::here() - before).switches.unwrap().voluntary > 0);
        assert!((switches(gettid()).unwrap() - seen).voluntary > 0, "as others see it");
    }

    #[test]
    fn a_status_is_read_by_name() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(of_status(status), Some(Switches { voluntary: 7, involuntary: 2 }));
        assert_eq!(of_status("nonvoluntary_ctxt_switches:\t2\n"), None);
        assert_eq!(
            of_status("voluntary_ctxt_switches:\t-1\nnonvoluntary_ctxt_switches:\t2\n"),
            None
        );
    }

    proptest! {
        #[test]
        fn whatever_a_status_says_is_read_or_refused(text in "\\PC*(\n(non)?voluntary_ctxt_switches:\\PC*)*") {
            of_status(&text);
        }
    }
}
