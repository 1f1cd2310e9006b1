//! How often guests came out, and for what.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// For what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Cpuid,
    Cr4,
    Xcr,
    Msr,
    Port,
    /// A port that no device has.
    NoPort,
    Memory,
    Device,
    /// An address that neither memory nor a device has.
    NoDevice,
    Apic,
    Halt,
    Window,
    Interrupt,
    Call,
    /// An instruction or an MSR that guests do not have.
    Refused,
    /// An instruction that reaches a device, and could not be carried out.
    Undecoded,
}

const NAMES: [&str; 16] = [
    "CPUID",
    "writes of CR4",
    "writes of XCR0",
    "MSRs",
    "ports",
    "ports that are not there",
    "memory",
    "devices",
    "addresses where nothing is",
    "its APIC",
    "HLT",
    "interrupts that it could not take",
    "interrupts of the machine",
    "calls",
    "what it does not have",
    "instructions that are not decoded",
];

/// Counts, by reason.
#[derive(Debug, Default)]
pub(super) struct Counts([AtomicU64; NAMES.len()]);

impl Counts {
    pub(super) fn count(&self, reason: Reason) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, count) in NAMES.iter().zip(&self.0) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                write!(f, "{separator}{name} {count}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}
