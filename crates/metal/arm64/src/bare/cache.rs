//! Caches, as [`Cache`] asks for them. Memory is mapped one to one, so the number of a frame is its address.

use core::arch::asm;

use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};
use mayfly_vm::platform::cache::{Cache, CacheCapabilities};

use super::common;

/// The caches of all processors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caches;

/// The smallest line of any processor's data caches, in bytes. An instruction for a line is for that of every processor.
fn data_line() -> u64 {
    common::caches().data_line()
}

fn instruction_line() -> u64 {
    common::caches().instruction_line()
}

/// Executes an instruction for each line of these frames: four at a time, since of so many lines the loop would be the
/// larger part. A line of more than a quarter of a page, which no processor is known to have, is met more often than
/// once.
macro_rules! each_line {
    ($instruction:literal, $first:expr, $count:expr, $line:expr) => {{
        let (start, bytes) = ($first.get() * PAGE_SIZE, $count * PAGE_SIZE);
        if bytes > 0 {
            // SAFETY: writes back what is mapped there, or has it be fetched again; so nothing is lost by dropping it.
            unsafe {
                asm!(
                    "2:",
                    concat!($instruction, ", {at}"),
                    "add {at}, {at}, {line}",
                    concat!($instruction, ", {at}"),
                    "add {at}, {at}, {line}",
                    concat!($instruction, ", {at}"),
                    "add {at}, {at}, {line}",
                    concat!($instruction, ", {at}"),
                    "add {at}, {at}, {line}",
                    "cmp {at}, {end}",
                    "b.lo 2b",
                    at = inout(reg) start => _,
                    line = in(reg) $line.min(PAGE_SIZE / 4),
                    end = in(reg) start + bytes,
                    options(nostack)
                );
            }
        }
    }};
}

/// Lines of instruction caches beyond which all are invalidated instead of each: as Linux does on arm64
/// (`MAX_DVM_OPS`, `arch/arm64/include/asm/tlbflush.h`, which `__invalidate_icache_guest_page` goes by).
const MOST_BY_LINE: u64 = 512;

/// Cleans what is at these addresses to the point of coherency, for a processor that has its caches off.
pub fn clean_bytes(start: u64, bytes: u64) {
    let line = data_line();
    let first = start & !(line - 1);
    for at in (first..start + bytes).step_by(line as usize) {
        // SAFETY: writes back what is mapped there; nothing is dropped.
        unsafe { asm!("dc cvac, {}", in(reg) at, options(nostack)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb sy", options(nostack)) };
}

// SAFETY: the instructions that the trait names, for each line, and their barriers.
unsafe impl Cache for Caches {
    fn capabilities(&self) -> CacheCapabilities {
        // HFGWTR_EL2 is not used.
        CacheCapabilities { instructions: common::caches().instructions(), fgt: false }
    }

    fn clean(&self, first: Pfn, count: u64) {
        each_line!("dc cvac", first, count, data_line());
        // SAFETY: a barrier.
        unsafe { asm!("dsb sy", options(nostack)) };
    }

    fn clean_invalidate(&self, first: Pfn, count: u64) {
        each_line!("dc civac", first, count, data_line());
        // SAFETY: a barrier.
        unsafe { asm!("dsb sy", options(nostack)) };
    }

    fn invalidate_instructions(&self, first: Pfn, count: u64) {
        if count * PAGE_SIZE / instruction_line() > MOST_BY_LINE {
            return self.invalidate_all_instructions();
        }
        each_line!("ic ivau", first, count, instruction_line());
        // SAFETY: barriers.
        unsafe { asm!("dsb ish", "isb", options(nostack)) };
    }

    fn invalidate_all_instructions(&self) {
        // SAFETY: instructions are fetched again.
        unsafe { asm!("ic ialluis", "dsb ish", "isb", options(nostack)) };
    }
}
