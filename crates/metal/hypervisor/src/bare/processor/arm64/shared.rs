//! What all processors of the machine share, known once the machine is prepared.

use mayfly_arm64::gic::Gic;
use mayfly_arm64::tlb::EmptyRoot;
use mayfly_arm64::virtual_gic::Shape;

use crate::bare::processor::once::Once;

/// The machine's interrupt controller, and what guests are confined by.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    pub(crate) gic: Gic,
    /// `VTCR_EL2` of all guests.
    pub(crate) vtcr: u64,
    /// What `VTTBR_EL2` names outside of guests.
    pub(crate) empty: EmptyRoot,
    /// The number of the serial port's interrupt.
    pub(crate) uart_interrupt: Option<u32>,
    /// The virtual interface of the processors.
    pub(crate) interface: Shape,
}

static SHARED: Once<Shared> = Once::new();

/// Sets it. Once, before another processor starts.
pub(crate) fn set(shared: Shared) {
    SHARED.set(shared);
}

/// What [`set`] was given.
#[inline]
pub(crate) fn get() -> &'static Shared {
    SHARED.get().expect("the machine is prepared")
}
