//! The modules that are built for a bare machine alone.

pub mod apic;
pub mod copy;
pub mod counted;
pub mod cpu;
pub mod guest;
pub mod ioapic;
pub mod spin;
pub mod svm;
pub mod switch;
pub mod timer;
pub mod traps;
pub mod zero;
