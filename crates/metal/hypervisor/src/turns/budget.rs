//! The quota of a share with a cap.
//!
//! A share uses its quota evenly over the period, as far as it can: a cap of one processor and a half is used on one
//! processor, and on a second only while the first cannot use up what is left. Else a share would take all processors
//! at the beginning of each period, and others would have to wait that need a processor each.

use super::{PERIOD, ticks};

/// The least that is granted, in microseconds: less is not worth a switch.
const LEAST: u64 = 500;

/// How much processor time a share may have in each period, and what is left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    quota: i64,
    period: u64,
    least: u64,
    left: i64,
    /// When it has its quota anew, in ticks.
    next: u64,
    /// How many of its threads run.
    running: u32,
    /// How many may run all the time.
    whole: u32,
}

impl Budget {
    /// So many hundredths of a processor.
    pub(super) const fn new(percent: u32, frequency: u64) -> Self {
        let period = ticks(PERIOD, frequency);
        let quota = period.saturating_mul(percent as u64) / 100;
        let quota = if quota == 0 { 1 } else { quota.cast_signed() };
        Self {
            quota,
            period,
            least: ticks(LEAST, frequency),
            left: quota,
            next: 0,
            running: 0,
            whole: percent / 100,
        }
    }

    /// Whether no other thread may begin at `now`.
    pub(super) fn is_dry(&mut self, now: u64) -> bool {
        if self.is_spent(now) || self.running > self.whole {
            return true;
        }
        let rest = self.next - now;
        self.running == self.whole && self.left <= (rest * u64::from(self.whole)).cast_signed()
    }

    /// Whether nothing is left at `now`.
    pub(super) fn is_spent(&mut self, now: u64) -> bool {
        if now >= self.next {
            // What is left is bounded, so more periods than fill it from its debt make no difference.
            let periods = (now - self.next) / self.period + 1;
            let gained = self.quota.saturating_mul(periods.min(1 << 20).cast_signed());
            self.left = self.left.saturating_add(gained).min(self.quota + self.quota / 2);
            self.next = now - (now - self.next) % self.period + self.period;
        }
        self.left <= 0
    }

    /// When it has its quota anew, in ticks.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Grants at most `slice`, and takes it from what is left.
    pub(super) fn grant(&mut self, slice: u64) -> u64 {
        let left = self.left.max(0).cast_unsigned();
        let granted = left.max(self.least).min(slice);
        self.left = self.left.saturating_sub_unsigned(granted);
        granted
    }

    /// One more of its threads runs.
    pub(super) const fn begin(&mut self) {
        self.running += 1;
    }

    /// One of its threads stops to run.
    pub(super) const fn stop(&mut self) {
        self.running -= 1;
    }

    /// Gives back what was granted, and takes what was used.
    pub(super) const fn settle(&mut self, used: u64, granted: u64) {
        let unused = granted.wrapping_sub(used).cast_signed();
        self.left = self.left.saturating_add(unused);
    }
}
