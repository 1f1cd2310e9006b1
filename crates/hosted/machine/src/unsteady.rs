//! The host's platform, whose waits end early now and then.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32 as Counter, Ordering};

use mayfly_platform::sync::{AtomicU32, CacheLine};
use mayfly_platform::time::Instant;
use mayfly_platform::{Host, Layer, Platform};

/// Of so many waits one ends at once, for no reason, as [`Platform::wait`] may.
const EARLY: u32 = 3;

/// The host's platform.
#[derive(Debug)]
pub(crate) struct Unsteady {
    host: Host,
    wakes_early: AtomicBool,
    waits: CacheLine<Counter>,
}

impl Unsteady {
    pub(crate) fn new(host: Host, wakes_early: bool) -> Self {
        Self { host, wakes_early: AtomicBool::new(wakes_early), waits: CacheLine::default() }
    }

    /// Says whether waits end early.
    pub(crate) fn set_wakes_early(&self, wakes_early: bool) {
        self.wakes_early.store(wakes_early, Ordering::Relaxed);
    }

    fn is_early(&self) -> bool {
        let is_early = self.wakes_early.load(Ordering::Relaxed)
            && self.waits.fetch_add(1, Ordering::Relaxed).is_multiple_of(EARLY);
        if is_early {
            spin_loop();
        }
        is_early
    }
}

// SAFETY: the host's answers, whose promises are the host's; only waits end early, as they may.
unsafe impl Layer for Unsteady {
    type Below = Host;

    fn below(&self) -> &Host {
        &self.host
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        if !self.is_early() {
            self.host.wait(word, expected);
        }
    }

    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant) {
        if !self.is_early() {
            self.host.wait_until(word, expected, deadline);
        }
    }

    // Threads take turns without it.
    fn relax(&self) {}
}
