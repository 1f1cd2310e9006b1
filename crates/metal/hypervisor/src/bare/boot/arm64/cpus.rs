//! The other processors: started one after the other by PSCI of the firmware.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_arm64::{cache, cpu, spin};
use mayfly_hypervisor::tree::Board;
use mayfly_vm::platform::address::PAGE_SIZE;
use smccc::Smc;

use crate::bare::processor::{cpus, this_cpu};
use crate::bare::threads;
use crate::bare::threads::console::say;

/// What a processor other than the first begins with. It reads this with its caches off.
#[repr(C)]
struct Start {
    stack: u64,
    table: u64,
    number: u64,
}

unsafe extern "C" {
    /// The first instruction of processors other than the first, with the address of a [`Start`] in x0.
    fn secondary_start();
}

/// A processor has refused to come up.
static REFUSED: AtomicU32 = AtomicU32::new(0);

/// Prepares this processor, whose number is `number`, and counts it as up.
///
/// # Errors
///
/// What the processor has not.
pub(super) fn prepare(number: usize) -> Result<(), &'static str> {
    this_cpu::prepare(number)?;
    threads::adopt();
    cpus::is_up();
    Ok(())
}

/// Starts the others, one after the other: those that come up are numbered without a gap.
pub(super) fn start_others(board: &Board, table: u64) {
    let here = cpu::affinity();
    for &affinity in board.cpus.iter().filter(|&&affinity| affinity != here).take(cpus::MAX - 1) {
        let number = cpus::count();
        let Some(frames) = threads::frames::allocate(threads::STACK_ORDER) else {
            say!("mayfly: there is no memory to start CPU {affinity:#x}");
            return;
        };
        let stack = (frames.get() + (1 << threads::STACK_ORDER)) * PAGE_SIZE;
        let start = Box::leak(Box::new(Start { stack, table, number: u64::from(number) }));
        let start = core::ptr::from_ref(start).addr() as u64;
        cache::clean_bytes(start, size_of::<Start>() as u64);
        let entry = secondary_start as *const () as u64;
        if let Err(error) = smccc::psci::cpu_on::<Smc>(affinity, entry, start) {
            say!("mayfly: CPU {affinity:#x} does not start: PSCI CPU_ON: {error}");
            continue;
        }
        // It comes up, or prints why it does not and stays idle for good.
        while cpus::count() == number && REFUSED.load(Ordering::Acquire) == 0 {
            spin::relax();
        }
        REFUSED.store(0, Ordering::Relaxed);
    }
}

/// What a processor other than the first does first in Rust.
pub(super) extern "C" fn secondary(number: u64) -> ! {
    if let Err(why) = prepare(number as usize) {
        say!("mayfly: CPU {number} is not used: {why}");
        REFUSED.store(1, Ordering::Release);
        loop {
            spin::wait_for_interrupt();
        }
    }
    threads::idle()
}
