//! The performance counters of a guest (`FEAT_PMUv3`, DDI 0487, "The Performance Monitors Extension").
//!
//! All accesses of a guest to its registers are trapped, and reach only what is kept here. While a counter counts, the
//! processor's own counter of the same number counts for it. Before each access, what that one shows is taken over
//! ([`Counters::absorb`]).
//!
//! Two events are counted here, and not by the processor: software increments, and the overflows of the counter before
//! (`CHAIN`), which some processors do not count.

mod place;
mod saved;
#[cfg(test)]
mod tests;

use place::{CHAIN, CYCLES, SOFTWARE_INCREMENT};
pub use place::{MOST, Offered, Place};

/// `PMCR_EL0`: E; the two that reset counters, P and C; D, DP and LC, which a guest sets, and LP, by which counters of
/// events overflow at 64 bits; the place of N.
const ENABLE: u32 = 1;
const RESET_EVENTS: u64 = 1 << 1;
const RESET_CYCLES: u64 = 1 << 2;
const KEPT: u32 = ENABLE | 1 << 3 | 1 << 5 | 1 << 6;
const LONG_EVENTS: u32 = 1 << 7;
const COUNT_SHIFT: u32 = 11;

/// `PMEVTYPER<n>_EL0`: do not count at EL1 (P), at EL0 (U). Other filters are for levels that a guest does not have.
const NOT_EL1: u32 = 1 << 31;
const NOT_EL0: u32 = 1 << 30;

/// A counter, and what it counts.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    count: u64,
    kind: u32,
}

/// What the processor's own counters show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    /// `PMCCNTR_EL0`.
    pub cycles: u64,
    /// `PMEVCNTR<n>_EL0`.
    pub counts: [u64; MOST],
    /// `PMOVSSET_EL0`.
    pub overflows: u32,
}

/// The counters of one vCPU. They are as after a reset at first.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    events: [Counter; MOST],
    cycles: u64,
    cycle_filter: u32,
    control: u32,
    enabled: u32,
    overflows: u32,
    interrupts: u32,
    select: u8,
    user: u8,
    /// [`Counters::counting`] and [`Counters::interrupting`], which change with a write alone.
    counting: u32,
    interrupting: u32,
}

impl Counters {
    /// What is read of `place`; `None` where the access is undefined.
    pub fn read(&self, place: Place, offered: &Offered) -> Option<u64> {
        Some(match place {
            Place::Control => u64::from(self.control) | (offered.count() as u64) << COUNT_SHIFT,
            Place::Enabled { .. } => self.enabled.into(),
            Place::Overflows { .. } => self.overflows.into(),
            Place::Interrupts { .. } => self.interrupts.into(),
            Place::Increment => return None,
            // No slots.
            Place::Machine => return (offered.has_wide_counters()).then_some(0),
            Place::Select => self.select.into(),
            Place::Events(half) => offered.shown_events(half),
            Place::Cycles => self.cycles,
            Place::CycleFilter => self.cycle_filter.into(),
            Place::SelectedKind | Place::SelectedCount => {
                return self.read(self.selected(place), offered);
            }
            Place::User => self.user.into(),
            Place::Count(number) => self.event(number, offered)?.count,
            Place::Kind(number) => self.event(number, offered)?.kind.into(),
        })
    }

    /// Writes `value` to `place`, at EL0 or at EL1; `None` where the access is undefined.
    pub fn write(
        &mut self,
        place: Place,
        value: u64,
        at_el0: bool,
        offered: &Offered,
    ) -> Option<()> {
        self.set(place, value, at_el0, offered)?;
        self.derive();
        Some(())
    }

    /// What follows from what the guest has written.
    fn derive(&mut self) {
        self.counting = self.find_counting();
        self.interrupting = self.find_interrupting();
    }

    fn set(&mut self, place: Place, value: u64, at_el0: bool, offered: &Offered) -> Option<()> {
        let low = value as u32;
        let bits = low & offered.mask();
        match place {
            Place::Control => {
                let long = if offered.has_wide_counters() { LONG_EVENTS } else { 0 };
                self.control = low & (KEPT | long);
                if value & RESET_EVENTS != 0 {
                    self.events.iter_mut().for_each(|event| event.count = 0);
                }
                if value & RESET_CYCLES != 0 {
                    self.cycles = 0;
                }
            }
            Place::Enabled { set } => change(&mut self.enabled, bits, set),
            Place::Overflows { set } => change(&mut self.overflows, bits, set),
            Place::Interrupts { set } => change(&mut self.interrupts, bits, set),
            Place::Increment => self.increment_by_software(bits, at_el0, offered),
            Place::Select => self.select = low as u8 & 0x1f,
            Place::Events(_) | Place::Machine => return None,
            Place::Cycles => self.cycles = value,
            Place::CycleFilter => self.cycle_filter = low & (NOT_EL1 | NOT_EL0),
            Place::SelectedKind | Place::SelectedCount => {
                return self.set(self.selected(place), value, at_el0, offered);
            }
            Place::User => self.user = low as u8 & 0xf,
            Place::Count(number) => {
                self.event_mut(number, offered)?.count = value & offered.count_bits();
            }
            Place::Kind(number) => {
                let kept = NOT_EL1 | NOT_EL0 | offered.event_bits();
                self.event_mut(number, offered)?.kind = low & kept;
            }
        }
        Some(())
    }

