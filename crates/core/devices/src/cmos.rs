//! The real-time clock of a PC and its memory, as its driver sees it: Motorola, MC146818A data sheet; Intel, ICH9, 13.6.
//!
//! The device has no clock of its own. Each read says which second it is, by the embedder's clock, in seconds since 1970.
//! The time is shown in BCD and by 24 hours. It cannot be set, and there are no alarms: what the guest writes to those is
//! kept and has no effect.

/// How many ports it has: the index, and the data.
pub const PORTS: u64 = 2;
/// How many registers.
const REGISTERS: usize = 128;

const STATUS_A: u8 = 0x0a;
const STATUS_B: u8 = 0x0b;
const STATUS_C: u8 = 0x0c;
const STATUS_D: u8 = 0x0d;
const CENTURY: u8 = 0x32;

/// A clock and its memory.
///
/// ```
/// use mayfly_devices::cmos::Cmos;
///
/// let mut clock = Cmos::new();
/// let now = 1_700_000_000; // 2023-11-14 22:13:20, a Tuesday
/// clock.write(0, 4);
/// assert_eq!(clock.read(1, now), 0x22);
/// ```
#[derive(Clone, Debug)]
pub struct Cmos {
    index: u8,
    memory: [u8; REGISTERS],
}

impl Default for Cmos {
    fn default() -> Self {
        Self::new()
    }
}

impl Cmos {
    /// One whose memory is zeroes.
    pub const fn new() -> Self {
        Self { index: 0, memory: [0; REGISTERS] }
    }

    /// Reads the port at `offset`, of which the lowest bit counts, at second `now`. The index cannot be read.
    pub fn read(&self, offset: u64, now: u64) -> u8 {
        if offset & 1 == 0 {
            return 0xff;
        }
        let date = Date::of(now);
        let bcd = |number: u64| (((number / 10) << 4) + number % 10) as u8;
        match self.index {
            0x00 => bcd(now % 60),
            0x02 => bcd(now / 60 % 60),
            0x04 => bcd(now / 3600 % 24),
            // 1970 began on a Thursday; Sunday is 1.
            0x06 => ((now / 86400 + 4) % 7 + 1) as u8,
            0x07 => bcd(date.day),
            0x08 => bcd(date.month),
            0x09 => bcd(date.year % 100),
            CENTURY => bcd(date.year / 100 % 100),
            // A divider of 32,768 Hz, and no update is under way.
            STATUS_A => 0x26,
            // 24 hours.
            STATUS_B => 0x02,
            STATUS_C => 0,
            // Its memory is valid.
            STATUS_D => 0x80,
            index => self.memory[usize::from(index)],
        }
    }

    /// Writes the port at `offset`, of which the lowest bit counts.
    pub fn write(&mut self, offset: u64, value: u8) {
        if offset & 1 == 0 {
            // The highest bit is the mask of NMIs, which there are none of.
            self.index = value & 0x7f;
        } else {
            self.memory[usize::from(self.index)] = value;
        }
    }
}

/// A day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Date {
    year: u64,
    month: u64,
    day: u64,
}

impl Date {
    /// Of a second since 1970 (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms": years that begin in March, in eras
    /// of 400).
    const fn of(seconds: u64) -> Self {
        const ERA: u64 = 146_097;
        let days = seconds / 86400 + 719_468;
        let in_era = days % ERA;
        let year_of_era = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146_096) / 365;
        let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * in_year + 2) / 153;
        let day = in_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = days / ERA * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
        Self { year, month, day }
    }
}

/// The second since 1970 that a clock shows, whose registers `read` reads: in BCD or not, by 12 hours or 24, as it says. An
/// embedder takes the time of its own machine by this. `None` if the clock shows no time.
pub fn second(read: impl Fn(u8) -> u8) -> Option<u64> {
    let status = read(STATUS_B);
    let number = |value: u8| {
        let value = u64::from(value);
        if status & 4 == 0 { (value >> 4) * 10 + (value & 0xf) } else { value }
    };
    let hour = read(0x04);
    let hour = match status & 2 {
        0 => number(hour & 0x7f) % 12 + if hour & 0x80 == 0 { 0 } else { 12 },
        _ => number(hour),
    };
    let (day, month) = (number(read(0x07)), number(read(0x08)));
    let century = match number(read(CENTURY)) {
        century @ 19..=99 => century,
        _ => 20,
    };
    let year = century * 100 + number(read(0x09));
    let (minute, second) = (number(read(0x02)), number(read(0x00)));
    let is_time = (1..=31).contains(&day) && (1..=12).contains(&month) && year >= 1970;
    if !is_time || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // The inverse of `Date::of`.
    let year = if month <= 2 { year - 1 } else { year };
    let from_march = (month + 9) % 12;
    let in_year = (153 * from_march + 2) / 5 + day - 1;
    let year_of_era = year % 400;
    let in_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + in_year;
    let days = year / 400 * 146_097 + in_era - 719_468;
    Some(days * 86400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Years and months, one after the other.
    fn naive(mut days: u64) -> Date {
        let is_leap = |year: u64| {
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
        };
        let mut year = 1970;
        while days >= 365 + u64::from(is_leap(year)) {
            days -= 365 + u64::from(is_leap(year));
            year += 1;
        }
        let february = 28 + u64::from(is_leap(year));
        for (month, length) in (1..).zip([31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
            if days < length {
                return Date { year, month, day: days + 1 };
            }
            days -= length;
        }
        unreachable!("a year has no more days");
    }

    #[test]
    fn each_day_until_2400_has_its_date() {
        for day in 0..157_000 {
            assert_eq!(Date::of(day * 86400 + 86399), naive(day), "{day}");
        }
    }

    proptest! {
        #[test]
        fn what_a_clock_shows_is_the_second_that_it_was_told(now in 0_u64..4_102_444_800 * 2) {
            let clock = |index| {
                let mut clock = Cmos::new();
                clock.write(0, index);
                clock.read(1, now)
            };
            prop_assert_eq!(second(clock), Some(now));
            // By 12 hours, and not in BCD.
            let plain = |index| {
                let value = clock(index);
                let number = (value >> 4) * 10 + (value & 0xf);
                match index {
                    0x0b => 4,
                    4 => ((number + 11) % 12 + 1) | if number >= 12 { 0x80 } else { 0 },
                    _ => number,
                }
            };
            prop_assert_eq!(second(plain), Some(now));
        }

        #[test]
        fn no_register_is_too_bad(registers in prop::collection::vec(any::<u8>(), 128)) {
            let _ = second(|index| registers[usize::from(index)]);
        }

        #[test]
        fn memory_is_kept_and_the_time_is_not_set(index in 0_u8..=255, value: u8) {
            let mut clock = Cmos::new();
            let before = { clock.write(0, index); clock.read(1, 77) };
            clock.write(1, value);
            let is_memory = !matches!(index & 0x7f, 0 | 2 | 4 | 6..=13 | 0x32);
            prop_assert_eq!(clock.read(1, 77), if is_memory { value } else { before });
            prop_assert_eq!(clock.read(0, 77), 0xff);
        }
    }
}
