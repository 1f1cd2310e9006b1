//! The local vector table (Intel SDM volume 3, 11.5.1; AMD APM volume 2, 16.4): six registers, of which two have sources,
//! the timer and errors. Nothing is connected to the others, which are kept as they are written.

/// Which entry: its register is at `0x320` and `0x10` times this.
pub(crate) const TIMER: usize = 0;
pub(crate) const ERROR: usize = 5;
pub(crate) const ENTRIES: usize = 6;

pub(crate) const MASKED: u32 = 1 << 16;

const VECTOR: u32 = 0xff;
const DELIVERY_MODE: u32 = 7 << 8;
/// Delivery status, and of a pin its remote IRR: read as zero, since nothing is ever under way.
const READ_ONLY: u32 = 1 << 12 | 1 << 14;
const PERIODIC: u32 = 1 << 17;
const TSC_DEADLINE: u32 = 1 << 18;
const PIN: u32 = VECTOR | DELIVERY_MODE | 1 << 13 | 1 << 15 | MASKED;

/// The bits of an entry that are kept as written.
pub(crate) const fn writable(entry: usize, tsc_deadline: bool) -> u32 {
    match entry {
        TIMER if tsc_deadline => VECTOR | MASKED | PERIODIC | TSC_DEADLINE,
        TIMER => VECTOR | MASKED | PERIODIC,
        // Thermal sensor, performance counters.
        1 | 2 => VECTOR | DELIVERY_MODE | MASKED,
        3 | 4 => PIN,
        _ => VECTOR | MASKED,
    }
}

/// The bits of an entry that may be written as ones, and are ignored.
pub(crate) const fn ignored(entry: usize) -> u32 {
    match entry {
        3 | 4 => READ_ONLY,
        _ => READ_ONLY & !(1 << 14),
    }
}
