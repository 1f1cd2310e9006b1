//! The processor's performance counters, while they count for a guest ([`Counters`]). EL2 itself is not counted: no filter
//! has `NSH`.

use core::arch::asm;

use crate::counters::{Counters, MOST, Shown};

macro_rules! counters {
    ($($index:literal $count:literal $kind:literal),* $(,)?) => {
        /// What the first `of` counters of events show.
        fn counts(of: usize) -> [u64; MOST] {
            let mut counts = [0; MOST];
            $(if $index < of {
                counts[$index] = crate::read_register!($count);
            })*
            counts
        }

        /// # Safety
        ///
        /// As [`give`].
        unsafe fn set_counts(counters: &Counters, of: usize) {
            $(if $index < of {
                let (count, kind) = counters.event_counter($index);
                // SAFETY: the caller's promise; the processor has as many.
                unsafe {
                    super::write_register_alone!($kind, kind);
                    super::write_register_alone!($count, count);
                }
            })*
        }
    };
}

counters! {
    0 "pmevcntr0_el0" "pmevtyper0_el0",
    1 "pmevcntr1_el0" "pmevtyper1_el0",
    2 "pmevcntr2_el0" "pmevtyper2_el0",
    3 "pmevcntr3_el0" "pmevtyper3_el0",
    4 "pmevcntr4_el0" "pmevtyper4_el0",
    5 "pmevcntr5_el0" "pmevtyper5_el0",
}

const ALL: u64 = 0xffff_ffff;

/// Counters of events of this processor.
fn count() -> usize {
    (crate::read_register!("pmcr_el0") >> 11 & 0x1f) as usize
}

/// Stops all of them: none counts or interrupts, and EL0 reaches none.
///
/// # Safety
///
/// The processor has counters, and what they show was taken or is of no guest.
pub(super) unsafe fn stop() {
    // SAFETY: the caller's promise. EL2's accesses are not trapped.
    unsafe {
        crate::write_register!("pmcntenclr_el0", ALL);
        crate::write_register!("pmintenclr_el1", ALL);
        crate::write_register!("pmovsclr_el0", ALL);
        crate::write_register!("pmuserenr_el0", 0_u64);
        asm!("isb", options(nostack));
    }
}

/// What they show. They stop.
///
/// # Safety
///
/// They were given to the guest whose they are ([`give`]).
pub(super) unsafe fn take() -> Shown {
    // SAFETY: a counter that is off does not change, nor do its overflows.
    unsafe {
        crate::write_register!("pmcntenclr_el0", ALL);
        asm!("isb", options(nostack));
    }
    let shown = Shown {
        cycles: crate::read_register!("pmccntr_el0"),
        counts: counts(count()),
        overflows: crate::read_register!("pmovsset_el0") as u32,
    };
    // SAFETY: what they show is taken.
    unsafe { stop() };
    shown
}

/// Has the processor count for this guest from now on.
///
/// # Safety
///
/// They are stopped, and the next guest that runs is the one whose `counters` these are.
pub(super) unsafe fn give(counters: &Counters) {
    let (cycles, filter) = counters.cycle_counter();
    // SAFETY: the caller's promise; EL2 uses none of them.
    unsafe {
        crate::write_register!("pmcr_el0", counters.control());
        set_counts(counters, count());
        super::write_register_alone!("pmccfiltr_el0", filter);
        super::write_register_alone!("pmccntr_el0", cycles);
        super::write_register_alone!("pmuserenr_el0", counters.user());
        super::write_register_alone!("pmintenset_el1", u64::from(counters.interrupting()));
        asm!("isb", options(nostack));
        crate::write_register!("pmcntenset_el0", u64::from(counters.counting()));
    }
}
