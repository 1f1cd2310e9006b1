//! Frames of zeroes. Memory is mapped one to one, so the number of a frame is its address.

use core::arch::asm;
use core::mem::MaybeUninit;
use core::ptr::with_exposed_provenance_mut;

use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};

use super::cpu;

/// The bytes that `DC ZVA` fills with zeroes, if this processor allows it (`DCZID_EL0`: BS, DZP). A page has a multiple
/// of them: 2 KiB are the most that BS can say.
fn block() -> Option<u64> {
    let dczid = crate::read_register!("dczid_el0");
    let (size, is_prohibited) = (4 << (dczid & 15), dczid >> 4 & 1 != 0);
    (!is_prohibited).then_some(size)
}

/// Fills `count` frames from `first` on with zeroes.
///
/// # Safety
///
/// They are the caller's alone, and mapped as memory that is written back.
#[inline]
pub unsafe fn frames(first: Pfn, count: u64) {
    let (start, bytes) = (first.get() * PAGE_SIZE, count * PAGE_SIZE);
    if bytes == 0 {
        return;
    }
    // SAFETY: writes to these frames alone: the caller's promise. They are memory, where `DC ZVA` does not fault, and
    // whole blocks. Like stores, what it writes is seen by a processor that acquires what this one releases later.
    unsafe {
        match block() {
            Some(64) if cpu::has_floating_point() => by_turns(start, start + bytes),
            Some(block) => by_blocks(start, start + bytes, block),
            None => {
                with_exposed_provenance_mut::<u8>(start as usize).write_bytes(0, bytes as usize);
            }
        }
    }
}

/// Fills whole blocks with zeroes: two instructions for each, since `DC ZVA` leaves the address as it is.
///
/// # Safety
///
/// As of [`frames`].
unsafe fn by_blocks(start: u64, end: u64, block: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "2:",
            "dc zva, {at}",
            "add {at}, {at}, {block}",
            "dc zva, {at}",
            "add {at}, {at}, {block}",
            "cmp {at}, {end}",
            "b.lo 2b",
            at = inout(reg) start => _,
            block = in(reg) block,
            end = in(reg) end,
            options(nostack)
        );
    }
}

/// Fills whole pages with zeroes, of which a block has 64 bytes: three instructions for two blocks. One of the two is
/// written by a store, which moves the address on to the other.
///
/// The floating-point registers are a guest's. Those that are used are saved meanwhile; nothing comes between, since
/// interrupts and `SError` are masked at EL2.
///
/// # Safety
///
/// As of [`frames`]; floating point does not trap.
unsafe fn by_turns(start: u64, end: u64) {
    let mut saved = MaybeUninit::<[u128; 4]>::uninit();
    // SAFETY: the caller's promise; `saved` has the size of four registers, and the registers are as they were in the
    // end.
    unsafe {
        asm!(
            ".arch_extension fp",
            ".arch_extension simd",
            "stp q0, q1, [{saved}]",
            "stp q2, q3, [{saved}, #32]",
            "movi v0.2d, #0",
            "movi v1.2d, #0",
            "movi v2.2d, #0",
            "movi v3.2d, #0",
            "2:",
            // A page.
            ".rept 32",
            "st1 {{v0.2d-v3.2d}}, [{at}], #64",
            "dc zva, {at}",
            "add {at}, {at}, #64",
            ".endr",
            "cmp {at}, {end}",
            "b.lo 2b",
            "ldp q0, q1, [{saved}]",
            "ldp q2, q3, [{saved}, #32]",
            ".arch_extension nosimd",
            ".arch_extension nofp",
            saved = in(reg) saved.as_mut_ptr(),
            at = inout(reg) start => _,
            end = in(reg) end,
            options(nostack)
        );
    }
}
