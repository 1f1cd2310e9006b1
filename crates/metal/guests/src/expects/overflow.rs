//! The overflows of performance counters, whose interrupt is a level.

use crate::machine::set;

/// Their interrupt.
pub(crate) const INTERRUPT: u32 = 23;

/// The interrupt `number` is taken: that of the counters goes on until the overflows are cleared.
pub(crate) fn quieten(number: u32) {
    if number == INTERRUPT {
        set!("pmovsclr_el0", u64::MAX);
    }
}
