//! Frames for a thread that may be long about it.

use mayfly_hypervisor::account::ShareId;
use mayfly_vm::platform::address::Pfn;

use super::course::has_begun;
use super::interrupts::look;
use super::preemption::preemption_point;
use crate::bare::processor::frames;

/// Whoever asks for more waits for it: it is the memory of a guest, whose VM can wait.
const MOST_ORDER_AT_ONCE: u32 = 3;

/// `1 << order` frames of zeroes, for the hypervisor itself.
pub(crate) fn allocate(order: u32) -> Option<Pfn> {
    allocate_for(ShareId::SYSTEM, order)
}

/// `1 << order` frames of zeroes, for a share of the machine.
pub(crate) fn allocate_for(share: ShareId, order: u32) -> Option<Pfn> {
    frames::allocate(share, order, || {
        if order > MOST_ORDER_AT_ONCE && has_begun() {
            preemption_point();
        } else {
            look();
        }
    })
}
