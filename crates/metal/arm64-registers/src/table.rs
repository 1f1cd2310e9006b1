//! What each system register of EL1 and EL0 is to a guest.
//!
//! The table ([`ROWS`]) lists all that the architecture has (DDI 0487, "`AArch64` System register index by encoding"),
//! by the feature that brings them. A test holds it against the registers that Linux knows. What is not listed is undefined, whatever the processor has: registers of EL2 and
//! EL3, and what is not allocated.

use crate::means::Means;
pub use crate::rows::ROWS;
use crate::sysreg::SysReg;

/// What a register is to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Each vCPU has its own, which is in the processor while the vCPU runs.
    Switched,
    /// Each vCPU has its own, or its machine has; accesses come out to EL2, which answers them.
    Trapped,
    /// It says the same to all guests, and no guest changes it.
    Constant,
    /// Accesses come out to EL2: reads say this number, writes are undefined.
    Reads(u64),
    /// Accesses come out to EL2: reads say this number, writes are ignored.
    Ignores(u64),
    /// It is undefined.
    Hidden,
}

/// Registers that are next to each other and are treated alike.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What the architecture calls them.
    pub name: &'static str,
    /// The feature that brings them, or the version of the architecture.
    pub feature: &'static str,
    /// What they are.
    pub treatment: Treatment,
    /// What keeps a guest from them, unless it reaches them.
    pub means: Option<Means>,
    first: SysReg,
    last: SysReg,
}

impl Row {
    /// The registers whose numbers are each between those of `first` and `last`.
    pub(crate) const fn span(
        name: &'static str,
        feature: &'static str,
        treatment: Treatment,
        means: Option<Means>,
        first: SysReg,
        last: SysReg,
    ) -> Self {
        Self { name, feature, treatment, means, first, last }
    }

    /// The first of them, and the last.
    pub const fn ends(&self) -> (SysReg, SysReg) {
        (self.first, self.last)
    }

    /// Whether `register` is one of them.
    pub const fn has(&self, register: SysReg) -> bool {
        let (first, last) = (self.first, self.last);
        register.op0() == first.op0()
            && is_between(register.op1(), first.op1(), last.op1())
            && is_between(register.crn(), first.crn(), last.crn())
            && is_between(register.crm(), first.crm(), last.crm())
            && is_between(register.op2(), first.op2(), last.op2())
    }
}

const fn is_between(number: u8, first: u8, last: u8) -> bool {
    first <= number && number <= last
}

/// The row of `register`, if it is listed.
pub fn row(register: SysReg) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.has(register))
}

/// What `register` is to a guest.
pub fn treatment(register: SysReg) -> Treatment {
    row(register).map_or(Treatment::Hidden, |row| row.treatment)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_register_is_in_two_rows() {
        for register in SysReg::all() {
            let rows: std::vec::Vec<_> =
                ROWS.iter().filter(|row| row.has(register)).map(|row| row.name).collect();
            assert!(rows.len() <= 1, "{register} is {rows:?}");
        }
    }

    #[test]
    fn every_row_has_a_register_and_a_name_of_its_own() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
        for row in ROWS {
            assert!(SysReg::all().any(|register| row.has(register)), "{}", row.name);
        }
    }

    #[test]
    fn registers_of_el2_and_el3_are_hidden() {
        for register in SysReg::all().filter(|register| matches!(register.op1(), 4..=6)) {
            let is_own = matches!(register.crn(), 11 | 15);
            assert!(is_own || row(register).is_none(), "{register}");
            assert_eq!(treatment(register), Treatment::Hidden, "{register}");
        }
    }
}