    /// The register of the counter that `PMSELR_EL0` names.
    fn selected(&self, place: Place) -> Place {
        match (place, self.select) {
            (Place::SelectedKind, 31) => Place::CycleFilter,
            (Place::SelectedKind, number) => Place::Kind(number.into()),
            (_, number) => Place::Count(number.into()),
        }
    }

    fn event(&self, number: usize, offered: &Offered) -> Option<&Counter> {
        self.events.get(..offered.count())?.get(number)
    }

    fn event_mut(&mut self, number: usize, offered: &Offered) -> Option<&mut Counter> {
        self.events.get_mut(..offered.count())?.get_mut(number)
    }

    fn is_on(&self) -> bool {
        self.control & ENABLE != 0
    }

    fn overflows_at_64_bits(&self) -> bool {
        self.control & LONG_EVENTS != 0
    }

    /// Counter `number` counts the overflows of the one before: those at 32 bits alone.
    fn is_chained(&self, number: usize) -> bool {
        let is_chain = |event: &Counter| event.kind & 0xffff == CHAIN;
        number % 2 == 1
            && self.is_on()
            && !self.overflows_at_64_bits()
            && self.enabled >> number & 1 == 1
            && self.events.get(number).is_some_and(is_chain)
    }

    /// Counter `number` has overflown.
    fn overflown(&mut self, number: usize, offered: &Offered) {
        self.overflows |= 1 << number;
        if self.is_chained(number + 1) {
            self.increment(number + 1, offered);
        }
    }

    fn increment(&mut self, number: usize, offered: &Offered) {
        let at_64_bits = self.overflows_at_64_bits();
        if let Some(event) = self.events.get_mut(number) {
            event.count = event.count.wrapping_add(1) & offered.count_bits();
            let counted = if at_64_bits { event.count } else { event.count & u64::from(u32::MAX) };
            if counted == 0 {
                self.overflown(number, offered);
            }
        }
    }

    fn increment_by_software(&mut self, bits: u32, at_el0: bool, offered: &Offered) {
        let not_here = if at_el0 { NOT_EL0 } else { NOT_EL1 };
        for number in 0..MOST {
            let kind = self.events[number].kind;
            if self.is_on()
                && bits & self.enabled & 1 << number != 0
                && kind & (0xffff | not_here) == SOFTWARE_INCREMENT
            {
                self.increment(number, offered);
            }
        }
    }

    /// The counters that the processor is to count for, a bit each.
    #[inline]
    pub fn counting(&self) -> u32 {
        self.counting
    }

    fn find_counting(&self) -> u32 {
        if !self.is_on() {
            return 0;
        }
        let by_software =
            |event: &Counter| matches!(event.kind & 0xffff, SOFTWARE_INCREMENT | CHAIN);
        let software = self
            .events
            .iter()
            .enumerate()
            .filter(|(_, event)| by_software(event))
            .fold(0, |all, (number, _)| all | 1 << number);
        self.enabled & !software
    }

    /// Those of them whose overflow is to interrupt: for the guest, or for the counter behind.
    #[inline]
    pub fn interrupting(&self) -> u32 {
        self.interrupting
    }

    fn find_interrupting(&self) -> u32 {
        let before_chain = (1..MOST)
            .filter(|number| self.is_chained(*number))
            .fold(0, |all, number| all | 1 << (number - 1));
        self.counting & (self.interrupts | before_chain)
    }

    /// The level of the guest's interrupt.
    pub fn is_high(&self) -> bool {
        self.is_on() && self.overflows & self.interrupts != 0
    }

    /// The guest has enabled a counter, or EL0's accesses.
    pub fn is_used(&self) -> bool {
        self.enabled != 0 || self.user != 0
    }

    /// `PMCR_EL0`, as the processor is to have it while counters count.
    pub fn control(&self) -> u64 {
        self.control.into()
    }

    /// `PMUSERENR_EL0`.
    pub fn user(&self) -> u64 {
        self.user.into()
    }

    /// `PMCCNTR_EL0` and `PMCCFILTR_EL0`.
    pub fn cycle_counter(&self) -> (u64, u64) {
        (self.cycles, self.cycle_filter.into())
    }

    /// `PMEVCNTR<n>_EL0` and `PMEVTYPER<n>_EL0`.
    pub fn event_counter(&self, number: usize) -> (u64, u64) {
        self.events.get(number).map_or((0, 0), |event| (event.count, event.kind.into()))
    }

    /// Takes over what the processor's counters show, since they were set to what these are. Overflows that are shown
    /// are new.
    pub fn absorb(&mut self, shown: &Shown, offered: &Offered) {
        let counting = self.counting();
        if counting & CYCLES != 0 {
            self.cycles = shown.cycles;
        }
        for (number, (event, count)) in self.events.iter_mut().zip(shown.counts).enumerate() {
            if counting & 1 << number != 0 {
                event.count = count & offered.count_bits();
            }
        }
        let overflows = shown.overflows & counting;
        if overflows != 0 {
            self.absorb_overflows(overflows, offered);
        }
    }

    #[cold]
    fn absorb_overflows(&mut self, overflows: u32, offered: &Offered) {
        self.overflows |= overflows & CYCLES;
        (0..MOST)
            .filter(|number| overflows >> number & 1 == 1)
            .for_each(|number| self.overflown(number, offered));
    }
}

fn change(bits: &mut u32, which: u32, set: bool) {
    if set {
        *bits |= which;
    } else {
        *bits &= !which;
    }
}
