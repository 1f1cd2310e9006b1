//! From one moment to another, in retired instructions and virtual time.

use core::sync::atomic::AtomicU32;

use mayfly_arm64::pmu::{Count, NoCounters, Retired};
use mayfly_arm64::timer;
use mayfly_lifecycle_steps::{Line, Row, Spent, Until, times};

use crate::bare::console::say;
use crate::bare::threads;

/// A moment.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    ticks: u64,
    count: Count,
}

impl Moment {
    fn since(self, earlier: Self) -> Spent {
        let nanoseconds = |ticks| timer::instant(ticks).as_nanos();
        Spent {
            levels: self.count.since(earlier.count),
            nanoseconds: nanoseconds(self.ticks) - nanoseconds(earlier.ticks),
        }
    }
}

/// Counts, and prints a line for each sample.
pub(super) struct Counter {
    retired: Retired,
    lines: u32,
}

impl Counter {
    pub(super) fn begin() -> Result<Self, &'static str> {
        let retired = Retired::begin().map_err(NoCounters::why)?;
        Ok(Self { retired, lines: 0 })
    }

    /// How many lines there were.
    pub(super) fn lines(&self) -> u32 {
        self.lines
    }

    /// Something begins.
    pub(super) fn now(&self) -> Moment {
        Moment { ticks: timer::ticks(), count: self.retired.read() }
    }

    /// It is done, and the caller has control back; then all is waited for that was left to others.
    pub(super) fn done(&mut self, row: Row, times: u32, begun: Moment) {
        let caller = self.now();
        settle();
        let all = self.now();
        for (until, moment) in [(Until::Caller, caller), (Until::All, all)] {
            say!("{}", Line { row, until, times, spent: moment.since(begun) });
            self.lines += 1;
        }
    }
}

/// Sleeps, so that the processor is others'.
pub(super) fn settle() {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    let ticks = timer::frequency() * times::SETTLE_MILLISECONDS / 1000;
    threads::wait(&NEVER, 0, timer::ticks() + ticks);
}
