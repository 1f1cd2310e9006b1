//! The timer of a local APIC (Intel SDM volume 3, 11.5.4; AMD APM volume 2, 16.4.1), as a function of the time that its
//! caller gives.
//!
//! It counts from `base`, which it had at the time `since`. So it does no work while it counts, and none for periods that
//! nobody looked at.

use mayfly_state::{Error, SectionReader, SectionWriter};

/// What a vCPU's clocks say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// The clock that the timer counts, in ticks before they are divided. It is the same for all vCPUs, and for ever.
    pub clock: u64,
    /// The guest's time-stamp counter.
    pub tsc: u64,
}

/// When a timer next has to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// When [`Time::clock`] is this, or later.
    Clock(u64),
    /// When [`Time::tsc`] is this, or later.
    Tsc(u64),
}

/// Bits 18 and 17 of the timer's entry in the local vector table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    Once,
    Periodically,
    ToDeadline,
    /// Both bits, which the manuals reserve: not at all.
    Not,
}

impl Counts {
    /// As the timer's entry says.
    pub(crate) const fn of_entry(entry: u32) -> Self {
        Self::from_bits(entry >> 17)
    }

    const fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            0 => Self::Once,
            1 => Self::Periodically,
            2 => Self::ToDeadline,
            _ => Self::Not,
        }
    }

    const fn is_counter(self) -> bool {
        matches!(self, Self::Once | Self::Periodically)
    }
}

/// The bits of `Divide Configuration`.
pub(crate) const DIVIDE: u32 = 0xb;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timer {
    counts: Counts,
    /// `Divide Configuration`: bits 0, 1 and 3.
    divide: u32,
    initial: u32,
    /// What was left to count at `since`; zero if it does not count.
    base: u32,
    since: u64,
    /// `IA32_TSC_DEADLINE`; zero if there is none.
    deadline: u64,
}

impl Timer {
    pub(crate) const RESET: Self =
        Self { counts: Counts::Once, divide: 0, initial: 0, base: 0, since: 0, deadline: 0 };

    pub(crate) fn save(&self, to: &mut SectionWriter<'_, '_>) {
        to.u64(self.since);
        to.u64(self.deadline);
        to.u32(self.initial);
        to.u32(self.base);
        to.u32(self.divide);
        to.align();
    }

    /// What was saved of one, whose mode is [told](Timer::begin) next.
    pub(crate) fn load(from: &mut SectionReader<'_>) -> Result<Self, Error> {
        let timer = Self {
            counts: Counts::Once,
            since: from.u64("timer's beginning")?,
            deadline: from.u64("IA32_TSC_DEADLINE")?,
            initial: from.u32("initial count")?,
            base: from.u32("count")?,
            divide: from.bits("divide configuration", DIVIDE)?,
        };
        from.check("count", timer.base.into(), timer.base <= timer.initial)?;
        from.align()?;
        Ok(timer)
    }

    /// It has the mode of this entry of the local vector table; whether it can be as it is in that mode.
    pub(crate) const fn begin(&mut self, entry: u32) -> bool {
        self.counts = Counts::of_entry(entry);
        let (is_counter, has_deadline) = (self.counts.is_counter(), self.has_deadline());
        (is_counter || self.initial == 0) && (has_deadline || self.deadline == 0)
    }

    /// By how many bits the clock is shifted: 0 is by 2, and 7 is by 1.
    const fn shift(self) -> u32 {
        ((self.divide & 3 | self.divide >> 1 & 4) + 1) & 7
    }

    const fn elapsed(self, clock: u64) -> u64 {
        clock.saturating_sub(self.since) >> self.shift()
    }

    /// The current count.
    pub(crate) const fn count(self, now: Time) -> u32 {
        let (elapsed, base) = (self.elapsed(now.clock), self.base as u64);
        if elapsed < base {
            return (base - elapsed) as u32;
        }
        if base == 0 || !matches!(self.counts, Counts::Periodically) {
            return 0;
        }
        let initial = self.initial as u64;
        (initial - (elapsed - base) % initial) as u32
    }

