//! The OS lock, by which a kernel keeps debug exceptions away while it has their registers.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::machine::{get, holds, set};

/// `OSLSR_EL1`: there is a lock, and it is on.
const LOCK: u64 = 1 << 3;
const LOCKED: u64 = 1 << 1;
/// `MDSCR_EL1`: KDE, MDE.
const EXCEPTIONS: u64 = 1 << 13 | 1 << 15;
/// `DBGWCR<n>_EL1`: each byte, loads and stores, at EL1, enabled.
const WATCH: u64 = 0xff << 5 | 3 << 3 | 1 << 1 | 1;

static WATCHED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn check() {
    set!("oslar_el1", 0);
    holds!(get!("oslsr_el1") == LOCK, "there is an OS lock, and it is off");
    set!("mdscr_el1", EXCEPTIONS);
    set!("oslar_el1", 1);
    holds!(get!("oslsr_el1") == LOCK | LOCKED, "the OS lock is on");
    holds!(get!("mdscr_el1") == EXCEPTIONS, "what enables debug exceptions is kept meanwhile");
    set!("dbgwvr0_el1", WATCHED.as_ptr() as u64);
    set!("dbgwcr0_el1", WATCH);
    // SAFETY: a debug exception would end this guest, which would print it.
    unsafe { asm!("msr daifclr, #8", "isb", options(nostack)) };
    WATCHED.store(1, Ordering::Relaxed);
    // SAFETY: as it was before.
    unsafe { asm!("msr daifset, #8", "isb", options(nostack)) };
    holds!(WATCHED.load(Ordering::Relaxed) == 1, "no watchpoint hits while the OS lock is on");
    set!("dbgwcr0_el1", 0);
    set!("oslar_el1", 0);
    holds!(get!("mdscr_el1") == EXCEPTIONS, "nor is it lost when the OS lock is off");
    set!("mdscr_el1", 0);
}
