//! Performance counters, as they are saved: those of events that are not as after a reset, and the registers of all.

use mayfly_state::{Error, SectionReader, SectionWriter};

use super::{Counter, Counters, KEPT, LONG_EVENTS, MOST, NOT_EL0, NOT_EL1, Offered};

/// What a register of 8 bits keeps of `PMSELR_EL0`, and of `PMUSERENR_EL0`.
const SELECT: u8 = 0x1f;
const USER: u8 = 0xf;

impl Counter {
    fn is_as_after_reset(&self) -> bool {
        (self.count, self.kind) == (0, 0)
    }
}

impl Counters {
    pub(crate) fn save(&self, to: &mut SectionWriter<'_, '_>) {
        to.u64(self.cycles);
        for register in
            [self.cycle_filter, self.control, self.enabled, self.overflows, self.interrupts]
        {
            to.u32(register);
        }
        to.u8(self.select);
        to.u8(self.user);
        let bit = |(number, event): (u32, &Counter)| u8::from(!event.is_as_after_reset()) << number;
        to.u8((0..).zip(&self.events).map(bit).sum());
        for event in self.events.iter().filter(|event| !event.is_as_after_reset()) {
            to.u64(event.count);
            to.u32(event.kind);
        }
    }

    /// Reads those of a guest of a machine that offers some, or none: then they are as after a reset. No bit is set that
    /// a guest's own writes could not have set: a filter that EL2 is counted by, or a counter that there is not.
    pub(crate) fn load(
        &mut self,
        from: &mut SectionReader<'_>,
        offered: Option<&Offered>,
    ) -> Result<(), Error> {
        let none = Offered::default();
        let has_some = offered.is_some();
        let offered = offered.unwrap_or(&none);
        let of_some = |bits: u32| if has_some { bits } else { 0 };
        let filter = of_some(NOT_EL1 | NOT_EL0);
        let long = if offered.has_wide_counters() { LONG_EVENTS } else { 0 };
        let mask = of_some(offered.mask());
        self.cycles = from.bits64("PMCCNTR_EL0", if has_some { u64::MAX } else { 0 })?;
        self.cycle_filter = from.bits("PMCCFILTR_EL0", filter)?;
        self.control = from.bits("PMCR_EL0", of_some(KEPT | long))?;
        self.enabled = from.bits("PMCNTENSET_EL0", mask)?;
        self.overflows = from.bits("PMOVSSET_EL0", mask)?;
        self.interrupts = from.bits("PMINTENSET_EL1", mask)?;
        self.select = small(from, "PMSELR_EL0", of_some(SELECT.into()))?;
        self.user = small(from, "PMUSERENR_EL0", of_some(USER.into()))?;
        let there = of_some((1 << offered.count()) - 1);
        let saved = small(from, "counters of events", there)?;
        self.events = [Counter::default(); MOST];
        for (number, event) in (0..).zip(&mut self.events) {
            if saved >> number & 1 == 1 {
                from.of(number);
                event.count = from.bits64("PMEVCNTR", offered.count_bits())?;
                event.kind = from.bits("PMEVTYPER", filter | offered.event_bits())?;
                from.check("PMEVTYPER", event.kind.into(), !event.is_as_after_reset())?;
            }
        }
        from.of_all();
        self.derive();
        Ok(())
    }
}

fn small(from: &mut SectionReader<'_>, field: &'static str, allowed: u32) -> Result<u8, Error> {
    let value = from.u8(field)?;
    from.check(field, value.into(), u32::from(value) & !allowed == 0)?;
    Ok(value)
}
