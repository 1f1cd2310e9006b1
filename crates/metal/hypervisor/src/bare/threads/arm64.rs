//! The switch from one thread to another on arm64: the registers that a call preserves are saved on the stack of the
//! one thread, and restored from the stack of the other.

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

/// Goes on with the thread whose registers are saved at `to`. Saves those of this thread, and stores their address at
/// `*from`.
///
/// # Safety
///
/// They are saved there, and no other processor goes on with that thread.
pub(crate) unsafe fn switch_to(from: *mut usize, to: usize) {
    // SAFETY: the caller's promise.
    unsafe { thread_switch(from, to) };
}

/// Prepares the stack of a thread that begins with `begin`. Returns the address of its saved registers.
pub(crate) fn prepare(frames: Pfn, begin: extern "C" fn() -> !) -> usize {
    let top = (frames.get() + (1 << STACK_ORDER)) * PAGE_SIZE;
    let saved = with_exposed_provenance_mut::<u64>(top as usize - 8 * SAVED);
    // SAFETY: the frames are the thread's, and zero. x19 comes first, x30 last.
    unsafe {
        saved.write(begin as *const () as u64);
        saved.add(SAVED - 1).write(thread_begin as *const () as u64);
    }
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
    blr x19
    "#
);
