//! Interrupts of a line that no device on the line has asked for.
//!
//! Several devices may share a line, and one that nobody serves may hold it: it would interrupt again each time, for good.
//! A few interrupts that nobody has asked for are none of these: a device may have been asked a moment too early.

use core::sync::atomic::{AtomicU32, Ordering};

/// By how many the interrupts that nobody has asked for may outnumber the others.
pub const PATIENCE: u32 = 100;

/// The interrupts of a line.
#[derive(Debug, Default)]
pub struct Strays(AtomicU32);

impl Strays {
    /// None so far.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Notes an interrupt, and whether a device has asked for it. Returns, once, that the line is held. One processor at a
    /// time: an interrupt is not taken by another as long as it is active.
    pub fn note(&self, is_asked_for: bool) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        let now = if is_asked_for { before.saturating_sub(1) } else { before.saturating_add(1) };
        // A line that was found held stays so.
        if before < PATIENCE {
            self.0.store(now, Ordering::Relaxed);
        }
        before < PATIENCE && now == PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_held_when_nobody_asks_and_that_is_said_once() {
        let line = Strays::new();
        let said: Vec<u32> = (1..1000).filter(|_| line.note(false)).collect();
        assert_eq!(said, [PATIENCE]);
        assert!(!(0..1000).any(|_| line.note(true)) && !(0..1000).any(|_| line.note(false)));
    }

    #[test]
    fn a_line_is_held_by_one_also_while_others_work_on_it() {
        let line = Strays::new();
        assert!((0..1000).any(|turn| line.note(turn % 8 == 0)));
    }

    proptest! {
        /// Devices that interrupt as they should are not turned off for a stray interrupt now and then.
        #[test]
        fn a_line_of_which_half_is_asked_for_is_not_held(strays in prop::collection::vec(0..2_u32, 0..2000)) {
            let line = Strays::new();
            for stray in strays {
                prop_assert!(!(0..stray).any(|_| line.note(false)));
                prop_assert!(!line.note(true));
            }
        }
    }
}
