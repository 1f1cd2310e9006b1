//! System errors: a guest takes one that is its own when it unmasks them, once, and another VM takes none of it.
//!
//! No access of a guest fails late on a machine that QEMU makes up. So the monitor has the guest take one (`serror`).

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::machine::{get, holds, is_typed, pass, say, soon};

/// `ISR_EL1.A`: one is pending, of those that this VM is to take.
const PENDING: u64 = 1 << 8;

static TAKEN: AtomicU32 = AtomicU32::new(0);
static SYNDROME: AtomicU64 = AtomicU64::new(0);

/// One was taken.
pub(crate) fn taken() {
    // No read-modify-write: the MMU is off.
    TAKEN.store(TAKEN.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    SYNDROME.store(get!("esr_el1"), Ordering::Relaxed);
}

fn times() -> u32 {
    TAKEN.load(Ordering::Relaxed)
}

/// Takes errors while it does `work`.
fn open(work: impl FnOnce()) {
    // SAFETY: this program expects its errors.
    unsafe { asm!("msr daifclr, #4", "isb", options(nostack)) };
    work();
    // SAFETY: as above.
    unsafe { asm!("msr daifset, #4", "isb", options(nostack)) };
}

/// Of the VM that is to take one. It goes on when something was typed, so that another VM runs while the error is pending.
pub(crate) fn check_own() {
    let is_pending = || get!("isr_el1") & PENDING != 0;
    holds!(!is_pending(), "no SError is pending at first");
    say!("guest: waits for an SError");
    holds!(soon(is_pending), "an SError is pending when the monitor has made one");
    while !is_typed() {
        pass(1);
    }
    holds!(is_pending() && times() == 0, "it stays so, and is not taken, as long as it is masked");
    open(|| {
        holds!(times() == 1, "it is taken when it is unmasked");
        say!("guest: its syndrome is {:#x}", SYNDROME.load(Ordering::Relaxed));
        holds!(!is_pending(), "then none is pending");
        pass(20);
        holds!(times() == 1, "nor is it taken again");
    });
}

/// Of another VM, which runs meanwhile.
pub(crate) fn check_others() {
    open(|| pass(20));
    holds!(times() == 0, "no SError of another VM is taken");
}
