//! Instructions on x86-64, which the time-stamp counter counts in a machine of QEMU's, and the guest's code.

use core::arch::x86_64::__cpuid;
use core::fmt;

use mayfly_lifecycle_steps::guest::x86;
use mayfly_x86::bare::counted::{Counter, NotCounted};
use mayfly_x86::machine::layout;

pub(super) use mayfly_lifecycle_steps::guest::x86::install;

// The guest's vCPU begins as that of a kernel does, and it finds the interrupt controller where that is.
const _: () = assert!(
    x86::TABLES == layout::PAGE_TABLES
        && x86::DESCRIPTORS_AT == layout::DESCRIPTORS
        && size_of_val(&x86::DESCRIPTORS) == layout::DESCRIPTORS_BYTES
        && x86::IOAPIC == layout::IOAPIC
);

/// What the processor is.
pub(super) struct Identity {
    signature: u32,
    asids: u32,
    svm: u32,
}

impl Identity {
    pub(super) fn read() -> Self {
        let svm = __cpuid(0x8000_000a);
        Self { signature: __cpuid(1).eax, asids: svm.ebx, svm: svm.edx }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { signature, asids, svm } = self;
        write!(f, "cpuid_1_eax={signature:#x} svm_asids={asids} svm_edx={svm:#x}")
    }
}

/// What was executed until a moment.
#[derive(Clone, Copy)]
pub(super) struct Count(u64);

impl Count {
    /// Since then. Nothing tells guests from the program: all is the last.
    pub(super) fn since(self, earlier: Self) -> [u64; 3] {
        [0, 0, self.0.wrapping_sub(earlier.0)]
    }
}

/// Counts.
pub(super) struct Retired(Counter);

impl Retired {
    pub(super) fn read(&self) -> Count {
        Count(self.0.executed())
    }
}

/// Begins to count.
///
/// # Errors
///
/// What the machine does not count.
pub(super) fn begin() -> Result<Retired, &'static str> {
    let counter = Counter::begin().map_err(|NotCounted| {
        "the time-stamp counter does not count instructions (QEMU: -icount shift=0,sleep=off)"
    })?;
    Ok(Retired(counter))
}

/// Begins to count guests apart.
///
/// # Errors
///
/// That nothing does so.
pub(super) fn begin_by_level() -> Result<Retired, &'static str> {
    Err("the instructions of guests are not counted apart on x86-64")
}

/// The time from one moment to another, in ticks, in nanoseconds: where ticks are instructions, each takes one.
pub(super) fn between(earlier: u64, later: u64) -> u64 {
    later - earlier
}
