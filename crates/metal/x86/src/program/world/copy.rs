//! Bytes of guests' memory, which a guest may be using: they are moved by instructions of which Rust knows nothing.

use core::arch::asm;

/// Writes `bytes` at a physical address.
///
/// # Safety
///
/// All of it is memory that is mapped, and of which nothing is a value of Rust's.
pub(crate) unsafe fn write(address: u64, bytes: &[u8]) {
    // SAFETY: the caller's promise, and the slice's.
    unsafe {
        asm!("rep movsb", inout("rcx") bytes.len() => _, inout("rsi") bytes.as_ptr() => _, inout("rdi") address => _,
            options(nostack, preserves_flags));
    }
}

/// Reads `bytes` from a physical address.
///
/// # Safety
///
/// As [`write`].
pub(crate) unsafe fn read(address: u64, bytes: &mut [u8]) {
    // SAFETY: the caller's promise, and the slice's.
    unsafe {
        asm!("rep movsb", inout("rcx") bytes.len() => _, inout("rsi") address => _, inout("rdi") bytes.as_mut_ptr() => _,
            options(nostack, preserves_flags));
    }
}

/// Reads 16 bytes from a physical address, by two instructions.
///
/// # Safety
///
/// As [`write`].
pub(crate) unsafe fn sixteen(address: u64) -> [u8; 16] {
    let (lower, upper): (u64, u64);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("mov {}, [{place}]", "mov {}, [{place} + 8]", out(reg) lower, lateout(reg) upper, place = in(reg) address,
            options(nostack, preserves_flags, readonly));
    }
    (u128::from(upper) << 64 | u128::from(lower)).to_le_bytes()
}

/// Fills `words` words with zeroes.
///
/// # Safety
///
/// As [`write`].
pub(crate) unsafe fn clear(address: u64, words: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("rep stosq", inout("rcx") words => _, inout("rdi") address => _, in("rax") 0_u64,
            options(nostack, preserves_flags));
    }
}
