//! The registers of the performance counters, by name, and what all processors of the machine have of them.

use crate::sysreg::SysReg;

/// `PMUVer` from which on events have 16 bits, and the PMU has events from 0x4000 on: that of ARMv8.1.
const WIDE_EVENTS: u64 = 4;
/// The same from which on counters of events have 64 bits: that of ARMv8.5.
const WIDE_COUNTERS: u64 = 6;
/// The bit of the cycle counter in the registers that have a bit for each counter.
pub(super) const CYCLES: u32 = 1 << 31;
/// Events that no processor counts for a guest.
pub(super) const SOFTWARE_INCREMENT: u32 = 0;
pub(super) const CHAIN: u32 = 0x1e;
/// Counters of events that a guest has at most.
pub const MOST: usize = 6;

/// What all processors of the machine have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// `ID_AA64DFR0_EL1.PMUVer`, as a guest reads it; 0 where it has no counters.
    pub version: u64,
    /// Counters of events, of which a guest has [`MOST`] at most.
    pub count: usize,
    /// `PMCEID0_EL0` and `PMCEID1_EL0`: the common events that are counted.
    pub events: [u64; 2],
}

impl Offered {
    pub(super) fn count(&self) -> usize {
        self.count.min(MOST)
    }

    /// Counters of events have 64 bits.
    pub(super) fn has_wide_counters(&self) -> bool {
        self.version >= WIDE_COUNTERS
    }

    /// A bit for each counter.
    pub(super) fn mask(&self) -> u32 {
        CYCLES | ((1 << self.count()) - 1)
    }

    /// The bits of a counter of events.
    pub(super) fn count_bits(&self) -> u64 {
        if self.has_wide_counters() { u64::MAX } else { u32::MAX.into() }
    }

    pub(super) fn event_bits(&self) -> u32 {
        if self.version >= WIDE_EVENTS { 0xffff } else { 0x3ff }
    }

    /// A register of common events, as a guest reads it.
    pub(super) fn shown_events(&self, half: usize) -> u64 {
        /// `STALL_SLOT_BACKEND`, `STALL_SLOT_FRONTEND`, `STALL_SLOT`: their unit, in `PMMIR_EL1`, is not shown.
        const SLOTS: u64 = 7 << 29;
        let wide = if self.version >= WIDE_EVENTS { u64::MAX } else { u64::from(u32::MAX) };
        match (half, self.events[half] & wide) {
            (0, events) => events | 1 << SOFTWARE_INCREMENT | 1 << CHAIN,
            (_, events) => events & !SLOTS,
        }
    }
}

/// One of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `PMCR_EL0`.
    Control,
    /// `PMCNTENSET_EL0`, or `PMCNTENCLR_EL0`.
    Enabled {
        /// Writes set bits, and do not clear them.
        set: bool,
    },
    /// `PMOVSSET_EL0`, or `PMOVSCLR_EL0`.
    Overflows {
        /// Writes set bits, and do not clear them.
        set: bool,
    },
    /// `PMINTENSET_EL1`, or `PMINTENCLR_EL1`.
    Interrupts {
        /// Writes set bits, and do not clear them.
        set: bool,
    },
    /// `PMSWINC_EL0`.
    Increment,
    /// `PMSELR_EL0`.
    Select,
    /// `PMCEID<n>_EL0`.
    Events(usize),
    /// `PMCCNTR_EL0`.
    Cycles,
    /// `PMCCFILTR_EL0`.
    CycleFilter,
    /// `PMXEVTYPER_EL0`.
    SelectedKind,
    /// `PMXEVCNTR_EL0`.
    SelectedCount,
    /// `PMMIR_EL1`.
    Machine,
    /// `PMUSERENR_EL0`.
    User,
    /// `PMEVCNTR<n>_EL0`.
    Count(usize),
    /// `PMEVTYPER<n>_EL0`.
    Kind(usize),
}

impl Place {
    /// Which of them `register` is.
    pub fn of(register: SysReg) -> Option<Self> {
        let (op1, crn, crm, op2) = (register.op1(), register.crn(), register.crm(), register.op2());
        let number = usize::from(crm & 3) << 3 | usize::from(op2);
        if register.op0() != 3 {
            return None;
        }
        Some(match (op1, crn, crm, op2) {
            (0, 9, 14, 1 | 2) => Self::Interrupts { set: op2 == 1 },
            (0, 9, 14, 6) => Self::Machine,
            (3, 9, 12, 0) => Self::Control,
            (3, 9, 12, 1 | 2) => Self::Enabled { set: op2 == 1 },
            (3, 9, 12, 3) => Self::Overflows { set: false },
            (3, 9, 12, 4) => Self::Increment,
            (3, 9, 12, 5) => Self::Select,
            (3, 9, 12, 6 | 7) => Self::Events(usize::from(op2 - 6)),
            (3, 9, 13, 0) => Self::Cycles,
            (3, 9, 13, 1) => Self::SelectedKind,
            (3, 9, 13, 2) => Self::SelectedCount,
            (3, 9, 14, 0) => Self::User,
            (3, 9, 14, 3) => Self::Overflows { set: true },
            (3, 14, 15, 7) => Self::CycleFilter,
            (3, 14, 8..=11, _) if number < 31 => Self::Count(number),
            (3, 14, 12..=15, _) => Self::Kind(number),
            _ => return None,
        })
    }
}
