//! An address, looked up by the tables of the guest whose registers are in the processor.
//!
//! The walk may set access flags in the guest's tables. Where that fails, the instruction may take an exception, to EL2
//! (as Linux has found: `arch/arm64/kvm/hyp/entry.S`, "An exception is expected"). The vectors know its address, and go
//! on behind it.

use core::arch::global_asm;

unsafe extern "C" {
    fn arm64_translate(address: u64) -> u64;
}

/// What `PAR_EL1` is when the guest's `address` was looked up, as its EL1 reads it. Changes `PAR_EL1`.
pub(super) fn translate(address: u64) -> u64 {
    // SAFETY: it looks up an address, whatever that is, and changes what is said above.
    unsafe { arm64_translate(address) }
}

global_asm!(
    r#"
    .section .text.arm64_translate, "ax"
    .global arm64_translate
arm64_translate:
    .global arm64_lookup
arm64_lookup:
    at s1e1r, x0
    isb
    mrs x0, par_el1
    ret
    "#
);
