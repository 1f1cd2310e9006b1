//! Breakpoints and watchpoints, as they are saved.

use mayfly_state::{Error, SectionReader, SectionWriter};

use super::{BREAKPOINT_CONTROL, CONTROL, Debug, MOST, Pair, WATCHPOINT_CONTROL};

/// The bits of an address, or of a context, that are compared.
const ADDRESS: u64 = !3;

impl Debug {
    pub(crate) fn save(&self, to: &mut SectionWriter<'_, '_>) {
        for pair in self.breakpoints.iter().chain(&self.watchpoints) {
            to.u64(pair.value);
            to.u64(pair.control);
        }
        to.flag(self.locked.is_some());
        to.u64(self.locked.unwrap_or(0));
    }

    /// Reads them. Of the hardware's bits only those are set that a guest's own writes could have set: others would
    /// reach EL2.
    pub(crate) fn load(&mut self, from: &mut SectionReader<'_>) -> Result<(), Error> {
        load(&mut self.breakpoints, ["DBGBVR", "DBGBCR"], BREAKPOINT_CONTROL, from)?;
        load(&mut self.watchpoints, ["DBGWVR", "DBGWCR"], WATCHPOINT_CONTROL, from)?;
        let is_locked = from.flag("OSLSR_EL1")?;
        let locked =
            from.bits64("MDSCR_EL1 behind the lock", if is_locked { CONTROL } else { 0 })?;
        self.locked = is_locked.then_some(locked);
        Ok(())
    }

    /// Whether the processor may have `control` in `MDSCR_EL1`.
    pub(crate) fn allows(&self, control: u64) -> bool {
        let kept = if self.locked.is_some() { CONTROL & !super::ENABLES } else { CONTROL };
        control & !kept == 0
    }
}

fn load(
    pairs: &mut [Pair; MOST],
    [value, control]: [&'static str; 2],
    bits: u64,
    from: &mut SectionReader<'_>,
) -> Result<(), Error> {
    let mut words = [0; 2 * MOST];
    from.words(value, &mut words)?;
    for (number, (pair, [first, second])) in (0..).zip(pairs.iter_mut().zip(words.as_chunks().0)) {
        from.of(number);
        from.check(value, *first, first & !ADDRESS == 0)?;
        from.check(control, *second, second & !bits == 0)?;
        *pair = Pair { value: *first, control: *second };
    }
    from.of_all();
    Ok(())
}
