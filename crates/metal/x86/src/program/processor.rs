//! The processor and what is right beside it: its exceptions, its local APIC, the time, the serial port.

pub(super) mod console;
pub(super) mod ending;
pub(super) mod interrupts;
pub(super) mod lock;
pub(super) mod svm;
pub(super) mod timer;
pub(super) mod traps;
