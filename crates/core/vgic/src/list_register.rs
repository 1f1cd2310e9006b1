//! `ICH_LR<n>_EL2`: an interrupt as the hardware gives it to the guest (Arm IHI 0069, 12.4).

use crate::load::{End, Load};
use crate::state::State;

const PENDING: u64 = 1 << 62;
const ACTIVE: u64 = 1 << 63;
const HARDWARE: u64 = 1 << 61;
const GROUP1: u64 = 1 << 60;
const PRIORITY: u32 = 48;
const PHYSICAL: u32 = 32;
const EOI: u64 = 1 << 41;

/// The list register of interrupt `intid`, in `state`, which the hardware knows as `physical` if it is linked.
pub(crate) fn encode(intid: u32, state: State, load: Load, physical: u32) -> u64 {
    let bit = |set, bit| if set { bit } else { 0 };
    let link = match load.end {
        End::Nothing => 0,
        End::Told => EOI,
        End::Linked => HARDWARE | u64::from(physical) << PHYSICAL,
    };
    u64::from(intid)
        | link
        | u64::from(state.priority()) << PRIORITY
        | bit(state.is_group1(), GROUP1)
        | bit(load.pending, PENDING)
        | bit(load.active, ACTIVE)
}

/// Whether it was loaded as one of `groups`, a bit each.
pub(crate) const fn is_in(register: u64, groups: u32) -> bool {
    groups >> (register & GROUP1 != 0) as u32 & 1 != 0
}

/// What the guest has left of an interrupt: whether it is pending, whether it is active, and at which priority.
pub(crate) const fn decode(register: u64) -> (bool, bool, u8) {
    (register & PENDING != 0, register & ACTIVE != 0, (register >> PRIORITY) as u8)
}
