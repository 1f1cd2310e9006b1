//! Time: the time-stamp counter in nanoseconds, and what KVM's clock tells a guest of it (Linux,
//! Documentation/virt/kvm/x86/msr.rst).

use core::num::NonZeroU64;

const SECOND: u128 = 1_000_000_000;

/// How fast the time-stamp counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    hertz: NonZeroU64,
    shift: i8,
    multiplier: u32,
}

impl Rate {
    /// So many ticks a second.
    pub const fn new(hertz: NonZeroU64) -> Self {
        // The multiplier is a binary fraction of 32 bits, of a half or more.
        let mut shift: i8 = 0;
        let mut scaled = hertz.get() as u128;
        while scaled > 2 * SECOND {
            scaled >>= 1;
            shift -= 1;
        }
        while scaled <= SECOND {
            scaled <<= 1;
            shift += 1;
        }
        let multiplier = ((SECOND << 32) / scaled) as u32;
        Self { hertz, shift, multiplier }
    }

    /// Ticks a second.
    pub const fn hertz(self) -> u64 {
        self.hertz.get()
    }

    /// Nanoseconds of so many ticks.
    pub const fn nanoseconds(self, ticks: u64) -> u64 {
        (ticks as u128 * SECOND / self.hertz.get() as u128) as u64
    }

    /// Ticks of so many nanoseconds, rounded up; the most that there are if there are more.
    pub const fn ticks(self, nanoseconds: u64) -> u64 {
        let ticks = (nanoseconds as u128 * self.hertz.get() as u128).div_ceil(SECOND);
        if ticks > u64::MAX as u128 { u64::MAX } else { ticks as u64 }
    }
}

/// Nanoseconds of ticks, for a caller that asks often: it multiplies, and [`Rate::nanoseconds`] divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// A binary fraction of `shift` bits, rounded up.
    multiplier: u64,
    shift: u32,
}

impl Scale {
    /// Of that rate.
    pub const fn new(rate: Rate) -> Self {
        // A second has 30 bits, so the multiplier has 63 or 64.
        let shift = 33 + (u64::BITS - rate.hertz.leading_zeros());
        let multiplier = (SECOND << shift).div_ceil(rate.hertz() as u128) as u64;
        Self { multiplier, shift }
    }

    /// Nanoseconds of so many ticks: of no fewer than [`Rate::nanoseconds`] has, and in 200 years of at most one more.
    #[inline]
    pub const fn nanoseconds(self, ticks: u64) -> u64 {
        ((ticks as u128 * self.multiplier as u128) >> self.shift) as u64
    }
}

/// When a deadline of the guest's counter is, by the host's: zero if it has passed. The two counters are read at once. What
/// is due is so at any later look, and one that is far away is not mistaken for one that has passed.
pub const fn due(deadline: u64, guest: u64, host: u64) -> u64 {
    if deadline <= guest { 0 } else { host.saturating_add(deadline - guest) }
}

/// Bytes of what a guest is told of the time.
pub const SYSTEM_TIME_BYTES: usize = 32;
/// The counters of all processors agree (`PVCLOCK_TSC_STABLE_BIT`).
const STABLE: u8 = 1;

/// What a guest is told of the time (`pvclock_vcpu_time_info`): when its counter was `tsc`, so many nanoseconds had passed.
/// It is written once, before the guest reads it.
pub fn system_time(rate: Rate, tsc: u64, nanoseconds: u64) -> [u8; SYSTEM_TIME_BYTES] {
    let mut bytes = [0; SYSTEM_TIME_BYTES];
    bytes[0..4].copy_from_slice(&2_u32.to_le_bytes());
    bytes[8..16].copy_from_slice(&tsc.to_le_bytes());
    bytes[16..24].copy_from_slice(&nanoseconds.to_le_bytes());
    bytes[24..28].copy_from_slice(&rate.multiplier.to_le_bytes());
    bytes[28] = rate.shift.cast_unsigned();
    bytes[29] = STABLE;
    bytes
}

