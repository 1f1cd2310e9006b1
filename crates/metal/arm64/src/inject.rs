//! An exception that a guest takes to its own EL1 (DDI 0487, pseudocode `AArch64.TakeException`).

/// The guest's registers that taking an exception reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Where it is.
    pub pc: u64,
    /// Its PSTATE, as `SPSR_EL2` has it.
    pub pstate: u64,
    /// `VBAR_EL1`.
    pub vbar: u64,
    /// `SCTLR_EL1`.
    pub sctlr: u64,
    /// It has `FEAT_PAN`.
    pub has_pan: bool,
    /// It has `FEAT_SSBS`.
    pub has_ssbs: bool,
}

/// What it has done to the guest's registers. `FAR_EL1` is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    /// Where it goes on.
    pub pc: u64,
    /// With which PSTATE.
    pub pstate: u64,
    /// `ELR_EL1`.
    pub elr: u64,
    /// `SPSR_EL1`.
    pub spsr: u64,
    /// `ESR_EL1`.
    pub esr: u64,
}

/// What the exception is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// An instruction that there is not.
    Undefined,
    /// A synchronous external abort.
    ExternalAbort {
        /// Of a fetch.
        fetch: bool,
        /// Of a walk of the guest's tables.
        walk: bool,
        /// Of a store.
        write: bool,
    },
    /// An exclusive or atomic access where there is none.
    UnsupportedAccess,
}

const MODE: u64 = 0x1f;
const MODE_EL0: u64 = 0;
const MODE_EL1T: u64 = 0b0100;
const MODE_EL1H: u64 = 0b0101;
/// `SPSR_EL2.M[4]`.
const AARCH32: u64 = 1 << 4;
const DAIF: u64 = 0xf << 6;
const SSBS: u64 = 1 << 12;
const PAN: u64 = 1 << 22;
const DIT: u64 = 1 << 24;
const NZCV: u64 = 0xf << 28;
const SCTLR_SPAN: u64 = 1 << 23;
const SCTLR_DSSBS: u64 = 1 << 44;
/// `ESR_EL1.IL`: an instruction of 32 bits.
const IL: u64 = 1 << 25;

impl Exception {
    /// What `ESR_EL1` says, if it comes from EL0 or not.
    fn syndrome(self, from_el0: bool) -> u64 {
        let same_el = u64::from(!from_el0);
        match self {
            Self::Undefined => IL,
            Self::ExternalAbort { fetch, walk, write } => {
                // FSC 0x10, or of a walk, at an unknown level, 0x17 (level 3).
                let code = if walk { 0x17 } else { 0x10 };
                let class = if fetch { 0x20 } else { 0x24 } + same_el;
                class << 26 | IL | u64::from(write && !fetch) << 6 | code
            }
            Self::UnsupportedAccess => (0x24 + same_el) << 26 | IL | 0x35,
        }
    }

    /// Has a guest take it.
    pub fn take(self, before: &Before) -> After {
        let from_el0 = before.pstate & MODE == MODE_EL0 || before.pstate & AARCH32 != 0;
        let offset = match before.pstate & MODE {
            MODE_EL1T => 0x000,
            MODE_EL1H => 0x200,
            mode if mode & AARCH32 != 0 => 0x600,
            _ => 0x400,
        };
        let mut pstate = before.pstate & (NZCV | DIT | PAN) | DAIF | MODE_EL1H;
        if before.pstate & AARCH32 != 0 {
            pstate &= !(DIT | PAN);
        }
        if before.has_pan && before.sctlr & SCTLR_SPAN == 0 {
            pstate |= PAN;
        }
        if before.has_ssbs && before.sctlr & SCTLR_DSSBS != 0 {
            pstate |= SSBS;
        }
        After {
            pc: before.vbar.wrapping_add(offset),
            pstate,
            elr: before.pc,
            spsr: before.pstate,
            esr: self.syndrome(from_el0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AT_EL1: Before = Before {
        pc: 0x8000,
        pstate: MODE_EL1H | NZCV,
        vbar: 0x10_0000,
        sctlr: 0,
        has_pan: false,
        has_ssbs: false,
    };

    #[test]
    fn it_is_taken_by_the_vector_of_where_the_guest_was() {
        let at =
            |mode| Exception::Undefined.take(&Before { pstate: mode, ..AT_EL1 }).pc - AT_EL1.vbar;
        assert_eq!(
            [at(MODE_EL1T), at(MODE_EL1H), at(MODE_EL0), at(AARCH32)],
            [0, 0x200, 0x400, 0x600]
        );
    }

    #[test]
    fn an_abort_says_which_level_it_comes_from() {
        let abort = Exception::ExternalAbort { fetch: false, walk: false, write: true };
        let class = |pstate| abort.take(&Before { pstate, ..AT_EL1 }).esr >> 26;
        assert_eq!((class(MODE_EL0), class(MODE_EL1H)), (0x24, 0x25));
    }

    #[test]
    fn access_to_user_memory_is_denied_where_the_guest_wants_that() {
        let before = Before { has_pan: true, ..AT_EL1 };
        assert_ne!(Exception::Undefined.take(&before).pstate & PAN, 0);
        let before = Before { sctlr: SCTLR_SPAN, ..before };
        assert_eq!(Exception::Undefined.take(&before).pstate & PAN, 0);
    }

    proptest! {
        #[test]
        fn the_guest_goes_on_at_el1_with_all_masked(pc: u64, pstate: u64, vbar: u64, sctlr: u64, has_pan: bool, has_ssbs: bool) {
            let before = Before { pc, pstate, vbar, sctlr, has_pan, has_ssbs };
            let after = Exception::Undefined.take(&before);
            prop_assert_eq!(after.pstate & (MODE | DAIF), MODE_EL1H | DAIF);
            prop_assert_eq!((after.elr, after.spsr), (pc, pstate));
        }
    }
}
