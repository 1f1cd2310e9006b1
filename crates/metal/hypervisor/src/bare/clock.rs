//! The time of day: the machine's, by its PL031, and a guest's.

use alloc::sync::Arc;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_arm64::spin::SpinLock;
use mayfly_arm64::timer;
use mayfly_devices::line::settle;
use mayfly_devices::rtc::Pl031;
use mayfly_hypervisor::layout::CLOCK_INTERRUPT;
use mayfly_vm::Device;

use super::devices::Bell;
use super::seat::Gic;

/// The second in which the counter was 0, since 1970.
static START: AtomicU64 = AtomicU64::new(0);

/// Reads the machine's clock, once: from then on the counter tells the time.
///
/// # Safety
///
/// There is a PL031 at `base`, mapped as device memory; or `base` is 0, and it is 1970.
pub(super) unsafe fn read(base: u64) {
    if base != 0 {
        // SAFETY: the caller's promise: its data register, which reading does not change.
        let now = unsafe { with_exposed_provenance::<u32>(base as usize).read_volatile() };
        let since = timer::ticks() / timer::frequency();
        START.store(u64::from(now).saturating_sub(since), Ordering::Relaxed);
    }
}

/// The second that it is, since 1970.
fn now() -> u64 {
    START.load(Ordering::Relaxed) + timer::ticks() / timer::frequency()
}

/// A guest's clock.
pub(super) struct Clock {
    device: SpinLock<Pl031>,
    line: Arc<Gic>,
    bell: Arc<Bell>,
}

impl Clock {
    pub(super) fn new(line: &Arc<Gic>, bell: &Arc<Bell>) -> Self {
        let (line, bell) = (Arc::clone(line), Arc::clone(bell));
        Self { device: SpinLock::new(Pl031::new()), line, bell }
    }

    fn drive(&self) {
        settle(
            || self.device.lock().interrupt(),
            |level| {
                // The SPI is there: the layout has it.
                let _ = self.line.set_spi(CLOCK_INTERRUPT, level);
            },
        );
    }

    /// Raises an alarm that is due. Returns when the next one is, in ticks; `u64::MAX` for never.
    pub(super) fn advance(&self) -> u64 {
        let now = now();
        let next = {
            let mut device = self.device.lock();
            device.advance(now);
            device.next_alarm(now)
        };
        self.drive();
        next.map_or(u64::MAX, |seconds| {
            let second = timer::ticks() / timer::frequency() + u64::from(seconds);
            second.saturating_mul(timer::frequency())
        })
    }
}

impl Device for Clock {
    fn read(&self, _vcpu: u32, offset: u64, data: &mut [u8]) {
        let value = u64::from(self.device.lock().read(offset, now()));
        let length = data.len().min(8);
        data[..length].copy_from_slice(&value.to_le_bytes()[..length]);
        self.drive();
    }

    fn write(&self, _vcpu: u32, offset: u64, data: &[u8]) {
        let mut value = [0; 4];
        let length = data.len().min(4);
        value[..length].copy_from_slice(&data[..length]);
        self.device.lock().write(offset, u32::from_le_bytes(value), now());
        self.drive();
        // There may be an alarm.
        self.bell.ring();
    }
}