    /// When it next expires.
    pub(crate) const fn next(self) -> Option<Deadline> {
        match self.counts {
            Counts::Once | Counts::Periodically if self.base != 0 => {
                let left = (self.base as u64) << self.shift();
                Some(Deadline::Clock(self.since.saturating_add(left)))
            }
            Counts::ToDeadline if self.deadline != 0 => Some(Deadline::Tsc(self.deadline)),
            _ => None,
        }
    }

    /// Goes on to `now`; whether it has expired since it was last here, once or more often.
    pub(crate) fn advance(&mut self, now: Time) -> bool {
        match self.next() {
            Some(Deadline::Clock(at)) if now.clock >= at => {
                if self.counts == Counts::Periodically {
                    // To the beginning of the period that it is in.
                    let period = u64::from(self.initial) << self.shift();
                    self.since = now.clock - (now.clock - at) % period;
                    self.base = self.initial;
                } else {
                    self.base = 0;
                }
                true
            }
            Some(Deadline::Tsc(at)) if now.tsc >= at => {
                self.deadline = 0;
                true
            }
            _ => false,
        }
    }

    /// Whether it counts to a deadline of the time-stamp counter.
    pub(crate) const fn has_deadline(self) -> bool {
        matches!(self.counts, Counts::ToDeadline)
    }

    /// The mode is written. Between the counter and the deadline nothing goes on; a counter that runs goes on as one that
    /// counts once, or periodically. (It was advanced to the present.)
    pub(crate) fn set_counts(&mut self, counts: Counts) {
        if self.counts != counts && !(self.counts.is_counter() && counts.is_counter()) {
            (self.initial, self.base, self.deadline) = (0, 0, 0);
        }
        self.counts = counts;
    }

    pub(crate) const fn initial(self) -> u32 {
        self.initial
    }

    /// `Initial Count` is written: it begins anew. Ignored in the mode with a deadline.
    pub(crate) fn set_initial(&mut self, initial: u32, now: Time) {
        if self.counts.is_counter() {
            (self.initial, self.base, self.since) = (initial, initial, now.clock);
        }
    }

    pub(crate) const fn divide(self) -> u32 {
        self.divide
    }

    /// `Divide Configuration` is written: it counts on from where it is. (It was advanced to the present.)
    pub(crate) fn set_divide(&mut self, divide: u32, now: Time) {
        (self.base, self.since) = (self.count(now), now.clock);
        self.divide = divide;
    }

    pub(crate) const fn deadline(self) -> u64 {
        self.deadline
    }

