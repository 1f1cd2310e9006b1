//! Breakpoints and watchpoints, as they are saved: those that are not as after a reset. A guest rarely has one, and a
//! kernel that clears all of them when it boots has none.

use mayfly_state::{Error, SectionReader, SectionWriter};

use super::{BREAKPOINT_CONTROL, CONTROL, Debug, MOST, Pair, WATCHPOINT_CONTROL};

/// The bits of an address, or of a context, that are compared.
const ADDRESS: u64 = !3;

/// What a pair of registers is called in errors, and the bits that a guest sets of the second.
const BREAKPOINT: ([&str; 2], u64) = (["DBGBVR", "DBGBCR"], BREAKPOINT_CONTROL);
const WATCHPOINT: ([&str; 2], u64) = (["DBGWVR", "DBGWCR"], WATCHPOINT_CONTROL);

impl Pair {
    fn is_as_after_reset(self) -> bool {
        self == Self::default()
    }
}

impl Debug {
    pub(crate) fn save(&self, to: &mut SectionWriter<'_, '_>) {
        let pairs = || self.breakpoints.iter().chain(&self.watchpoints);
        let bit = |(number, pair): (u32, &Pair)| u32::from(!pair.is_as_after_reset()) << number;
        to.u32((0..).zip(pairs()).map(bit).sum());
        to.flag(self.locked.is_some());
        to.align();
        to.u64(self.locked.unwrap_or(0));
        for pair in pairs().filter(|pair| !pair.is_as_after_reset()) {
            to.u64(pair.value);
            to.u64(pair.control);
        }
    }

    /// Reads them; those that were not saved are as after a reset. Of the hardware's bits only those are set that a
    /// guest's own writes could have set: others would reach EL2.
    pub(crate) fn load(&mut self, from: &mut SectionReader<'_>) -> Result<(), Error> {
        let mut left = from.u32("breakpoints and watchpoints")?;
        let is_locked = from.flag("OSLSR_EL1")?;
        from.align()?;
        let locked =
            from.bits64("MDSCR_EL1 behind the lock", if is_locked { CONTROL } else { 0 })?;
        *self = Self { locked: is_locked.then_some(locked), ..Self::default() };
        while left != 0 {
            let number = left.trailing_zeros() as usize;
            left &= left - 1;
            let (pairs, (names, bits)) = if number < MOST {
                (&mut self.breakpoints, BREAKPOINT)
            } else {
                (&mut self.watchpoints, WATCHPOINT)
            };
            from.of((number % MOST) as u32);
            pairs[number % MOST] = load(names, bits, from)?;
        }
        from.of_all();
        Ok(())
    }

    /// Whether the processor may have `control` in `MDSCR_EL1`.
    pub(crate) fn allows(&self, control: u64) -> bool {
        let kept = if self.locked.is_some() { CONTROL & !super::ENABLES } else { CONTROL };
        control & !kept == 0
    }
}

fn load(
    [value, control]: [&'static str; 2],
    bits: u64,
    from: &mut SectionReader<'_>,
) -> Result<Pair, Error> {
    let pair = Pair { value: from.bits64(value, ADDRESS)?, control: from.bits64(control, bits)? };
    from.check(control, pair.control, !pair.is_as_after_reset())?;
    Ok(pair)
}
