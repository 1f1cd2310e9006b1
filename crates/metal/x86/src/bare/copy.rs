//! Copies of memory that a guest may be reading and writing. To the compiler they are no accesses. A race yields bytes that
//! were there at some time; and a word that lies at a multiple of its size is read and written as a whole.

use core::arch::asm;

/// Copies from the address `from`, and into the bytes.
///
/// # Safety
///
/// All of it is memory that is mapped, and of which nothing is a value of Rust's.
#[inline]
pub unsafe fn read(from: u64, into: &mut [u8]) {
    // SAFETY: the caller's promise, and the slice's.
    unsafe { bytes(from, into.as_mut_ptr().expose_provenance() as u64, into.len()) }
}

/// Copies the bytes to the address `to`.
///
/// # Safety
///
/// As [`read`].
#[inline]
pub unsafe fn write(to: u64, from: &[u8]) {
    // SAFETY: the caller's promise, and the slice's.
    unsafe { bytes(from.as_ptr().expose_provenance() as u64, to, from.len()) }
}

/// Copies `count` bytes.
///
/// # Safety
///
/// All of it is memory that is mapped; what is written is of no value of Rust's but the caller's own, and no byte of it is
/// among those that are read.
#[inline]
pub unsafe fn bytes(from: u64, to: u64, count: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match count {
            8 => {
                asm!("mov {word}, [{from}]", "mov [{to}], {word}", word = out(reg) _, from = in(reg) from, to = in(reg) to,
                    options(nostack, preserves_flags));
            }
            16 => {
                asm!("mov {a}, [{from}]", "mov {b}, [{from} + 8]", "mov [{to}], {a}", "mov [{to} + 8], {b}",
                    a = out(reg) _, b = out(reg) _, from = in(reg) from, to = in(reg) to,
                    options(nostack, preserves_flags));
            }
            _ => {
                asm!("rep movsq", "mov ecx, {rest:e}", "rep movsb", rest = in(reg) count % 8,
                    inout("rcx") count / 8 => _, inout("rsi") from => _, inout("rdi") to => _,
                    options(nostack, preserves_flags));
            }
        }
    }
}

/// Fills `words` words with zeroes.
///
/// # Safety
///
/// As [`read`].
#[inline]
pub unsafe fn clear(address: u64, words: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("rep stosq", inout("rcx") words => _, inout("rdi") address => _, in("rax") 0_u64,
            options(nostack, preserves_flags));
    }
}
