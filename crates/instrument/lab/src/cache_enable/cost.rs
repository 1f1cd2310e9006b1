//! What it takes to clean and invalidate a line, here.

use std::time::{Duration, Instant};

use anyhow::Context;
use mayfly_machine::address_space::Backing;
use mayfly_machine::cache::Lines;
use mayfly_machine::scenario::TableFormat;
use mayfly_machine::{LINE, Machine, Rigour};
use mayfly_platform::address::{PAGE_SIZE, Pfn};
use mayfly_platform::cache::{Cache, CacheCapabilities};
use mayfly_stage2::Level;

use crate::populate::touch;

/// What is flushed to find out: as a whole VM, it is not in the caches.
const SAMPLE: u64 = 256 << 20;

/// How much of it at once: shorter than a scheduler's turn, so that few of them are disturbed.
const PIECE: u64 = 4 << 20;

/// How often all of it.
const PASSES: usize = 5;

/// The time that a line takes, of many that are flushed one after the other: the median's of the pieces.
pub(super) fn of_a_line() -> anyhow::Result<LineCost> {
    let frames = 2 * usize::try_from(Level::GIB1.pages())?;
    let machine =
        Machine::<TableFormat>::with_caches(frames, Lines::Real, CacheCapabilities::default())
            .context("starting the machine")?;
    machine.hardware().set_rigour(Rigour::empty());
    let memory = machine.map_backed(SAMPLE, Backing::Contiguous)?;
    touch(&memory, SAMPLE);
    let first = machine.space().resolve(memory.hva(), true)?.pfn.get();
    let piece = |frame| {
        let begun = Instant::now();
        machine.cache().clean_invalidate(Pfn::new(frame), PIECE / PAGE_SIZE);
        begun.elapsed()
    };
    let frames = first..first + SAMPLE / PAGE_SIZE;
    let pass = || frames.clone().step_by((PIECE / PAGE_SIZE) as usize).map(piece);
    // The first writes back what was written above.
    pass().for_each(drop);
    let mut times: Vec<_> = (0..PASSES).flat_map(|_| pass()).collect();
    times.sort_unstable();
    Ok(LineCost { lines: PIECE / LINE, time: times[times.len() / 2] })
}

/// How long so many lines took.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineCost {
    lines: u64,
    time: Duration,
}

impl LineCost {
    /// What `lines` would take.
    pub(super) fn times(self, lines: u64) -> Duration {
        self.time.mul_f64(lines as f64 / self.lines as f64)
    }
}
