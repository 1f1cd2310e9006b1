//! Why a vCPU leaves its run, on every architecture.

/// Why a vCPU stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It waits for an interrupt.
    Wait,
    /// It turns itself off, or cannot go on.
    Off,
    /// It powers the machine off.
    SystemOff,
    /// It restarts the machine.
    SystemReset,
}
