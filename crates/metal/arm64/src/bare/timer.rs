//! Timers: the one of EL2, and the virtual one of a guest.

use core::arch::asm;

use mayfly_vm::platform::time::Instant;

/// The private interrupt of EL2's own timer.
pub const EL2_TIMER: u32 = 26;
/// The private interrupt of the virtual timer.
pub const VIRTUAL_TIMER: u32 = 27;

const ENABLE: u64 = 1;
const MASKED: u64 = 2;
/// `CNTV_CTL_EL0.ISTATUS`.
const DUE: u64 = 4;

/// Ticks of the system counter.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: a barrier, without which the counter may be read early.
    unsafe { asm!("isb", options(nostack, nomem)) };
    crate::read_register!("cntpct_el0")
}

/// Ticks of the system counter, read earlier or later by some instructions: for sums of times.
#[inline]
pub fn about_now() -> u64 {
    crate::read_register!("cntpct_el0")
}

/// Ticks in a second.
pub fn frequency() -> u64 {
    crate::read_register!("cntfrq_el0").max(1)
}

/// The moment of so many ticks.
pub fn instant(ticks: u64) -> Instant {
    let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(frequency());
    Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The ticks at which `instant` has come.
pub fn ticks_at(instant: Instant) -> u64 {
    let ticks = (u128::from(instant.as_nanos()) * u128::from(frequency())).div_ceil(1_000_000_000);
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Has EL2's timer interrupt this processor when the counter comes to `at`, or never.
pub fn set_alarm(at: Option<u64>) {
    // SAFETY: it is EL2's timer, which interrupts nothing but EL2.
    unsafe {
        if let Some(at) = at {
            crate::write_register!("cnthp_cval_el2", at);
        }
        crate::write_register!("cnthp_ctl_el2", u64::from(at.is_some()));
        asm!("isb", options(nostack));
    }
}

/// A guest's virtual timer, while it is not in the hardware's.
#[derive(Clone, Copy, Debug, Default)]
pub struct VirtualTimer {
    control: u64,
    compare: u64,
}

impl VirtualTimer {
    /// What the hardware's timer is, which stops.
    pub(super) fn take() -> Self {
        let control = crate::read_register!("cntv_ctl_el0") & (ENABLE | MASKED);
        let compare = crate::read_register!("cntv_cval_el0");
        // SAFETY: it is the guest's timer, which it is given back before it runs.
        unsafe {
            crate::write_register!("cntv_ctl_el0", 0_u64);
            asm!("isb", options(nostack));
        }
        Self { control, compare }
    }

    /// Has the hardware's timer go on as this one, on a counter that is `offset` ticks behind.
    pub(super) fn give(self, offset: u64) {
        // SAFETY: as above.
        unsafe {
            crate::write_register!("cntvoff_el2", offset);
            crate::write_register!("cntv_cval_el0", self.compare);
            asm!("isb", options(nostack));
            crate::write_register!("cntv_ctl_el0", self.control);
        }
    }

    /// When it is due, in ticks of the physical counter, if it is on and not masked.
    pub fn due(self, offset: u64) -> Option<u64> {
        (self.control & (ENABLE | MASKED) == ENABLE).then(|| self.compare.saturating_add(offset))
    }
}

/// Whether the hardware's virtual timer asks for an interrupt now.
pub fn virtual_is_due() -> bool {
    let control = crate::read_register!("cntv_ctl_el0");
    control & (ENABLE | MASKED | DUE) == ENABLE | DUE
}
