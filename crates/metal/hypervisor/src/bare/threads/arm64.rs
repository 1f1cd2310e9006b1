//! The switch from one thread to another on arm64: what a call preserves is saved on the stack of the one thread, and
//! restored from the stack of the other.

use core::arch::{asm, global_asm};
use core::ptr::with_exposed_provenance_mut;

pub(crate) mod paging;

use super::stack::Stack;

/// x19, x29, where the thread goes on, and nothing.
const SAVED: usize = 4;

unsafe extern "C" {
    fn thread_begin();
}

/// Goes on with the thread whose registers are saved at `to`. Saves those of this thread, and stores their address at
/// `*from`.
///
/// The compiler saves what it needs of the registers that are named as lost here; most of them its caller has saved
/// already. It does not let x19 and x29 be named.
///
/// # Safety
///
/// They are saved there, and no other processor goes on with that thread.
#[inline]
pub(crate) unsafe fn switch_to(from: *mut usize, to: usize) {
    // SAFETY: the caller's promise. The thread goes on behind the call, on its own stack.
    unsafe {
        asm!(
            "bl thread_switch",
            in("x0") from,
            in("x1") to,
            lateout("x20") _,
            lateout("x21") _,
            lateout("x22") _,
            lateout("x23") _,
            lateout("x24") _,
            lateout("x25") _,
            lateout("x26") _,
            lateout("x27") _,
            lateout("x28") _,
            clobber_abi("C"),
        );
    }
}

/// Prepares the stack of a thread that begins with `begin`. Returns the address of its saved registers.
pub(crate) fn prepare(stack: &Stack, begin: extern "C" fn() -> !) -> usize {
    let saved = with_exposed_provenance_mut::<u64>(stack.top() as usize - 8 * SAVED);
    let registers = [begin as *const () as u64, 0, thread_begin as *const () as u64, 0];
    // SAFETY: the stack is the thread's.
    unsafe { saved.cast::<[u64; SAVED]>().write(registers) };
    saved.addr()
}

global_asm!(
    r#"
    .section .text.thread_switch, "ax"
    .global thread_switch
thread_switch:
    stp x19, x29, [sp, #-32]!
    str x30, [sp, #16]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldr x30, [sp, #16]
    ldp x19, x29, [sp], #32
    ret
    .global thread_begin
thread_begin:
    mov x29, #0
    mov x30, #0
    blr x19
    "#
);
