//! The switch from one thread to another: what a call saves goes to the stack of the one, and comes from that of the
//! other.

use core::arch::global_asm;
use core::ptr::with_exposed_provenance_mut;

use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};

/// A stack is `1 << STACK_ORDER` frames: 32 KiB.
pub(crate) const STACK_ORDER: u32 = 3;

/// x19 to x30.
const SAVED: usize = 12;

unsafe extern "C" {
    fn thread_switch(from: *mut usize, to: usize);
    fn thread_begin();
}

/// Goes on with the thread whose registers are at `to`; those of this one are where `*from` says from then on.
///
/// # Safety
///
/// They are, and nobody else goes on with it.
pub(super) unsafe fn to(from: *mut usize, to: usize) {
    // SAFETY: the caller's promise.
    unsafe { thread_switch(from, to) };
}

/// Makes the stack of a thread that begins; returns where its registers are.
pub(super) fn prepare(frames: Pfn) -> usize {
    let top = (frames.get() + (1 << STACK_ORDER)) * PAGE_SIZE;
    let saved = with_exposed_provenance_mut::<u64>(top as usize - 8 * SAVED);
    // SAFETY: the frames are the thread's, and zero.
    unsafe { saved.add(SAVED - 1).write(thread_begin as *const () as u64) };
    saved.addr()
}

global_asm!(
    r#"
    .section .text.thread_switch, "ax"
    .global thread_switch
thread_switch:
    stp x19, x20, [sp, #-96]!
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp x19, x20, [sp], #96
    ret
    .global thread_begin
thread_begin:
    mov x29, #0
    mov x30, #0
    bl {begin}
    "#,
    begin = sym super::begin,
);
