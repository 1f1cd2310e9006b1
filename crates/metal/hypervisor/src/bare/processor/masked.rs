//! How long a processor executes at EL2, where interrupts are masked, without looking for them.
//!
//! A stretch begins when a guest is left, when interrupts have been looked for, and when an idle processor goes on. It
//! ends when interrupts are looked for, when a guest is entered, and when the processor becomes idle. What a processor
//! does before its first look does not count: it has no guests then.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::{cpu, cpus, timer};

/// A processor's stretches, in a cache line of its own.
#[repr(align(64))]
struct Stretches {
    /// When the present one has begun, in ticks.
    since: AtomicU64,
    longest: AtomicI64,
}

/// A moment that does not come.
const NEVER: u64 = i64::MAX as u64;

static STRETCHES: [Stretches; cpus::MAX] =
    [const { Stretches { since: AtomicU64::new(NEVER), longest: AtomicI64::new(0) } }; cpus::MAX];

impl Stretches {
    #[inline]
    fn end(&self, now: u64) {
        // Less than nothing before the first has begun.
        let length = now.wrapping_sub(self.since.load(Ordering::Relaxed)).cast_signed();
        if length > self.longest.load(Ordering::Relaxed) {
            self.longest.store(length, Ordering::Relaxed);
        }
    }
}

#[inline]
fn here() -> &'static Stretches {
    // SAFETY: processors are numbered below `cpus::MAX`, each before it comes here (`this_cpu::prepare`).
    unsafe { STRETCHES.get_unchecked(cpu::number()) }
}

/// A stretch begins.
#[inline]
pub(crate) fn begin() {
    here().since.store(timer::about_now(), Ordering::Relaxed);
}

/// The present one ends.
#[inline]
pub(crate) fn end() {
    here().end(timer::about_now());
}

/// Interrupts are looked for: the present one ends, and another begins.
pub(crate) fn look() {
    let (here, now) = (here(), timer::about_now());
    here.end(now);
    here.since.store(now, Ordering::Relaxed);
}

/// Whether the present one has lasted for so long that a thread which sleeps is to have interrupts looked for before: 5 us.
pub(crate) fn is_long() -> bool {
    let length = timer::about_now().wrapping_sub(here().since.load(Ordering::Relaxed));
    length.cast_signed() > (timer::frequency() / 200_000).cast_signed()
}

/// The longest of all processors, in nanoseconds.
pub(crate) fn longest() -> u64 {
    let longest = STRETCHES.iter().map(|here| here.longest.load(Ordering::Relaxed)).max();
    timer::instant(longest.unwrap_or(0).cast_unsigned()).as_nanos()
}
