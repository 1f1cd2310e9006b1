//! The clock of a guest, and the time of day by which it goes.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_devices::line::settle;
use mayfly_vm::Device;

use super::arch::{CLOCK_INTERRUPT, RealTimeClock, read_clock, write_clock};
use super::lines::Lines;
use crate::bare::processor::spin::SpinLock;
use crate::bare::processor::timer;
use crate::bare::threads::Bell;

/// The second in which the counter was 0, since 1970.
static START: AtomicU64 = AtomicU64::new(0);

/// Sets the time of day, in seconds since 1970. Once: from then on the counter tells the time.
pub(crate) fn set(now: u64) {
    let since = timer::ticks() / timer::frequency();
    START.store(now.saturating_sub(since), Ordering::Relaxed);
}

/// The time of day, in seconds since 1970.
pub(crate) fn now() -> u64 {
    START.load(Ordering::Relaxed) + timer::ticks() / timer::frequency()
}

/// A guest's clock.
pub(crate) struct Clock {
    device: SpinLock<RealTimeClock>,
    /// Its line may not have the level that the device says.
    is_unsettled: AtomicBool,
    lines: Arc<Lines>,
    bell: Arc<Bell>,
}

impl Clock {
    pub(crate) fn new(lines: &Arc<Lines>, bell: &Arc<Bell>) -> Self {
        Self::resumed(RealTimeClock::new(), lines, bell)
    }

    /// A clock that goes on as `device` was.
    pub(super) fn resumed(device: RealTimeClock, lines: &Arc<Lines>, bell: &Arc<Bell>) -> Self {
        let (lines, bell) = (Arc::clone(lines), Arc::clone(bell));
        Self { device: SpinLock::new(device), is_unsettled: AtomicBool::new(true), lines, bell }
    }

    /// It goes on as `device` was. Its thread looks at it then.
    pub(super) fn go_on(&self, device: RealTimeClock) {
        *self.device.lock() = device;
        self.is_unsettled.store(true, Ordering::Release);
    }

    /// What it is.
    pub(super) fn state(&self) -> RealTimeClock {
        self.device.lock().clone()
    }

    fn drive(&self) {
        settle(|| self.device.lock().interrupt(), |level| self.lines.set(CLOCK_INTERRUPT, level));
    }

    /// Raises an alarm that is due. Returns when the next one is, in ticks; `u64::MAX` for never.
    pub(crate) fn advance(&self) -> u64 {
        let now = now();
        let (next, has_changed) = {
            let mut device = self.device.lock();
            let before = device.interrupt();
            device.advance(now);
            (device.next_alarm(now), device.interrupt() != before)
        };
        if has_changed || self.is_unsettled.swap(false, Ordering::Acquire) {
            self.drive();
        }
        next.map_or(u64::MAX, |seconds| {
            let second = timer::ticks() / timer::frequency() + u64::from(seconds);
            second.saturating_mul(timer::frequency())
        })
    }
}

impl Device for Clock {
    fn read(&self, _vcpu: u32, offset: u64, data: &mut [u8]) {
        read_clock(&mut self.device.lock(), offset, now(), data);
        self.drive();
    }

    fn write(&self, _vcpu: u32, offset: u64, data: &[u8]) {
        write_clock(&mut self.device.lock(), offset, now(), data);
        self.drive();
        // The write may have set an alarm.
        self.bell.ring();
    }
}