    /// `IA32_TSC_DEADLINE` is written. Ignored in other modes.
    pub(crate) fn set_deadline(&mut self, deadline: u64) {
        if self.has_deadline() {
            self.deadline = deadline;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Counts each tick.
    struct Naive {
        counts: Counts,
        divide: u32,
        ticks: u32,
        initial: u32,
        count: u32,
        deadline: u64,
        now: Time,
    }

    impl Naive {
        fn tick(&mut self) -> bool {
            self.now.clock += 1;
            self.now.tsc += 3;
            if self.counts == Counts::ToDeadline {
                let expires = self.deadline != 0 && self.now.tsc >= self.deadline;
                if expires {
                    self.deadline = 0;
                }
                return expires;
            }
            if self.count == 0 {
                return false;
            }
            self.ticks += 1;
            if self.ticks < self.divide {
                return false;
            }
            self.ticks = 0;
            self.count -= 1;
            if self.count > 0 {
                return false;
            }
            if self.counts == Counts::Periodically {
                self.count = self.initial;
            }
            true
        }
    }

    /// The manual's table of `Divide Configuration`.
    const DIVISORS: [(u32, u32); 8] =
        [(0, 2), (1, 4), (2, 8), (3, 16), (8, 32), (9, 64), (0xa, 128), (0xb, 1)];

    #[derive(Clone, Debug)]
    enum Step {
        Counts(Counts),
        Initial(u32),
        Divide(usize),
        /// So much after now, or none.
        Deadline(Option<u64>),
        Wait(u32),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => (0..4_u32).prop_map(|bits| Step::Counts(Counts::from_bits(bits))),
            3 => (0..30_u32).prop_map(Step::Initial),
            2 => (0..8_usize).prop_map(Step::Divide),
            2 => prop::option::of(1..100_u64).prop_map(Step::Deadline),
            6 => (0..300_u32).prop_map(Step::Wait),
        ]
    }

    proptest! {
        #[test]
        fn the_timer_counts_as_if_it_counted_each_tick(
            steps in prop::collection::vec(any_step(), 0..40),
        ) {
            let mut timer = Timer::RESET;
            let mut naive = Naive {
                counts: Counts::Once, divide: 2, ticks: 0, initial: 0, count: 0, deadline: 0,
                now: Time::default(),
            };
            for step in steps {
                match step {
                    Step::Counts(counts) => {
                        timer.set_counts(counts);
                        let counter = |counts| matches!(counts, Counts::Once | Counts::Periodically);
                        if naive.counts != counts && !(counter(naive.counts) && counter(counts)) {
                            (naive.initial, naive.count, naive.deadline) = (0, 0, 0);
                        }
                        naive.counts = counts;
                    }
                    Step::Initial(initial) => {
                        timer.set_initial(initial, naive.now);
                        if matches!(naive.counts, Counts::Once | Counts::Periodically) {
                            (naive.initial, naive.count, naive.ticks) = (initial, initial, 0);
                        }
                    }
                    Step::Divide(index) => {
                        let (register, divide) = DIVISORS[index];
                        timer.set_divide(register, naive.now);
                        (naive.divide, naive.ticks) = (divide, 0);
                    }
                    Step::Deadline(after) => {
                        let deadline = after.map_or(0, |after| naive.now.tsc + after);
                        timer.set_deadline(deadline);
                        if naive.counts == Counts::ToDeadline {
                            naive.deadline = deadline;
                        }
                    }
                    Step::Wait(ticks) => {
                        let mut expired = false;
                        for _ in 0..ticks {
                            let said = timer.next();
                            let expires = naive.tick();
                            let due = match said {
                                Some(Deadline::Clock(at)) => naive.now.clock >= at,
                                Some(Deadline::Tsc(at)) => naive.now.tsc >= at,
                                None => false,
                            };
                            // It says when it has to be looked at first; what comes after that it says then.
                            prop_assert_eq!(due, expires || expired, "{:?}", said);
                            expired |= expires;
                        }
                        prop_assert_eq!(timer.advance(naive.now), expired);
                        prop_assert!(!timer.advance(naive.now), "once");
                    }
                }
                prop_assert_eq!(timer.count(naive.now), naive.count);
                prop_assert_eq!(timer.initial(), naive.initial);
                prop_assert_eq!(timer.deadline(), naive.deadline);
            }
        }

        #[test]
        fn no_time_and_no_value_is_too_large(
            counts in 0..4_u32, divide in 0..16_u32, initial: u32, deadline: u64,
            times in prop::collection::vec((any::<u64>(), any::<u64>()), 1..10),
        ) {
            let mut timer = Timer::RESET;
            timer.set_counts(Counts::from_bits(counts));
            for (clock, tsc) in times {
                let now = Time { clock, tsc };
                timer.set_initial(initial, now);
                timer.set_deadline(deadline);
                timer.advance(now);
                timer.set_divide(divide, now);
                timer.advance(Time { clock: u64::MAX, tsc: u64::MAX });
                prop_assert!(timer.count(now) <= initial);
            }
        }
    }
}
