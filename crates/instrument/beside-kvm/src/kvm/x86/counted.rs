//! What happens between two moments, in instructions and time.
//!
//! In a machine that QEMU makes up with `-icount shift=0,sleep=off`, each instruction is one tick of the time-stamp counter,
//! and 1 ns. That counter goes on while the processor halts. So it does not: see [`Idle`].

use std::arch::asm;
use std::arch::x86_64::_rdtsc;
use std::fmt::Write;
use std::thread::sleep;
use std::time::Duration;

use anyhow::ensure;
use mayfly_lifecycle_steps::{Line, Spent, course, times};

use super::idle::Idle;
use crate::kernel_at::KernelAt;

/// Instructions of a loop that is counted to see whether they are ticks, and how many more it may have.
const KNOWN: u64 = 1_000_000;
const MORE: u64 = 500;
/// How often that is tried, since an interrupt may come between.
const TRIES: usize = 8;
/// For how long the machine is idle to see that this does not count, what part of that time may, and how often that is looked
/// at: a machine that has just started still has things to do.
const HALTED: Duration = Duration::from_millis(20);
const PART: u64 = 10;
const LOOKS: usize = 100;

/// A moment: ticks, and those of them in which the machine was idle.
#[derive(Clone, Copy)]
pub(in crate::kvm) struct Moment {
    ticks: u64,
    idle: u64,
}

impl Moment {
    fn since(self, earlier: Self) -> Spent {
        let (ticks, idle) = (self.ticks - earlier.ticks, self.idle - earlier.idle);
        Spent { levels: [0, 0, ticks.saturating_sub(idle)], nanoseconds: ticks }
    }
}

/// Counts, and keeps the lines until the end: a console that is written to causes interrupts.
pub(in crate::kvm) struct Counter {
    idle: Idle,
    samples: Vec<Line>,
}

impl Counter {
    /// Begins to count, if what is counted are instructions.
    pub(in crate::kvm) fn begin(_kernel_at: KernelAt) -> anyhow::Result<Self> {
        let least = (0..TRIES).map(|_| known()).min().unwrap_or(0);
        ensure!(
            (KNOWN..=KNOWN + MORE).contains(&least),
            "the time-stamp counter does not count instructions: a loop of {KNOWN} takes {least} ticks (QEMU: -icount \
             shift=0,sleep=off)"
        );
        let this = Self { idle: Idle::start()?, samples: Vec::with_capacity(1 << 14) };
        let idles = || {
            let before = this.moment();
            sleep(HALTED);
            this.moment().since(before)
        };
        let is_quiet = |spent: &Spent| spent.levels[2] < spent.nanoseconds / PART;
        let least = (0..LOOKS).map(|_| idles()).find(is_quiet).unwrap_or_else(idles);
        ensure!(
            is_quiet(&least),
            "{} instructions were counted in {} ns in which there was nothing to do",
            least.levels[2],
            least.nanoseconds
        );
        Ok(this)
    }

    fn moment(&self) -> Moment {
        let idle = self.idle.instructions();
        // SAFETY: every processor of 64 bits has it, and Linux lets programs read it.
        Moment { ticks: unsafe { _rdtsc() }, idle }
    }

    /// All lines.
    pub(in crate::kvm) fn lines(self) -> String {
        let mut lines = format!("{}\n", Line::BEGIN);
        for line in &self.samples {
            let _ = writeln!(lines, "{line}");
        }
        let _ = writeln!(lines, "{}", Line::end(self.samples.len() as u32));
        lines
    }
}

/// Ticks of a loop of [`KNOWN`] instructions.
fn known() -> u64 {
    // SAFETY: as above; and the loop changes nothing but its register.
    unsafe {
        let before = _rdtsc();
        asm!("2: dec {0:e}", "jnz 2b", inout(reg) (KNOWN / 2) as u32 => _, options(nomem, nostack));
        _rdtsc() - before
    }
}

impl course::Counter for Counter {
    type Moment = Moment;
    type Error = anyhow::Error;

    fn now(&self) -> anyhow::Result<Moment> {
        Ok(self.moment())
    }

    fn between(earlier: &Moment, later: &Moment) -> Spent {
        later.since(*earlier)
    }

    fn settle(&self) {
        sleep(Duration::from_millis(times::SETTLE_MILLISECONDS));
    }

    fn keep(&mut self, line: Line) {
        self.samples.push(line);
    }
}
