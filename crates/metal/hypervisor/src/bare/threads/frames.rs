//! Frames for a thread that may be long about it.

use mayfly_vm::platform::address::Pfn;

use super::arch::STACK_ORDER;
use super::course::has_begun;
use super::interrupts::look;
use super::preemption::preemption_point;
use crate::bare::processor::frames;

/// `1 << order` frames of zeroes.
pub(crate) fn allocate(order: u32) -> Option<Pfn> {
    frames::allocate(order, || {
        // Large allocations are the memory of a guest, whose VM can wait.
        if order > STACK_ORDER && has_begun() {
            preemption_point();
        } else {
            look();
        }
    })
}
