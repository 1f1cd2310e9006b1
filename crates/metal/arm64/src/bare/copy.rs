//! Copies of memory that a guest may be reading and writing. To the compiler they are no accesses, and the processor's are
//! atomic byte by byte. So a race yields bytes that were there at some time.

use core::arch::asm;
use core::mem::MaybeUninit;

use super::cpu;

/// Copies from the address `from`, and into the bytes.
///
/// # Safety
///
/// As many bytes from there on are memory that is written back, mapped one to one, and stay so meanwhile.
#[inline]
pub unsafe fn read(from: u64, into: &mut [u8]) {
    // SAFETY: the caller's promise; what is written are these bytes.
    unsafe { bytes(from, into.as_mut_ptr().expose_provenance() as u64, into.len()) };
}

/// Copies the bytes to the address `to`.
///
/// # Safety
///
/// As of [`read`]; nothing of the program's own is there.
#[inline]
pub unsafe fn write(to: u64, from: &[u8]) {
    // SAFETY: the caller's promise.
    unsafe { bytes(from.as_ptr().expose_provenance() as u64, to, from.len()) };
}

/// Copies `count` bytes, which do not overlap. Neither address need be aligned, which the compiler cannot make use of: it is
/// told to align all that it accesses, for code that runs with the MMU off.
///
/// # Safety
///
/// As of [`read`] and [`write()`].
pub unsafe fn bytes(from: u64, to: u64, count: usize) {
    let whole = if count >= BLOCK && cpu::has_floating_point() { count & !(BLOCK - 1) } else { 0 };
    // SAFETY: the caller's promise. These are whole blocks, one at least, and what is left.
    unsafe {
        if whole > 0 {
            blocks(from, to, whole);
        }
        rest(from + whole as u64, to + whole as u64, count - whole);
    }
}

/// What [`blocks`] copies at a time. Fewer bytes are not worth the registers that are saved for it.
const BLOCK: usize = 256;

/// Copies blocks, by 18 instructions each.
///
/// The floating-point registers are a guest's. Those that are used are saved meanwhile; nothing comes between, since
/// interrupts and `SError` are masked at EL2.
///
/// # Safety
///
/// As of [`bytes`]; floating point does not trap, and `count` is a multiple of [`BLOCK`] that is not zero.
unsafe fn blocks(from: u64, to: u64, count: usize) {
    let mut saved = MaybeUninit::<[u128; 4]>::uninit();
    // SAFETY: the caller's promise; `saved` has the size of four registers, and the registers are as they were in the
    // end. It is memory, where an access need not be aligned while `SCTLR_EL2.A` is clear.
    unsafe {
        asm!(
            ".arch_extension fp",
            "stp q0, q1, [{saved}]",
            "stp q2, q3, [{saved}, #32]",
            "2:",
            ".rept 4",
            "ldp q0, q1, [{from}], #32",
            "ldp q2, q3, [{from}], #32",
            "stp q0, q1, [{to}], #32",
            "stp q2, q3, [{to}], #32",
            ".endr",
            "subs {count}, {count}, #{block}",
            "b.ne 2b",
            "ldp q0, q1, [{saved}]",
            "ldp q2, q3, [{saved}, #32]",
            ".arch_extension nofp",
            saved = in(reg) saved.as_mut_ptr(),
            block = const BLOCK,
            count = inout(reg) count => _,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            options(nostack)
        );
    }
}

/// Copies what is less than a block, or all where floating point traps: twelve instructions for 64 bytes.
///
/// # Safety
///
/// As of [`bytes`].
unsafe fn rest(from: u64, to: u64, count: usize) {
    // SAFETY: the caller's promise. It is memory, where an access need not be aligned while `SCTLR_EL2.A` is clear.
    unsafe {
        asm!(
            "subs {count}, {count}, #64",
            "b.lo 3f",
            "2:",
            "ldp {a}, {b}, [{from}]",
            "ldp {c}, {d}, [{from}, #16]",
            "ldp {e}, {f}, [{from}, #32]",
            "ldp {g}, {h}, [{from}, #48]",
            "add {from}, {from}, #64",
            "stp {a}, {b}, [{to}]",
            "stp {c}, {d}, [{to}, #16]",
            "stp {e}, {f}, [{to}, #32]",
            "stp {g}, {h}, [{to}, #48]",
            "add {to}, {to}, #64",
            "subs {count}, {count}, #64",
            "b.hs 2b",
            // Of the rest, words, and then bytes.
            "3:",
            "adds {count}, {count}, #64 - 8",
            "b.lt 5f",
            "4:",
            "ldr {a}, [{from}], #8",
            "str {a}, [{to}], #8",
            "subs {count}, {count}, #8",
            "b.hs 4b",
            "5:",
            "adds {count}, {count}, #8",
            "b.eq 7f",
            "6:",
            "ldrb {a:w}, [{from}], #1",
            "strb {a:w}, [{to}], #1",
            "subs {count}, {count}, #1",
            "b.ne 6b",
            "7:",
            count = inout(reg) count => _,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            e = out(reg) _,
            f = out(reg) _,
            g = out(reg) _,
            h = out(reg) _,
            options(nostack)
        );
    }
}
