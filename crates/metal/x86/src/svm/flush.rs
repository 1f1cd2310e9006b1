//! What an entry has to flush of TLBs, and whether it still has to.
//!
//! What is asked for is kept until VMRUN: a vCPU that was activated may come out again without having been entered.

use super::features::Features;

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
    fn a_flush_is_kept_by_a_vcpu_that_was_activated_again_before_it_was_entered() {
        let mut own = Own::default();
        assert_eq!(own.take(false, features()), 0);
        own.note(true);
        own.note(false);
        assert_eq!(own.take(false, features()), 3);
    }

    proptest! {
        #[test]
        fn what_was_noted_since_the_last_entry_is_flushed_once(steps in prop::collection::vec((0_u8..3, any::<bool>()), 0..64)) {
            let (mut own, mut is_own) = (Own::default(), false);
            for (step, flag) in steps {
                if step < 2 {
                    own.note(flag);
                    is_own |= flag;
                } else {
                    let expected = if flag { 1 } else if is_own { 3 } else { 0 };
                    prop_assert_eq!(own.take(flag, features()), expected);
                    is_own = false;
                }
            }
        }
    }
}
