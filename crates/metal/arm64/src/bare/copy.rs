//! Copies of memory that a guest may be reading and writing. To the compiler they are no accesses, and the processor's are
//! atomic byte by byte. So a race yields bytes that were there at some time.

use core::arch::asm;

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

/// Copies `count` bytes, which do not overlap: ten instructions for 64 bytes. Neither address need be aligned, which the
/// compiler cannot make use of: it is told to align all that it accesses, for code that runs with the MMU off.
///
/// # Safety
///
/// As of [`read`] and [`write()`].
pub unsafe fn bytes(from: u64, to: u64, count: usize) {
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
