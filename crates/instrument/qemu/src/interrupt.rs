//! Signals that ask this process to end, noted for a caller that has something else to end first.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A signal that asks this process to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Notes from now on which signal comes. A signal that this process was started to ignore stays ignored.
    ///
    /// # Errors
    ///
    /// When the kernel does not let this process handle signals.
    pub fn listen() -> anyhow::Result<Self> {
        let came = Arc::new(AtomicUsize::new(0));
        let (asking, ignored) = ([SIGHUP, SIGINT, SIGTERM].into_iter(), Ignored::here());
        for signal in asking.filter(|signal| !ignored.has(*signal)) {
            let number = usize::try_from(signal)?;
            signal_hook::flag::register_usize(signal, Arc::clone(&came), number)?;
        }
        Ok(Self(came))
    }

    #[cfg(test)]
    pub(crate) fn by(signal: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(signal)))
    }

    /// The one that came, if one did.
    pub fn signal(&self) -> Option<i32> {
        i32::try_from(self.0.load(Ordering::Relaxed)).ok().filter(|signal| *signal != 0)
    }

    /// Whether one came.
    pub fn came(&self) -> bool {
        self.signal().is_some()
    }
}

/// Ends this process as if it had not handled the signal.
pub fn die_of(signal: i32) -> ! {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    std::process::exit(128 + signal)
}

/// The signals that a process ignores, a bit each from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ignored(u64);

impl Ignored {
    /// Those that this process was started to ignore, but for what is handled by now: `nohup(1)` has it ignore SIGHUP,
    /// and a shell has what it runs in the background ignore SIGINT.
    pub fn here() -> Self {
        Self::of(&fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    /// Of a process with this `/proc/PID/status`.
    fn of(status: &str) -> Self {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Self(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
    }

    /// Whether it is one of them.
    pub const fn has(self, signal: i32) -> bool {
        self.0 >> (signal - 1) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_was_started_to_ignore_is_found_by_its_bit() {
        let status = "Name:\tmayfly\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n";
        let has = |status, signal| Ignored::of(status).has(signal);
        assert!(has(status, SIGHUP) && !has(status, SIGINT) && !has("", SIGHUP));
    }
}
