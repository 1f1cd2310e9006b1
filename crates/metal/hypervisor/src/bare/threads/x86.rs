//! The switch from one thread to another on x86-64: what a call preserves is saved on the stack of the one thread, and
//! restored from the stack of the other.

use core::arch::{asm, global_asm};
use core::ptr::with_exposed_provenance_mut;

pub(crate) mod paging;

use super::stack::Stack;

/// RBX, RBP, where the thread goes on, and nothing.
const SAVED: usize = 4;

unsafe extern "C" {
    fn thread_begin();
}

/// Goes on with the thread whose registers are saved at `to`. Saves those of this thread, and stores their address at
/// `*from`.
///
/// The compiler saves what it needs of the registers that are named as lost here. It does not let RBX and RBP be named.
///
/// # Safety
///
/// They are saved there, and no other processor goes on with that thread.
#[inline]
pub(crate) unsafe fn switch_to(from: *mut usize, to: usize) {
    // SAFETY: the caller's promise. The thread goes on behind the call, on its own stack.
    unsafe {
        asm!(
            "call thread_switch",
            in("rdi") from,
            in("rsi") to,
            lateout("r12") _,
            lateout("r13") _,
            lateout("r14") _,
            lateout("r15") _,
            clobber_abi("sysv64"),
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
    push rbp
    push rbx
    mov [rdi], rsp
    mov rsp, rsi
    pop rbx
    pop rbp
    ret
    .global thread_begin
thread_begin:
    xor ebp, ebp
    and rsp, -16
    call rbx
    ud2
    "#
);
