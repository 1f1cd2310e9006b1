//! The registers of EL1 and EL0 that are a guest's alone, on every processor.

use mayfly_state::{Error, SectionReader, SectionWriter};

use crate::sysreg::SysReg;

/// Calls the macro `$then` with all of them: a field, the name that the assembler knows, the numbers.
macro_rules! with_banked {
    ($then:ident) => {
        $then! {
            sctlr "sctlr_el1" (3, 0, 1, 0, 0)
            cpacr "cpacr_el1" (3, 0, 1, 0, 2)
            ttbr0 "ttbr0_el1" (3, 0, 2, 0, 0)
            ttbr1 "ttbr1_el1" (3, 0, 2, 0, 1)
            tcr "tcr_el1" (3, 0, 2, 0, 2)
            esr "esr_el1" (3, 0, 5, 2, 0)
            afsr0 "afsr0_el1" (3, 0, 5, 1, 0)
            afsr1 "afsr1_el1" (3, 0, 5, 1, 1)
            far "far_el1" (3, 0, 6, 0, 0)
            mair "mair_el1" (3, 0, 10, 2, 0)
            amair "amair_el1" (3, 0, 10, 3, 0)
            vbar "vbar_el1" (3, 0, 12, 0, 0)
            contextidr "contextidr_el1" (3, 0, 13, 0, 1)
            cntkctl "cntkctl_el1" (3, 0, 14, 1, 0)
            par "par_el1" (3, 0, 7, 4, 0)
            tpidr_el0 "tpidr_el0" (3, 3, 13, 0, 2)
            tpidrro "tpidrro_el0" (3, 3, 13, 0, 3)
            tpidr_el1 "tpidr_el1" (3, 0, 13, 0, 4)
            sp_el0 "sp_el0" (3, 0, 4, 1, 0)
            sp_el1 "sp_el1" (3, 4, 4, 1, 0)
            elr "elr_el1" (3, 0, 4, 0, 1)
            spsr "spsr_el1" (3, 0, 4, 0, 0)
            csselr "csselr_el1" (3, 2, 0, 0, 0)
            mdscr "mdscr_el1" (2, 0, 0, 2, 2)
        }
    };
}

macro_rules! lists {
    ($($field:ident $name:literal $number:tt)*) => {
        const REGISTERS: [SysReg; COUNT] = [$(SysReg::new $number),*];
    };
}

const COUNT: usize = 24;
/// The places of the two that more is known of.
const SCTLR: usize = 0;
const MDSCR: usize = COUNT - 1;

with_banked!(lists);

/// The registers of EL1 and EL0 that are a guest's alone, in the order of their list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Banked {
    pub(crate) values: [u64; COUNT],
}

impl Banked {
    /// Which they are, in the order in which they are saved.
    pub const REGISTERS: [SysReg; COUNT] = REGISTERS;

    /// After a reset, with `sctlr` for `SCTLR_EL1`.
    pub(super) const fn new(sctlr: u64) -> Self {
        let mut values = [0; COUNT];
        values[SCTLR] = sctlr;
        Self { values }
    }

    /// `MDSCR_EL1`.
    pub(super) const fn mdscr(&self) -> u64 {
        self.values[MDSCR]
    }

    pub(super) fn save(&self, to: &mut SectionWriter<'_, '_>) {
        to.words(&self.values);
    }

    /// A guest writes any value to them, without a trap: but to `MDSCR_EL1`, for which [`Vcpu`](super::Vcpu) looks.
    pub(super) fn load(&mut self, from: &mut SectionReader<'_>) -> Result<(), Error> {
        from.words("registers of EL1", &mut self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysreg;

    #[test]
    fn the_two_that_more_is_known_of_are_where_they_are_said_to_be() {
        assert_eq!(REGISTERS[SCTLR], sysreg::SCTLR_EL1);
        assert_eq!(REGISTERS[MDSCR], sysreg::MDSCR_EL1);
    }
}
