//! What was saved of a machine, held against this one.

use mayfly_state::{Error, SectionReader};

use super::{common, context, cpu, timer};
use crate::processor::REGISTERS;
use crate::saved::Machine;
use crate::sysreg;
use crate::vcpu::{Allowed, AtRest};

/// `ID_AA64PFR0_EL1.EL0`.
const EL0_HAS_AARCH32: u64 = 2;

/// What guests find on this machine, with so many bits of physical address as `pa_range` says.
pub fn machine(pa_range: u64) -> Machine {
    let ids = REGISTERS.map(common::id_register);
    Machine::new(&ids, pa_range, common::caches(), timer::frequency())
}

/// A vCPU that was just made, which reads `affinity` as its own.
pub fn fresh(affinity: u64) -> AtRest {
    AtRest::new(context::fresh(affinity, 0))
}

/// Has a vCPU that was just made be what was saved.
///
/// # Errors
///
/// [`Error`] names a register with what the guest of a machine like this could not have put there.
pub fn load(vcpu: &mut AtRest, from: SectionReader<'_>) -> Result<(), Error> {
    let allowed = Allowed {
        counters: common::counters(),
        aarch32: common::id_register(sysreg::ID_AA64PFR0_EL1) & 0xf == EL0_HAS_AARCH32,
        keys: cpu::has_pointer_authentication(),
    };
    vcpu.load(&allowed, from)
}
