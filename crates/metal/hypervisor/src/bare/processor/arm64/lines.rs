//! The lines by which the machine's own devices interrupt: SPIs of the physical GIC.

use super::{shared, this_cpu};

/// Has a line interrupt the first processor, by its edges or while it is high.
pub(crate) fn enable(number: u32, is_edge: bool) {
    shared::gic().set_edge(number, is_edge);
    shared::gic().enable_shared(number, this_cpu::affinity(0));
}

/// Has a line interrupt nobody any more.
pub(crate) fn disable(number: u32) {
    shared::gic().disable_shared(number);
}
