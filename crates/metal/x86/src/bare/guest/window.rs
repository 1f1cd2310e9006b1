//! When a guest comes out to take an interrupt that it does not take yet.

use mayfly_vapic::Next;

use crate::svm::vmcb::{Control, first};

/// Of the virtual interrupt (APM volume 2, 15.21): `V_TPR`, `V_IRQ`, `V_INTR_PRIO`, `V_IGN_TPR`.
pub(super) const TASK_PRIORITY: u64 = 0xf;
const REQUESTED: u64 = 1 << 8;
const PRIORITY_SHIFT: u32 = 16;
const PRIORITY: u64 = 0xf << PRIORITY_SHIFT;
const IGNORES_PRIORITY: u64 = 1 << 20;

/// The vector of an interrupt that waits, and whether it is to be delivered as soon as the guest takes interrupts.
pub(super) const fn of(next: Next) -> Option<(u8, bool)> {
    match next {
        Next::Nothing => None,
        Next::Deliver(vector) => Some((vector, true)),
        Next::Masked(vector) => Some((vector, false)),
    }
}

/// The guest's CR8 is its APIC's task priority.
pub(super) fn set_priority(control: &mut Control, cr8: u8) {
    control.virtual_interrupts = control.virtual_interrupts & !TASK_PRIORITY | u64::from(cr8);
}

/// Has the guest come out as soon as it takes an interrupt of this vector, or, if it is not to be delivered yet, as soon as it
/// lowers its priority for it.
pub(super) fn set(control: &mut Control, waiting: Option<(u8, bool)>) {
    control.virtual_interrupts &= !(REQUESTED | PRIORITY | IGNORES_PRIORITY);
    control.intercepts[0] &= !first::VIRTUAL_INTERRUPT;
    if let Some((vector, delivers)) = waiting {
        control.intercepts[0] |= first::VIRTUAL_INTERRUPT;
        control.virtual_interrupts |= REQUESTED | u64::from(vector >> 4) << PRIORITY_SHIFT;
        if delivers {
            control.virtual_interrupts |= IGNORES_PRIORITY;
        }
    }
}
