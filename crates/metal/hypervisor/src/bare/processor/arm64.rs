//! The processor floor on arm64: system registers, the physical GIC, the PL011 and PL031 of the machine, PSCI of its
//! firmware.

use mayfly_hwtrace::Family;
use smccc::Smc;

pub(crate) use mayfly_arm64::{cpu, spin, timer, zero};

mod copies;
pub(crate) mod interrupts;
pub(crate) mod lines;
pub(crate) mod pl011;
pub(crate) mod shared;
pub(crate) mod this_cpu;
pub(crate) mod traced;

pub(crate) use pl011 as port;

/// What a processor lacks that has no random numbers of its own.
pub(crate) const NO_RANDOM: &str = "the device tree has no rng-seed, and the processor has no RNDR";

/// Powers the machine off.
pub(crate) fn power_off() -> ! {
    let _ = smccc::psci::system_off::<Smc>();
    loop {
        spin::wait_for_interrupt();
    }
}

/// The family of a stage-2 format, by the format's name.
pub(crate) fn family(format: &str) -> Family {
    if format.contains("FWB") { Family::ArmFwb } else { Family::Arm }
}
