//! A timer, as its registers have it.

use crate::machine::{get, set};

pub(crate) const ENABLE: u64 = 1;
pub(crate) const MASKED: u64 = 2;
const DUE: u64 = 4;

/// A timer, by the number of its interrupt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    Physical = 30,
    Virtual = 27,
}

use Timer::{Physical, Virtual};

impl Timer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Physical => "the physical timer",
            Virtual => "the virtual timer",
        }
    }

    pub(crate) fn count(self) -> u64 {
        match self {
            Physical => get!("cntpct_el0"),
            Virtual => get!("cntvct_el0"),
        }
    }

    pub(crate) fn control(self) -> u64 {
        match self {
            Physical => get!("cntp_ctl_el0"),
            Virtual => get!("cntv_ctl_el0"),
        }
    }

    pub(crate) fn set_control(self, value: u64) {
        match self {
            Physical => set!("cntp_ctl_el0", value),
            Virtual => set!("cntv_ctl_el0", value),
        }
    }

    pub(crate) fn compare(self) -> u64 {
        match self {
            Physical => get!("cntp_cval_el0"),
            Virtual => get!("cntv_cval_el0"),
        }
    }

    pub(crate) fn set_compare(self, value: u64) {
        match self {
            Physical => set!("cntp_cval_el0", value),
            Virtual => set!("cntv_cval_el0", value),
        }
    }

    pub(crate) fn left(self) -> i64 {
        let left = match self {
            Physical => get!("cntp_tval_el0"),
            Virtual => get!("cntv_tval_el0"),
        };
        i64::from((left as u32).cast_signed())
    }

    pub(crate) fn set_left(self, value: u64) {
        match self {
            Physical => set!("cntp_tval_el0", value),
            Virtual => set!("cntv_tval_el0", value),
        }
    }

    pub(crate) fn is_due(self) -> bool {
        self.control() & (ENABLE | DUE) == ENABLE | DUE
    }
}

/// The interrupt `number` is taken: a timer's goes on until the timer is masked.
pub(crate) fn quieten(number: u32) {
    for timer in [Physical, Virtual].into_iter().filter(|timer| *timer as u32 == number) {
        timer.set_control(ENABLE | MASKED);
    }
}
