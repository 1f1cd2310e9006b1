//! Timers: the one of EL2, and the virtual and the physical one of a guest.

use core::arch::asm;

use mayfly_vm::platform::time::Instant;

use crate::controls::Controls;
use crate::vcpu::Timer;
use crate::vcpu::timer::{ENABLE, MASKED};

/// The private interrupt of EL2's own timer.
pub const EL2_TIMER: u32 = 26;
/// The private interrupt of the virtual timer.
pub const VIRTUAL_TIMER: u32 = 27;
/// The private interrupt of the physical timer of EL1.
pub const PHYSICAL_TIMER: u32 = 30;

/// `CNTHCTL_EL2.EL1PCEN`, E2H clear: accesses to the physical timer do not trap.
const EL1PCEN: u64 = 2;
/// `ISTATUS`.
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

impl Timer {
    /// What the hardware's virtual timer is, which stops.
    #[inline]
    pub(super) fn take_virtual() -> Self {
        let control = crate::read_register!("cntv_ctl_el0") & (ENABLE | MASKED);
        let compare = crate::read_register!("cntv_cval_el0");
        // SAFETY: it is the guest's timer, which it is given back before it runs.
        unsafe {
            crate::clear_register!("cntv_ctl_el0");
            asm!("isb", options(nostack));
        }
        Self { control, compare }
    }

    /// Has the hardware's virtual timer go on as this one, on a counter that is `offset` ticks behind.
    #[inline]
    pub(super) fn give_virtual(self, offset: u64) {
        // SAFETY: as above.
        unsafe {
            crate::write_register!("cntvoff_el2", offset);
            crate::write_register!("cntv_cval_el0", self.compare);
            asm!("isb", options(nostack));
            crate::write_register!("cntv_ctl_el0", self.control);
        }
    }

    /// What the hardware's physical timer is, which stops, and traps from now on.
    pub(super) fn take_physical() -> Self {
        let control = crate::read_register!("cntp_ctl_el0") & (ENABLE | MASKED);
        let compare = crate::read_register!("cntp_cval_el0");
        // SAFETY: it is the guest's timer, which it is given back before it runs.
        unsafe {
            crate::clear_register!("cntp_ctl_el0");
            crate::write_register!("cnthctl_el2", Controls::CNTHCTL);
            asm!("isb", options(nostack));
        }
        Self { control, compare }
    }

    /// Has the hardware's physical timer go on as this one. The guest reaches it without a trap.
    pub(super) fn give_physical(self) {
        // SAFETY: as above.
        unsafe {
            crate::write_register!("cntp_cval_el0", self.compare);
            crate::write_register!("cnthctl_el2", Controls::CNTHCTL | EL1PCEN);
            asm!("isb", options(nostack));
            crate::write_register!("cntp_ctl_el0", self.control);
        }
    }
}

/// The level of the line of a timer of the guest's whose registers are in the processor: of [`VIRTUAL_TIMER`] or
/// [`PHYSICAL_TIMER`].
pub fn is_high(interrupt: u32) -> bool {
    // SAFETY: a barrier, without which the timer may be read early.
    unsafe { asm!("isb", options(nostack, nomem)) };
    let control = if interrupt == PHYSICAL_TIMER {
        crate::read_register!("cntp_ctl_el0")
    } else {
        crate::read_register!("cntv_ctl_el0")
    };
    control & (ENABLE | MASKED | DUE) == ENABLE | DUE
}

/// Stops both timers of EL1 on this processor: firmware may have left one on.
///
/// # Safety
///
/// No guest's registers are in the processor.
pub unsafe fn stop_guests() {
    // SAFETY: the caller's promise; EL2 uses neither.
    unsafe {
        crate::clear_register!("cntv_ctl_el0");
        crate::clear_register!("cntp_ctl_el0");
        asm!("isb", options(nostack));
    }
}
