//! An `SError` that a guest has made, and that is pending when its vCPU leaves the processor.
//!
//! `SErrors` are asynchronous: what a guest has done may fail after it has come out. EL2 runs with them masked, so such
//! an error would wait for the next entry of a guest, and be taken from that one, whichever it is. So before the
//! registers of another vCPU are loaded, errors are taken here, and are the vCPU's that has run.
//!
//! Where the processor has the RAS extension, `ESB` waits for errors and takes a pending one, which is then in
//! `DISR_EL1`. Elsewhere `DSB` is as long as anything can wait for them, and `ISR_EL1` says whether one is pending. If
//! so, it is unmasked for a moment; the vector of EL2's own `SErrors` (`switch.rs`) knows this moment by its address.
//!
//! QEMU makes no physical `SError`, so no test sees one taken here. What a guest then takes is a virtual one (`HCR_EL2.VSE`),
//! which QEMU delivers: `make metal-test` has a VM take one ([`fail`](super::guest::GuestCpu::fail)).

use core::arch::{asm, global_asm};

unsafe extern "C" {
    fn arm64_take_error() -> u64;
}

/// `ISR_EL1.A`, of the physical one at EL2.
const PENDING: u64 = 1 << 8;
/// `DISR_EL1.A`.
const DEFERRED: u64 = 1 << 31;

/// Takes a pending error. Returns whether there was one. `has_record`: the processor has the RAS extension.
#[inline]
pub(super) fn take(has_record: bool) -> bool {
    if has_record {
        return take_deferred();
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb sy", options(nostack)) };
    crate::read_register!("isr_el1") & PENDING != 0 && take_pending()
}

fn take_deferred() -> bool {
    // SAFETY: ESB, which is a barrier.
    unsafe { asm!("hint #16", options(nostack)) };
    // DISR_EL1, which assemblers for ARMv8.0 do not know by name.
    let was_pending = crate::read_register!("s3_0_c12_c1_1") & DEFERRED != 0;
    if was_pending {
        // SAFETY: it is EL2's own, and was read.
        unsafe { crate::write_register!("s3_0_c12_c1_1", 0_u64) };
    }
    was_pending
}

#[cold]
fn take_pending() -> bool {
    // SAFETY: SErrors are unmasked where the vector expects one, and nowhere else.
    unsafe { arm64_take_error() != 0 }
}

global_asm!(
    r#"
    .section .text.arm64_error, "ax"
    .global arm64_take_error
arm64_take_error:
    mov x0, #0
    .global arm64_error_begin
arm64_error_begin:
    msr daifclr, #4
    isb
    nop
    msr daifset, #4
    .global arm64_error_end
arm64_error_end:
    isb
    ret
    "#
);
