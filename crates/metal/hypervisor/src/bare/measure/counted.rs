//! What happens between two moments, in retired instructions and virtual time.

use core::sync::atomic::AtomicU32;

use mayfly_lifecycle_steps::{Line, Spent, times};

use super::arch::{Count, Retired, begin, between};
use crate::bare::processor::timer;
use crate::bare::threads;
use crate::bare::threads::console::say;

/// A moment.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    ticks: u64,
    count: Count,
}

impl Moment {
    fn since(self, earlier: Self) -> Spent {
        let levels = self.count.since(earlier.count);
        Spent { levels, nanoseconds: between(earlier.ticks, self.ticks) }
    }
}

/// Counts, and prints a line for each sample.
pub(crate) struct Counter {
    retired: Retired,
    lines: u32,
}

impl Counter {
    pub(crate) fn begin() -> Result<Self, &'static str> {
        let retired = begin()?;
        Ok(Self { retired, lines: 0 })
    }

    /// How many lines there were.
    pub(crate) fn lines(&self) -> u32 {
        self.lines
    }
}

impl mayfly_lifecycle_steps::course::Counter for Counter {
    type Moment = Moment;
    type Error = &'static str;

    fn now(&self) -> Result<Moment, &'static str> {
        Ok(Moment { ticks: timer::ticks(), count: self.retired.read() })
    }

    fn between(earlier: &Moment, later: &Moment) -> Spent {
        later.since(*earlier)
    }

    fn settle(&self) {
        settle();
    }

    fn keep(&mut self, line: Line) {
        say!("{line}");
        self.lines += 1;
    }
}

/// Sleeps, so that other threads have the processor.
pub(crate) fn settle() {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    let ticks = timer::frequency() * times::SETTLE_MILLISECONDS / 1000;
    threads::wait(&NEVER, 0, timer::ticks() + ticks);
}
