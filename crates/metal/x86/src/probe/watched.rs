//! What the handlers of debug exceptions and of non-maskable interrupts have seen.

use core::arch::asm;
use core::ptr::addr_of;

use crate::kernel::tried::{Outcome, place, with};

unsafe extern "C" {
    static debugged: [u64; 3];
    static nmis: u32;
    static nmis_nested: u32;
}

/// DR6 that says nothing.
const DR6_CLEAR: u64 = 0xffff_0ff0;

/// How many non-maskable interrupts have come, and how many of them in the handler of another.
pub(super) fn non_maskable() -> (u32, u32) {
    // SAFETY: `tried.S`'s, which the handler alone writes.
    unsafe { (addr_of!(nmis).read_volatile(), addr_of!(nmis_nested).read_volatile()) }
}

/// What a debug exception has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Debugged {
    /// How many bytes of the code are before the place where it goes on.
    pub(super) behind: u64,
    /// RFLAGS, as it goes on with them.
    pub(super) flags: u64,
    /// DR6, which said nothing before.
    pub(super) status: u64,
}

/// Executes `code`, as [`with`] does. `None` if it raises no debug exception.
pub(super) fn debugging(code: &[u8], rax: u64, rcx: u64, rdx: u64) -> Option<Debugged> {
    // SAFETY: the register has what debug exceptions say, and nothing else reads it.
    unsafe {
        asm!("mov dr6, {}", in(reg) DR6_CLEAR, options(nostack, nomem, preserves_flags));
    }
    let is_debug = with(code, rax, rcx, rdx) == Outcome::Raised(1);
    // SAFETY: `tried.S`'s, which the handler alone writes.
    let [at, flags, status] = unsafe { addr_of!(debugged).read_volatile() };
    let behind = at.wrapping_sub(place() as u64);
    is_debug.then_some(Debugged { behind, flags, status })
}