/// What a guest is told of the day (`pvclock_wall_clock`): the second, since 1970, at which its time was zero.
pub fn wall_clock(second: u64, nanoseconds: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[0..4].copy_from_slice(&2_u32.to_le_bytes());
    bytes[4..8].copy_from_slice(&(second as u32).to_le_bytes());
    bytes[8..12].copy_from_slice(&nanoseconds.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As a guest computes it (Linux, arch/x86/include/asm/pvclock.h).
    fn told(bytes: &[u8; SYSTEM_TIME_BYTES], tsc: u64) -> u64 {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let delta = tsc - word(8);
        let shift = bytes[28].cast_signed();
        let delta = if shift < 0 { delta >> -shift } else { delta << shift };
        word(16) + ((u128::from(delta) * u128::from(word(24) as u32)) >> 32) as u64
    }

    proptest! {
        #[test]
        fn a_guest_computes_the_time_that_has_passed(hertz in 1_000_000_u64..20_000_000_000, tsc in 0_u64..1 << 40, seconds in 0_u64..10_000) {
            let rate = Rate::new(NonZeroU64::new(hertz).unwrap());
            let ticks = hertz * seconds;
            let bytes = system_time(rate, tsc, 7);
            let exact = seconds * 1_000_000_000 + 7;
            // To 31 bits.
            prop_assert!(told(&bytes, tsc + ticks).abs_diff(exact) <= 2 + (exact >> 30));
        }

        #[test]
        fn a_deadline_is_due_at_each_look_from_its_time_on_and_at_none_before(
            offset: u64, deadline: u64, host in 0_u64..1 << 62, looks in prop::collection::vec(0_u64..1 << 40, 1..9),
        ) {
            let mut now = host;
            for later in looks {
                // The look comes later than the reading of the counters.
                let guest = now.wrapping_add(offset);
                let is_due = due(deadline, guest, now) <= now;
                prop_assert_eq!(is_due, deadline <= guest);
                if !is_due {
                    prop_assert_eq!(due(deadline, guest, now) - now, (deadline - guest).min(u64::MAX - now));
                }
                now += later;
            }
        }

        #[test]
        fn ticks_and_nanoseconds_agree(hertz in 1_000_000_u64..20_000_000_000, nanoseconds in 0_u64..1 << 50) {
            let rate = Rate::new(NonZeroU64::new(hertz).unwrap());
            let back = rate.nanoseconds(rate.ticks(nanoseconds));
            prop_assert!(back >= nanoseconds && back - nanoseconds <= 1 + 1_000_000_000 / hertz);
        }

        #[test]
        fn a_scale_has_the_nanoseconds_of_its_rate_or_one_more(hertz in 1_000_000_u64..20_000_000_000, part: u64, seconds in 0_u64..200 * 366 * 86_400) {
            let rate = Rate::new(NonZeroU64::new(hertz).unwrap());
            let ticks = hertz.saturating_mul(seconds).saturating_add(part % hertz);
            let (exact, scaled) = (rate.nanoseconds(ticks), Scale::new(rate).nanoseconds(ticks));
            prop_assert!(scaled == exact || scaled == exact + 1, "{scaled} for {exact}");
        }

        #[test]
        fn no_number_is_too_large(hertz in 1_u64.., ticks: u64) {
            let rate = Rate::new(NonZeroU64::new(hertz).unwrap());
            let _ = Scale::new(rate).nanoseconds(ticks);
            let _ = (rate.nanoseconds(ticks), rate.ticks(ticks), system_time(rate, ticks, ticks));
        }
    }

    #[test]
    fn the_day_is_told_in_seconds_of_32_bits() {
        assert_eq!(wall_clock(0x1234_5678, 9)[4..8], [0x78, 0x56, 0x34, 0x12]);
    }
}
