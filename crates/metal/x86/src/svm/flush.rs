//! What an entry has to flush of TLBs, and whether it still has to.
//!
//! What is asked for is kept until VMRUN: a vCPU that was activated may come out again without having been entered.

use core::sync::atomic::{AtomicBool, Ordering};

use super::features::Features;

/// Whether all TLBs of the machine are outdated. A CPU alone asks and is asked: no order with other memory is meant.
#[derive(Debug)]
pub struct Outdated(AtomicBool);

impl Outdated {
    /// They are, to begin with: whatever ran before may have left something under any ASID.
    pub const fn new() -> Self {
        Self(AtomicBool::new(true))
    }

    /// They are.
    pub fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether they were until now.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Default for Outdated {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether what is under a vCPU's own ASID is outdated.
#[derive(Debug, Default)]
pub struct Own(bool);

impl Own {
    /// It is, if `flush`. If it was before, it still is.
    pub const fn note(&mut self, flush: bool) {
        self.0 |= flush;
    }

    /// `TLB_CONTROL` of an entry that is made now, where `all` TLBs are outdated or not: nothing is outdated behind it.
    pub const fn take(&mut self, all: bool, features: Features) -> u32 {
        features.tlb_control(all, core::mem::replace(&mut self.0, false))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn features() -> Features {
        Features::new(1 << 2, 1, 16, 1 << 6).unwrap()
    }

    #[test]
    fn the_first_entry_flushes_everything() {
        let (all, mut own) = (Outdated::new(), Own::default());
        assert_eq!(own.take(all.take(), features()), 1);
        assert_eq!(own.take(all.take(), features()), 0);
    }

    #[test]
    fn a_flush_is_kept_by_a_vcpu_that_was_activated_again_before_it_was_entered() {
        let (all, mut own) = (Outdated::new(), Own::default());
        let _ = own.take(all.take(), features());
        own.note(true);
        own.note(false);
        assert_eq!(own.take(all.take(), features()), 3);
    }

    proptest! {
        #[test]
        fn what_was_noted_since_the_last_entry_is_flushed_once(steps in prop::collection::vec(0_u8..4, 0..64)) {
            let (all, mut own) = (Outdated::new(), Own::default());
            let (mut is_all, mut is_own) = (true, false);
            for step in steps {
                match step {
                    0 => {
                        all.note();
                        is_all = true;
                    }
                    1 => own.note(false),
                    2 => {
                        own.note(true);
                        is_own = true;
                    }
                    _ => {
                        let expected = if is_all { 1 } else if is_own { 3 } else { 0 };
                        prop_assert_eq!(own.take(all.take(), features()), expected);
                        (is_all, is_own) = (false, false);
                    }
                }
            }
        }
    }
}
