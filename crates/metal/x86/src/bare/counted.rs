//! Instructions, counted by the time-stamp counter: where QEMU makes the machine up with `-icount shift=0,sleep=off`, each
//! instruction is one tick of it.
//!
//! That counter goes on while a processor halts. So no processor halts as long as instructions are counted: in place of that
//! it executes a loop whose instructions are known, and are told apart. It looks for interrupts once in each turn.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::timer;

/// Instructions of a loop that is counted to see whether they are ticks.
const KNOWN: u64 = 1_000_000;
/// How many more it may have: for reading the counter, and for an interrupt that comes between.
const MORE: u64 = 500;
/// How often that is tried, since an alarm may come.
const TRIES: usize = 3;
/// Instructions of a turn of the loop in place of a halt, and those of them that do nothing.
const TURN: u64 = 256;
const NOTHING: u64 = TURN - 6;

static IS_ON: AtomicBool = AtomicBool::new(false);
/// Instructions that were executed in place of a halt.
static IDLE: AtomicU64 = AtomicU64::new(0);

/// The time-stamp counter does not count instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time-stamp counter does not count instructions (QEMU: -icount shift=0,sleep=off)")]
pub struct NotCounted;

/// Counts, as long as it exists. One processor at a time can be counted.
pub struct Counter(());

impl Counter {
    /// Begins to count.
    ///
    /// # Errors
    ///
    /// The time-stamp counter counts something else.
    pub fn begin() -> Result<Self, NotCounted> {
        let is_right = |_| (KNOWN..=KNOWN + MORE).contains(&known());
        if !(0..TRIES).any(is_right) {
            return Err(NotCounted);
        }
        IS_ON.store(true, Ordering::Relaxed);
        Ok(Self(()))
    }

    /// What was executed until now, but for what was in place of a halt. It means something beside another such number.
    pub fn executed(&self) -> u64 {
        timer::ticks().wrapping_sub(IDLE.load(Ordering::Relaxed))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        IS_ON.store(false, Ordering::Relaxed);
    }
}

/// Ticks of a loop of [`KNOWN`] instructions.
fn known() -> u64 {
    let before = timer::ticks();
    // SAFETY: changes nothing but its register.
    unsafe {
        asm!("2: dec {0:e}", "jnz 2b", inout(reg) (KNOWN / 2) as u32 => _, options(nomem, nostack));
    }
    timer::ticks() - before
}

/// Whether this processor is to call [`idle`], and not to halt.
pub(super) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Waits until an interrupt is noted in `come`.
pub(super) fn idle(come: &AtomicU64) {
    let mut turns = 0_u64;
    // SAFETY: interrupts are masked before and after it. In between they are taken for the length of an instruction, as where
    // a processor looks for them; the handler leaves all registers as they were, and notes them in `come`.
    unsafe {
        asm!(
            "2:",
            ".rept {nothing}",
            "nop",
            ".endr",
            "sti",
            "nop",
            "cli",
            "inc {turns}",
            "cmp qword ptr [{come}], 0",
            "je 2b",
            nothing = const NOTHING,
            turns = inout(reg) turns,
            come = in(reg) come.as_ptr(),
        );
    }
    IDLE.fetch_add(turns * TURN, Ordering::Relaxed);
}
