//! What all processors of the machine share, known once the machine is prepared.

use mayfly_arm64::gic::Gic;
use mayfly_arm64::tlb::EmptyRoot;
use mayfly_arm64::virtual_gic::Shape;

use crate::bare::processor::once::Once;
use crate::bare::processor::spin::SpinLock;

/// What guests are confined by.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
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
static GIC: Once<Gic> = Once::new();
/// What the virtual interfaces of all processors have.
static SHAPE: SpinLock<Option<Shape>> = SpinLock::new(None);

/// Sets the interrupt controller. Once, before a processor comes.
pub(crate) fn set_gic(gic: Gic) {
    GIC.set(gic);
}

/// What [`set_gic`] was given.
pub(crate) fn gic() -> &'static Gic {
    GIC.get().expect("the interrupt controller is prepared")
}

/// Whether a processor's virtual interface is like that of the others: it may have more list registers, or fewer.
pub(crate) fn fits(shape: Shape) -> bool {
    SHAPE.lock().is_none_or(|common| common.in_common(shape).is_some())
}

/// Takes account of a processor's virtual interface, which [fits](fits).
pub(crate) fn note_shape(shape: Shape) {
    let mut common = SHAPE.lock();
    *common = common.map_or(Some(shape), |common| common.in_common(shape));
}

/// What the virtual interfaces of all processors have, when all have come.
pub(crate) fn shape() -> Shape {
    SHAPE.lock().unwrap_or_else(Shape::read)
}

/// Whether [`set`] was called.
pub(crate) fn is_set() -> bool {
    SHARED.get().is_some()
}

/// Sets it. Once, when all processors have come, and before one is prepared further.
pub(crate) fn set(shared: Shared) {
    SHARED.set(shared);
}

/// What [`set`] was given.
#[inline]
pub(crate) fn get() -> &'static Shared {
    SHARED.get().expect("the machine is prepared")
}
